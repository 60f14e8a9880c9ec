"""Many requests at once: each gets what it gets alone, and they share the engine's steps."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

from omni_client import Answer, OmniClient

from tests.parity.prompts import PROMPTS, Prompt
from tests.server.asking import ask, certain_tokens, tokens_of
from tests.server.metrics import Metrics, wait_until

REQUESTS = 32


def mixed_requests() -> list[tuple[Prompt, dict[str, object]]]:
    """Prompts of every kind; a third of them sampled with a seed, lengths from 32 to 256 tokens."""
    chooser = random.Random(7)
    requests: list[tuple[Prompt, dict[str, object]]] = []
    for number in range(REQUESTS):
        sampling: dict[str, object] = {"max_tokens": chooser.randint(32, 256), "ignore_eos": True, "logprobs": 2}
        if number % 3 == 0:
            sampling |= {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "seed": 1000 + number}
        requests.append((PROMPTS[number * len(PROMPTS) // REQUESTS], sampling))
    return requests


def test_32_mixed_requests_at_random_moments_answer_as_they_do_alone(client: OmniClient, metrics: Metrics) -> None:
    requests = mixed_requests()
    alone = [ask(client, prompt, **sampling) for prompt, sampling in requests]
    assert wait_until(metrics.idle, 2.0)
    steps_before = metrics.steps_by_rows()
    delays = [random.Random(number).uniform(0.0, 0.5) for number in range(REQUESTS)]

    def later(number: int) -> Answer:
        time.sleep(delays[number])
        prompt, sampling = requests[number]
        return ask(client, prompt, **sampling)

    with ThreadPoolExecutor(REQUESTS) as pool:
        together = list(pool.map(later, range(REQUESTS)))

    compared = 0
    for number, ((prompt, _), before, now) in enumerate(zip(requests, alone, together, strict=True)):
        sampled = number % 3 == 0
        expected = tokens_of(before) if sampled else certain_tokens(before)
        compared += len(expected)
        assert tokens_of(now)[: len(expected)] == expected, prompt.name
        assert now.finish_reason == before.finish_reason == "length", prompt.name
    assert compared > 0.9 * sum(len(tokens_of(answer)) for answer in alone), "too many near-ties to prove anything"
    assert wait_until(metrics.idle, 2.0)
    time.sleep(0.2)  # metrics are published ten times a second
    shared = {rows: count - steps_before.get(rows, 0.0) for rows, count in metrics.steps_by_rows().items() if rows >= 4}
    assert sum(shared.values()) >= 20, f"steps with four sequences or more: {shared}"


def test_a_short_text_is_not_held_up_by_videos(client: OmniClient) -> None:
    video = next(prompt for prompt in PROMPTS if prompt.kind == "sound_film")
    text = next(prompt for prompt in PROMPTS if prompt.name == "hello")
    finished: list[str] = []

    def run(prompt: Prompt, name: str, tokens: int) -> None:
        ask(client, prompt, max_tokens=tokens, ignore_eos=True)
        finished.append(name)

    with ThreadPoolExecutor(9) as pool:
        for number in range(8):
            pool.submit(run, video, f"video {number}", 64)
        time.sleep(0.05)
        pool.submit(run, text, "text", 4)
    assert "text" in finished[:4], finished
