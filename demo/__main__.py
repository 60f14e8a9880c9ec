"""`make demo`: start Triton, ask one question per modality and one with everything at once, stop Triton.

The checkpoint behind it has random weights, so the words mean nothing yet: what the demo shows is that the whole path
works, and how long it takes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from omni_client import GenerateRequest, OmniClient, OmniClientError, Sampling
from rich.console import Console
from rich.table import Table

from deploy.local import preflight
from deploy.local.config import ServerConfig
from deploy.local.runtime import RuntimeInstallError, install
from deploy.local.server import ServerFailed, TritonServer

MEDIA = Path(__file__).parent / "media"
IMAGE, SOUND, VIDEO = MEDIA / "shapes.jpg", MEDIA / "beeps.wav", MEDIA / "rolling_ball.mp4"


@dataclass(frozen=True)
class Question:
    """One request of the demo."""

    title: str
    text: str
    image: tuple[Path, ...] = ()
    audio: tuple[Path, ...] = ()
    video: tuple[Path, ...] = ()
    use_audio_in_video: bool = False


QUESTIONS = (
    Question("text", "Say hello."),
    Question("image", "What is in the picture?", image=(IMAGE,)),
    Question("sound", "What do you hear?", audio=(SOUND,)),
    Question("video", "What happens, and what does it sound like?", video=(VIDEO,), use_audio_in_video=True),
    Question(
        "all at once",
        "Do the picture, the sound and the video belong together?",
        image=(IMAGE,),
        audio=(SOUND,),
        video=(VIDEO,),
    ),
)


@dataclass(frozen=True)
class Timing:
    """What one answer took."""

    title: str
    prompt_tokens: int
    completion_tokens: int
    first_token_ms: float
    total_ms: float


def ask(client: OmniClient, question: Question, console: Console) -> Timing:
    """Send one question and print the answer as it comes."""
    files = ", ".join(path.name for path in (*question.image, *question.audio, *question.video))
    console.print(f"\n[bold]{question.title}[/bold]  {question.text}" + (f"  [dim]({files})[/dim]" if files else ""))
    request = GenerateRequest(
        text=question.text,
        use_audio_in_video=question.use_audio_in_video,
        sampling=Sampling(max_tokens=24, temperature=0.0),
        image=question.image,
        audio=question.audio,
        video=question.video,
    )
    started = time.perf_counter()
    first, usage = None, None
    with client.stream(request) as pieces:
        for piece in pieces:
            first = first or time.perf_counter()
            console.out(piece.text, end="", highlight=False)
            usage = piece.usage or usage
    ended = time.perf_counter()
    console.out("")
    if usage is None or first is None:
        raise OmniClientError("the answer ended without usage")
    return Timing(
        question.title,
        usage.prompt_tokens,
        usage.completion_tokens,
        (first - started) * 1e3,
        (ended - started) * 1e3,
    )


def show(timings: list[Timing], console: Console) -> None:
    """The closing table."""
    table = Table(title="\nwhat it took")
    for heading in ("question", "prompt tokens", "answer tokens", "first token", "whole answer"):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for timing in timings:
        numbers = (timing.prompt_tokens, timing.completion_tokens)
        times = (f"{timing.first_token_ms:.0f} ms", f"{timing.total_ms:.0f} ms")
        table.add_row(timing.title, *map(str, numbers), *times)
    console.print(table)


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    started = time.perf_counter()
    try:
        config = ServerConfig.from_environment()
        preflight.check(config)
        with TritonServer(install(), config):
            console.print(f"tritonserver is ready after {time.perf_counter() - started:.1f} s")
            console.print(
                "[dim]the weights are random, so the words mean nothing: look at the path and the times[/dim]"
            )
            with OmniClient(f"grpc://{config.address}:{config.grpc_port}") as client:
                show([ask(client, question, console) for question in QUESTIONS], console)
    except (RuntimeInstallError, preflight.PreflightError, ServerFailed, OmniClientError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print("stopped tritonserver; `make serve` keeps it up, `omni-client --help` asks it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
