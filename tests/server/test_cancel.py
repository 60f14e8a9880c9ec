"""A request whose client is gone stops computing within half a second, and gives everything back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import tritonclient.grpc as triton
from omni_client import OmniClient, Sampling

from deploy.local.server import TritonServer
from tests.parity.prompts import PROMPTS
from tests.server.asking import request_of
from tests.server.footprint import Footprint
from tests.server.metrics import Metrics, wait_until
from tests.server.raw import tensors

HELLO = next(prompt for prompt in PROMPTS if prompt.name == "hello")
ENDLESS = {"text_input": "Tell me everything.", "max_tokens": 20_000, "ignore_eos": True, "streaming": True}
# long enough that its prefill takes a while, at 128 tokens a step
LONG_PROMPT = {**ENDLESS, "text_input": "all the words of a very long story " * 1500, "max_tokens": 16}
GIVEN_BACK_SECONDS = 0.5
PUBLISHED_SECONDS = 0.15  # metrics appear ten times a second


@pytest.fixture(autouse=True)
def idle_before_and_after(metrics: Metrics) -> Iterator[None]:
    assert wait_until(metrics.idle, 5.0)
    yield
    assert wait_until(metrics.idle, 5.0)


def throw_away(result: object, error: object) -> None:
    """The callback of a stream whose answers nobody reads; tritonclient names the arguments."""
    del result, error


def open_stream(url: str, inputs: dict[str, object]) -> triton.InferenceServerClient:
    """A stream with one request on it; what comes back is thrown away."""
    client = triton.InferenceServerClient(url.removeprefix("grpc://"))
    client.start_stream(throw_away)
    client.async_stream_infer("omni", tensors(inputs))
    return client


def assert_given_back(metrics: Metrics, cancel: Callable[[], object]) -> None:
    """Cancels, and looks until the engine holds nothing."""
    started = time.monotonic()
    cancel()
    assert wait_until(metrics.idle, GIVEN_BACK_SECONDS + PUBLISHED_SECONDS), (
        time.monotonic() - started,
        metrics.requests(),
    )
    before = metrics.tokens()
    time.sleep(0.3)
    assert metrics.tokens() == before, "tokens are still being computed"


def stop(client: triton.InferenceServerClient) -> Callable[[], None]:
    return lambda: client.stop_stream(cancel_requests=True)


def test_cancel_during_decode_gives_slot_and_blocks_back(grpc_url: str, metrics: Metrics) -> None:
    client = open_stream(grpc_url, ENDLESS)
    decoded = metrics.tokens().get("decode", 0.0)
    assert wait_until(lambda: metrics.tokens().get("decode", 0.0) > decoded + 20, 10.0)
    assert metrics.slots_used() == 1
    assert_given_back(metrics, stop(client))
    client.close()


def test_cancel_during_prefill_gives_slot_and_blocks_back(grpc_url: str, metrics: Metrics) -> None:
    before = metrics.tokens()
    client = open_stream(grpc_url, LONG_PROMPT)
    assert wait_until(lambda: metrics.tokens()["prefill"] > before["prefill"], 10.0)
    assert_given_back(metrics, stop(client))
    assert metrics.tokens()["decode"] == before["decode"], "the prompt was read to its end: the test came too late"
    client.close()


def test_cancel_in_the_queue_never_reaches_a_slot(grpc_url: str, metrics: Metrics) -> None:
    running = [open_stream(grpc_url, ENDLESS) for _ in range(16)]
    assert wait_until(lambda: metrics.slots_used() == 16, 20.0)
    waiting = open_stream(grpc_url, ENDLESS)
    assert wait_until(lambda: metrics.requests()["waiting"] == 1, 5.0)
    waiting.stop_stream(cancel_requests=True)
    waiting_gone = wait_until(lambda: metrics.requests()["waiting"] == 0, GIVEN_BACK_SECONDS + PUBLISHED_SECONDS)
    still_running = metrics.slots_used()
    for client in running:
        client.stop_stream(cancel_requests=True)
    assert waiting_gone and still_running == 16
    for client in (waiting, *running):
        client.close()


def test_a_client_that_is_killed_is_noticed(grpc_url: str, metrics: Metrics) -> None:
    decoded = metrics.tokens().get("decode", 0.0)
    command = [
        sys.executable,
        "-m",
        "omni_client",
        "--url",
        grpc_url,
        "--max-tokens",
        "20000",
        "--ignore-eos",
        "Go on.",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        assert wait_until(lambda: metrics.tokens().get("decode", 0.0) > decoded + 5, 20.0)
        assert_given_back(metrics, lambda: os.kill(process.pid, signal.SIGKILL))


def test_an_http_client_that_closes_its_connection_is_noticed(http_url: str, metrics: Metrics) -> None:
    with httpx.Client() as client:
        with client.stream("POST", f"{http_url}/v2/models/omni/generate_stream", json=ENDLESS, timeout=10.0) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data:")
            started = time.monotonic()
        client.close()
    assert wait_until(metrics.idle, GIVEN_BACK_SECONDS + PUBLISHED_SECONDS), time.monotonic() - started


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "one response"])
def test_closing_the_client_librarys_stream_cancels(
    client: OmniClient, grpc_url: str, metrics: Metrics, streaming: bool
) -> None:
    sampling = Sampling(max_tokens=20_000, ignore_eos=True)
    if streaming:
        stream = client.stream(request_of(HELLO, sampling))
        next(stream)
        assert_given_back(metrics, stream.close)
    else:
        quiet = open_stream(grpc_url, {**ENDLESS, "streaming": False})
        assert wait_until(lambda: metrics.slots_used() == 1, 5.0)
        assert_given_back(metrics, stop(quiet))
        quiet.close()


def test_200_cancels_leave_no_growth(server: TritonServer, grpc_url: str, metrics: Metrics) -> None:
    def cancel_some(count: int) -> None:
        for number in range(count):
            client = open_stream(grpc_url, ENDLESS if number % 4 else LONG_PROMPT)
            time.sleep(0.01 * (number % 7))
            client.stop_stream(cancel_requests=True)
            client.close()
        assert wait_until(metrics.idle, 10.0)

    cancel_some(40)  # pools of threads and buffers reach their size
    before = Footprint.of(server)
    cancel_some(200)
    after = Footprint.of(server)
    assert after.threads <= before.threads + 2
    assert after.files <= before.files + 4
    assert after.shared <= before.shared
    assert after.memory_mb <= before.memory_mb * 1.05 + 16
