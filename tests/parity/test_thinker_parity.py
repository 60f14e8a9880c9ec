"""The engine's greedy answers are transformers', and they depend on everything that is in a prompt.

All prompts run at the same time, so the answers also show that a sequence does not feel what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import Queue

import numpy as np
import pytest

from python_backends.engine.base import FinishReason, GenerationRequest, TokenEvent, TokenLogprob
from python_backends.engine.onnx_engine import OnnxEngine, OnnxEngineConfig
from tests.parity.conftest import THREADS, Checkpoint
from tests.parity.prompts import PROMPTS, Prompt

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)
PICTURE_PROMPTS = [prompt for prompt in PROMPTS if prompt.kind in ("image", "images")]


@dataclass(frozen=True)
class Answered:
    """What the engine answered: the tokens without the end token, what it thought of each, and why it ended."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason


Answers = dict[str, Answered]
Change = Callable[[GenerationRequest], GenerationRequest]


def answers_of(checkpoint: Checkpoint, prompts: list[Prompt], change: Change = lambda request: request) -> Answers:
    """Run prompts together in one engine; `change` makes another request of each."""
    engine = OnnxEngine(
        checkpoint.folder, OnnxEngineConfig(max_model_len=4096, max_slots=8, kv_blocks=1024, threads=THREADS)
    )
    events: Queue[TokenEvent] = Queue()
    try:
        for prompt in prompts:
            engine.submit(change(generation_request(checkpoint, prompt)), events.put)
        made: dict[str, list[TokenEvent]] = {prompt.name: [] for prompt in prompts}
        running = len(prompts)
        while running:
            event = events.get(timeout=120)
            made[event.key].append(event)
            running -= event.finish_reason is not None
    finally:
        engine.close()
    return {name: _joined(parts) for name, parts in made.items()}


def _joined(events: list[TokenEvent]) -> Answered:
    reason = events[-1].finish_reason
    assert reason is not None
    tokens = tuple(token for event in events for token in event.token_ids)
    return Answered(tokens, tuple(logprob for event in events for logprob in event.logprobs), reason)


def generation_request(checkpoint: Checkpoint, prompt: Prompt) -> GenerationRequest:
    prepared = checkpoint.prepare(prompt)
    vision, audio = checkpoint.embeddings(prompt)
    return GenerationRequest(
        key=prompt.name,
        input_ids=prepared.input_ids,
        position_ids=prepared.position_ids,
        rope_delta=prepared.rope_delta,
        sampling=prepared.sampling,
        cost=prepared.cost,
        traffic_class=prepared.traffic_class,
        vision_embeddings=vision,
        audio_embeddings=audio,
    )


@pytest.fixture(scope="module")
def answers(checkpoint: Checkpoint) -> Iterator[Answers]:
    yield answers_of(checkpoint, list(PROMPTS))


def logprob_errors(checkpoint: Checkpoint, name: str, answered: Answered) -> list[float]:
    """Largest error among the likeliest tokens at each step, as far as the answers are the same."""
    ids, logprobs = checkpoint.stored(f"prompt/{name}/logprob_ids"), checkpoint.stored(f"prompt/{name}/logprobs")
    errors = []
    for step, (found, token) in enumerate(
        zip(answered.logprobs, checkpoint.reference.answers[name].tokens, strict=False)
    ):
        known = dict(found.top)
        pairs = zip(ids[step].tolist(), logprobs[step].tolist(), strict=True)
        errors.append(max(abs(known[other] - logprob) for other, logprob in pairs if other in known))
        if found.token_id != token:
            break
    return errors


def test_log_probabilities_of_the_likeliest_tokens_are_within_rounding(
    checkpoint: Checkpoint, answers: Answers
) -> None:
    reference = checkpoint.reference
    for prompt in PROMPTS:
        errors = logprob_errors(checkpoint, prompt.name, answers[prompt.name])
        if not reference.may_route_otherwise(prompt.name):
            assert max(errors, default=0.0) <= reference.noise, prompt.name


def test_nearly_all_steps_of_the_references_stand_clear_of_rounding(checkpoint: Checkpoint) -> None:
    reference = checkpoint.reference
    steps = [margin for answer in reference.answers.values() for margin in answer.margins]
    assert np.mean(np.array(steps) > reference.noise) >= 0.95
    compared = sum(reference.certain_steps(name) for name in reference.answers)
    assert compared >= 0.95 * len(steps)


@every_prompt
def test_greedy_tokens_are_those_of_transformers(checkpoint: Checkpoint, answers: Answers, prompt: Prompt) -> None:
    expected, answered = checkpoint.reference.answers[prompt.name], answers[prompt.name]
    certain = checkpoint.reference.certain_steps(prompt.name)
    assert answered.tokens[:certain] == expected.tokens[:certain]
    if certain == len(expected.margins):
        assert answered.tokens == expected.tokens
        assert answered.finish_reason.value == expected.finish_reason


def changed_share(checkpoint: Checkpoint, answers: Answers, change: Change) -> float:
    """Share of the prompts with pictures whose answer is another one after a change."""
    others = answers_of(checkpoint, PICTURE_PROMPTS, change)
    return float(np.mean([answers[name].tokens != other.tokens for name, other in others.items()]))


def without_deepstack(request: GenerationRequest, hidden: int, tap: int) -> GenerationRequest:
    assert request.vision_embeddings is not None
    rows = request.vision_embeddings.copy()
    rows[:, hidden * (1 + tap) : hidden * (2 + tap)] = 0
    return replace(request, vision_embeddings=rows)


def test_answers_change_without_any_one_deepstack_feature(checkpoint: Checkpoint, answers: Answers) -> None:
    hidden = checkpoint.folder.config.text.hidden_size
    for tap in range(len(checkpoint.folder.config.vision.deepstack_visual_indexes)):
        share = changed_share(checkpoint, answers, lambda request, tap=tap: without_deepstack(request, hidden, tap))
        assert share >= 0.9


def test_answers_change_with_positions_as_in_a_text(checkpoint: Checkpoint, answers: Answers) -> None:
    def as_text(request: GenerationRequest) -> GenerationRequest:
        positions = np.broadcast_to(np.arange(len(request.input_ids), dtype=np.int32), request.position_ids.shape)
        return replace(request, position_ids=np.ascontiguousarray(positions), rope_delta=0)

    assert changed_share(checkpoint, answers, as_text) >= 0.9


def test_answers_change_when_generated_tokens_stand_one_position_later(
    checkpoint: Checkpoint, answers: Answers
) -> None:
    share = changed_share(checkpoint, answers, lambda request: replace(request, rope_delta=request.rope_delta + 1))
    assert share >= 0.8


def test_different_media_get_different_answers_to_the_same_question(answers: Answers) -> None:
    for question in {prompt.text for prompt in PROMPTS if prompt.text and prompt.kind != "text"}:
        asked = [prompt for prompt in PROMPTS if prompt.text == question]
        assert len({answers[prompt.name].tokens for prompt in asked}) >= len(asked) - 1
