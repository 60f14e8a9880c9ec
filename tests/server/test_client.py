"""The client library's asyncio side and the command, against a running server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omni_client import AsyncOmniClient, GenerateRequest, InvalidRequestError, OmniClient, Sampling

from tests.parity.prompts import MEDIA
from tests.server.metrics import Metrics, wait_until

REQUEST = GenerateRequest(text="Hello! Who are you?", sampling=Sampling(max_tokens=32, ignore_eos=True))
ENDLESS = GenerateRequest(text="Go on.", sampling=Sampling(max_tokens=20_000, ignore_eos=True))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "omni_client", *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture(params=["grpc", "http"])
def url(request: pytest.FixtureRequest, grpc_url: str, http_url: str) -> str:
    return grpc_url if request.param == "grpc" else http_url


def test_many_asyncio_requests_at_once_answer_as_one_does(client: OmniClient, url: str) -> None:
    async def ask_all() -> list[str]:
        async with AsyncOmniClient(url) as async_client:
            answers = await asyncio.gather(*(async_client.generate(REQUEST) for _ in range(12)))
            return [answer.text for answer in answers]

    assert set(asyncio.run(ask_all())) == {client.generate(REQUEST).text}


def test_leaving_an_asyncio_stream_cancels_at_the_server(url: str, metrics: Metrics) -> None:
    async def leave() -> None:
        async with AsyncOmniClient(url) as async_client, async_client.stream(ENDLESS) as pieces:
            async for _ in pieces:
                break

    asyncio.run(leave())
    assert wait_until(metrics.idle, 1.0)


def test_a_refused_request_raises_the_typed_error_without_the_code(url: str) -> None:
    request = GenerateRequest(messages=[{"role": "robot", "content": "a"}])
    with OmniClient(url) as client, pytest.raises(InvalidRequestError, match=r"^messages\[0\]\.role: .*robot.*allowed"):
        client.generate(request)


def test_the_command_prints_the_answer_to_all_kinds_of_media(url: str) -> None:
    files = ("--image", "photo.jpg", "--audio", "talk.mp3", "--video", "clip.mp4")
    media = [item if item.startswith("--") else str(MEDIA / item) for item in files]
    result = command("--url", url, "--max-tokens", "12", "--ignore-eos", "--stats", "What is this?", *media)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "12 tokens" in result.stderr and "first" in result.stderr.lower()


def test_the_command_writes_json_lines(url: str) -> None:
    result = command("--url", url, "--max-tokens", "8", "--ignore-eos", "--json", "--logprobs", "1", "Hello!")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines[-1]["finish_reason"] == "length"
    assert lines[-1]["usage"]["completion_tokens"] == 8


def test_the_command_says_in_one_sentence_what_the_server_refused(url: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    result = command("--url", url, "What is this?", "--image", str(broken))
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1 and "allowed" in result.stderr


def test_interrupting_the_command_cancels_at_the_server(url: str, metrics: Metrics) -> None:
    line = [sys.executable, "-m", "omni_client", "--url", url, "--max-tokens", "20000", "--ignore-eos", "Go on."]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert wait_until(lambda: metrics.slots_used() == 1, 20.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(10.0) == 130
    assert wait_until(metrics.idle, 1.0)
