"""Requests for the tests of this folder, and what their answers have to be."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from omni_client import Answer, GenerateRequest, OmniClient, Sampling

from tests.parity.prompts import MAX_TOKENS, Prompt, files

GREEDY = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)


def request_of(prompt: Prompt, sampling: Sampling = GREEDY) -> GenerateRequest:
    """A prompt of the parity tests as a client sends it."""
    messages = prompt.messages_json()
    return GenerateRequest(
        text=prompt.text,
        messages=None if messages is None else json.loads(messages),
        image=files(prompt.images),
        audio=files(prompt.sounds),
        video=files(prompt.films),
        tools=prompt.tools,
        use_audio_in_video=prompt.use_audio_in_video,
        sampling=sampling,
    )


def tokens_of(answer: Answer) -> list[tuple[str, tuple[int, ...] | None]]:
    """The answer's tokens, as its log-probabilities spell them."""
    assert answer.logprobs is not None
    return [(entry["token"], tuple(entry["bytes"] or ())) for entry in answer.logprobs["content"]]


def ask(client: OmniClient, prompt: Prompt, **sampling: Any) -> Answer:
    """Send a prompt and collect the streamed answer."""
    changed = dataclasses.replace(GREEDY, **sampling)
    with client.stream(request_of(prompt, changed)) as pieces:
        return Answer.from_pieces(pieces)


NEAR_TIE = 1e-3  # of log-probabilities; some ten times what rounding does to them


def certain_tokens(answer: Answer) -> list[tuple[str, tuple[int, ...] | None]]:
    """The tokens of a greedy answer, asked for with two alternatives, before the first near-tie.

    What else is in the batch changes results by rounding, and with them a choice between equals.
    """
    assert answer.logprobs is not None
    entries = answer.logprobs["content"]
    for step, entry in enumerate(entries):
        best, second = entry["top_logprobs"][:2]
        if best["logprob"] - second["logprob"] < NEAR_TIE:
            return tokens_of(answer)[:step]
    return tokens_of(answer)
