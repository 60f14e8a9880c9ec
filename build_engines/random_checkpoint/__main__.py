"""Command line: python -m build_engines.random_checkpoint {small|wide|bench} OUT [--seed N]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from build_engines.random_checkpoint.shapes import SHAPES
from build_engines.random_checkpoint.writer import write_checkpoint


def main() -> int:
    """Write one checkpoint; 1 and a sentence on stderr if the folder is not empty or cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m build_engines.random_checkpoint",
        description="Write a random checkpoint of the Qwen3-Omni architecture in Hugging Face's layout.",
    )
    parser.add_argument("shape", choices=sorted(SHAPES), help="small and wide are for tests, bench has 980M parameters")
    parser.add_argument("out", type=Path, help="folder to write; must not exist or be empty")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other weights (default: 0)")
    arguments = parser.parse_args()
    try:
        parameters = write_checkpoint(SHAPES[arguments.shape], arguments.out, arguments.seed, report=_show)
    except OSError as error:
        print(f"{arguments.out}: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {parameters / 1e6:.1f} million parameters")
    return 0


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done * 100 // total:3d} %", end="\n" if done == total else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
