"""Command line: python -m build_engines CHECKPOINT [--out DIR] [--name NAME] ..."""

from __future__ import annotations

import argparse
import errno
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from build_engines.build import BuildOptions, build
from build_engines.engine_store import CURRENT
from build_engines.errors import BuildError
from build_engines.manifest import PRECISIONS, checkpoint_name
from build_engines.progress import BuildProgress
from python_backends.engine_folder import Variant

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Interrupted(BaseException):
    """A signal asked to stop. Not an `Exception`, so that nothing on the way swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one build.

    Returns:
        0 when the engines are there; 1 with one sentence on stderr when they are not; 128 + n after signal n.
        A wrong command line ends in `SystemExit(2)`.
    """
    options = _parse(arguments)
    try:
        with _stop_on_signals():
            result = build(options, BuildProgress())
    except Interrupted as interrupt:
        print(f"stopped by {interrupt}; nothing half-written is left", file=sys.stderr)
        return 128 + interrupt.number
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = error.filename or options.out
        reason = "the disk is full; nothing was kept of this build" if error.errno in _FULL else error.strerror
        print(f"error: {where}: {reason}", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: not enough memory for the largest group of weights", file=sys.stderr)
        return 1
    print(f"{'built' if result.built else 'already built'}: {result.path}")
    return 0


def _parse(arguments: Sequence[str] | None) -> BuildOptions:
    parser = argparse.ArgumentParser(
        prog="python -m build_engines",
        description="Build an engine folder from a Hugging Face checkpoint of the Qwen3-Omni architecture.",
    )
    parser.add_argument("checkpoint", type=Path, help="folder with config.json, safetensors weights and tokenizer")
    parser.add_argument("--out", type=Path, default=Path("engines"), help="where engine folders go (default: engines)")
    parser.add_argument("--name", help="name of the engines (default: the checkpoint's)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="of weights and KV cache (default: fp32)"
    )
    parser.add_argument(
        "--max-model-len", type=int, metavar="N", help="most tokens of prompt and answer (default: the checkpoint's)"
    )
    parser.add_argument(
        "--variant",
        choices=[variant.value for variant in Variant],
        help="default: instruct with a talker; without one captioner if the checkpoint's name says so, else thinking",
    )
    parser.add_argument("--force", action="store_true", help="build a new version even if an equal one is there")
    values = parser.parse_args(arguments)
    name = values.name or checkpoint_name(values.checkpoint)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) or name == CURRENT:
        parser.error(
            f"--name: found {name!r}; allowed: letters, digits, '.', '_' and '-', not '.' first, not {CURRENT!r}"
        )
    if values.max_model_len is not None and values.max_model_len < 1:
        parser.error(f"--max-model-len: found {values.max_model_len}; allowed: 1 or more")
    return BuildOptions(
        checkpoint=values.checkpoint,
        out=values.out,
        name=name,
        precision=values.precision,
        max_model_len=values.max_model_len,
        variant=Variant(values.variant) if values.variant else None,
        force=values.force,
    )


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Turn the first signal into an exception, so that the build cleans up; the clean-up itself is not interrupted."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # `nohup` and `&` ignore some on purpose
                signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
