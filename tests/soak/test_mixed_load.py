"""Minutes of everything at once: answers, cancels and bad input; nothing is lost and nothing grows.

`SOAK_SECONDS` sets the length (default 600).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from omni_client import InvalidRequestError, OmniClient, Sampling

from deploy.local.server import TritonServer
from tests.parity.prompts import PROMPTS, Prompt
from tests.server.asking import ask, certain_tokens, request_of, tokens_of
from tests.server.footprint import Footprint
from tests.server.metrics import Metrics, wait_until

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
CLIENTS = 8
GREEDY: dict[str, Any] = {"max_tokens": 48, "ignore_eos": True, "logprobs": 2}
Tokens = list[tuple[str, tuple[int, ...] | None]]


class Client(threading.Thread):
    """Asks, cancels and errs at random until the time is up; what went wrong is in `faults`."""

    def __init__(self, url: str, seed: int, expected: dict[str, Tokens], until: float) -> None:
        super().__init__(daemon=True)
        self._url, self._expected, self._until = url, expected, until
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        with OmniClient(self._url) as client:
            while time.monotonic() < self._until:
                act = self._random.choices((self.answer, self.cancel, self.err), (6, 3, 1))[0]
                prompt = self._random.choice(PROMPTS)
                try:
                    act(client, prompt)
                except Exception as error:  # the thread must go on, and the test must know
                    self.faults.append(f"{act.__name__} {prompt.name}: {type(error).__name__}: {error}")
                self.done[act.__name__] += 1

    def answer(self, client: OmniClient, prompt: Prompt) -> None:
        expected = self._expected[prompt.name]
        tokens = tokens_of(ask(client, prompt, **GREEDY))
        if tokens[: len(expected)] != expected:
            self.faults.append(f"{prompt.name}: another answer than alone")

    def cancel(self, client: OmniClient, prompt: Prompt) -> None:
        sampling = Sampling(max_tokens=5000, ignore_eos=True)
        with client.stream(request_of(prompt, sampling)) as stream:
            for _ in islice(stream, self._random.randint(0, 5)):
                pass

    def err(self, client: OmniClient, prompt: Prompt) -> None:
        try:
            client.generate(request_of(prompt, Sampling(temperature=-1.0)))
        except InvalidRequestError:
            return
        self.faults.append(f"{prompt.name}: a negative temperature was served")


@pytest.mark.timeout(SECONDS + 300)
def test_minutes_of_mixed_load_lose_nothing_and_leave_nothing(
    server: TritonServer, grpc_url: str, metrics: Metrics
) -> None:
    with OmniClient(grpc_url) as client:
        expected = {prompt.name: certain_tokens(ask(client, prompt, **GREEDY)) for prompt in PROMPTS}
    warm = time.monotonic() + SECONDS / 5
    run_clients(grpc_url, expected, warm, seed=1)
    assert wait_until(metrics.idle, 5.0)
    before = Footprint.of(server)
    done = run_clients(grpc_url, expected, time.monotonic() + SECONDS * 4 / 5, seed=2)
    assert wait_until(metrics.idle, 5.0)
    after = Footprint.of(server)
    print(f"{dict(done)} requests; before {before}; after {after}")
    assert after.threads <= before.threads + 2
    assert after.files <= before.files + 4
    assert after.shared <= before.shared
    assert after.memory_mb <= before.memory_mb * 1.05 + 32


def run_clients(url: str, expected: dict[str, Tokens], until: float, seed: int) -> Counter[str]:
    clients = [Client(url, seed * 1000 + number, expected, until) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(until - time.monotonic() + 120)
    assert not any(client.is_alive() for client in clients), "a client hangs"
    faults = [fault for client in clients for fault in client.faults]
    assert not faults, f"{len(faults)} faults, the first: {faults[:5]}"
    return sum((client.done for client in clients), Counter())
