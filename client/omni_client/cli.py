"""The command `omni-client`: ask a question, print the answer as it comes."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from omni_client.answer import Piece
from omni_client.client import OmniClient
from omni_client.endpoint import DEFAULT_URL, Timeouts
from omni_client.errors import InvalidRequestError, OmniClientError
from omni_client.request import GenerateRequest, Sampling

_OK, _FAILED, _USAGE, _INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """One sentence instead of the whole usage when something is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = _Parser(
        prog="omni-client",
        description="Ask an omni model about text, images, sounds and videos; the answer is printed as it comes.",
        epilog="Exit status: 0 answered, 1 the request failed, 2 wrong usage, 130 interrupted and cancelled.",
        allow_abbrev=False,
    )
    top.add_argument("text", nargs="?", help="the question; - reads it from standard input")
    top.add_argument(
        "--messages", metavar="FILE", type=Path, help="whole conversation as JSON in OpenAI's form, not TEXT"
    )
    media = top.add_argument_group("media, each as often as needed")
    for kind in ("image", "audio", "video"):
        media.add_argument(f"--{kind}", metavar="FILE", action="append", default=[])
    media.add_argument(
        "--use-audio-in-video", action="store_true", default=None, help="read the videos' sound tracks too"
    )
    sampling = top.add_argument_group("answer")
    sampling.add_argument("--max-tokens", type=int, metavar="N", help="length of the answer at most")
    sampling.add_argument("--temperature", type=float, metavar="T", help="0 (default) is greedy")
    sampling.add_argument("--top-k", type=int, metavar="K", help="draw from the K most likely tokens; 0 from all")
    sampling.add_argument("--top-p", type=float, metavar="P", help="draw from the tokens that make up probability P")
    sampling.add_argument("--repetition-penalty", type=float, metavar="R", help="above 1 discourages repetition")
    sampling.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    sampling.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; may be repeated"
    )
    sampling.add_argument(
        "--ignore-eos", action="store_true", default=None, help="go on after the end-of-sequence token"
    )
    sampling.add_argument(
        "--logprobs", type=int, metavar="N", help="report log-probabilities and N alternatives (--json)"
    )
    sampling.add_argument("--tools", metavar="FILE", type=Path, help="function definitions as a JSON list")
    server = top.add_argument_group("server")
    server.add_argument("--url", default=DEFAULT_URL, help="grpc://host:port or http://host:port (default %(default)s)")
    server.add_argument("--model", default="omni", help="name of the ensemble (default %(default)s)")
    server.add_argument("--request-id", default="", metavar="ID", help="name of the request in the server's logs")
    server.add_argument("--priority", type=int, metavar="N", help="1 is served first (gRPC only)")
    defaults = Timeouts()
    for name, what in (
        ("connect", "to connect"),
        ("first-token", "to the first token"),
        ("total", "for the whole answer"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        server.add_argument(
            f"--{name}-timeout", type=float, default=default, metavar="S", help=f"seconds {what} (default {default})"
        )
    output = top.add_argument_group("output")
    output.add_argument("--no-stream", action="store_true", help="print the answer when it is complete")
    output.add_argument("--json", action="store_true", help="print each piece as one line of JSON")
    output.add_argument("--stats", action="store_true", help="print times, tokens and speed to standard error")
    return top


def request_of(options: argparse.Namespace) -> GenerateRequest:
    """The request that the options describe.

    Raises:
        InvalidRequestError: a file cannot be read, or the options contradict each other.
    """
    if (options.text is None) == (options.messages is None):
        raise InvalidRequestError(
            "TEXT, --messages: found " + ("both" if options.text else "neither") + "; allowed: one"
        )
    media = {kind: tuple(Path(path) for path in getattr(options, kind)) for kind in ("image", "audio", "video")}
    request = GenerateRequest(
        text=sys.stdin.read() if options.text == "-" else options.text,
        messages=None if options.messages is None else _json_list("--messages", options.messages),
        image=media["image"],
        audio=media["audio"],
        video=media["video"],
        sampling=Sampling(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            repetition_penalty=options.repetition_penalty,
            seed=options.seed,
            stop=options.stop,
            ignore_eos=options.ignore_eos,
            logprobs=options.logprobs,
        ),
        tools=None if options.tools is None else _json_list("--tools", options.tools),
        use_audio_in_video=options.use_audio_in_video,
        streaming=not options.no_stream,
        request_id=options.request_id,
        priority=options.priority,
    )
    request.media()  # a missing file is wrong usage, not a failed request
    return request


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is returned."""
    top = parser()
    options = top.parse_args(arguments)
    try:
        try:
            request = request_of(options)
            timeouts = Timeouts(options.connect_timeout, options.first_token_timeout, options.total_timeout)
            client = OmniClient(options.url, model=options.model, timeouts=timeouts)
        except (OmniClientError, ValueError) as error:
            top.error(str(error))
        with client:
            _print_answer(client, request, options)
    except OmniClientError as error:
        print(f"{top.prog}: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # whoever read the output has gone; keep the interpreter from complaining when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return _OK


def _print_answer(client: OmniClient, request: GenerateRequest, options: argparse.Namespace) -> None:
    started = time.monotonic()
    first = None
    piece = Piece("")
    try:
        with client.stream(request) as stream:
            for piece in stream:
                first = first or time.monotonic()
                sys.stdout.write(_json_line(piece) if options.json else piece.text)
                sys.stdout.flush()
    finally:
        if first is not None and not options.json:
            sys.stdout.write("\n")
            sys.stdout.flush()
    if options.stats and first is not None:
        print(_stats(piece, first - started, time.monotonic() - started), file=sys.stderr)


def _json_line(piece: Piece) -> str:
    line: dict[str, Any] = {"text": piece.text}
    if piece.finish_reason is not None:
        line["finish_reason"] = piece.finish_reason
    if piece.usage is not None:
        line["usage"] = piece.usage.to_dict()
    if piece.logprobs is not None:
        line["logprobs"] = piece.logprobs
    return json.dumps(line, ensure_ascii=False) + "\n"


def _stats(last: Piece, first: float, total: float) -> str:
    lines = [f"time to first piece  {1000 * first:.0f} ms", f"total time           {1000 * total:.0f} ms"]
    if (usage := last.usage) is not None:
        if usage.completion_tokens > 1 and total > first:
            lines.append(f"speed                {(usage.completion_tokens - 1) / (total - first):.1f} tokens/s")
        kinds = ", ".join(
            f"{count} {kind}"
            for kind in ("text", "image", "audio", "video", "cached")
            if (count := getattr(usage, f"{kind}_tokens"))
        )
        lines.append(f"prompt               {usage.prompt_tokens} tokens" + (f" ({kinds})" if kinds else ""))
        lines.append(f"answer               {usage.completion_tokens} tokens, ended by {last.finish_reason}")
        lines += [f"  {name:<18} {ms:.1f} ms" for name, ms in usage.times_ms.items()]
    return "\n".join(lines)


def _json_list(option: str, path: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidRequestError(f"{option}: cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{option}: {path} is not JSON: {error}") from None
    if not isinstance(value, list):
        raise InvalidRequestError(f"{option}: {path} holds no list; allowed: a JSON list of objects")
    return value
