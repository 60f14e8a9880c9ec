"""The engine on ONNX Runtime, run on tiny real graphs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python_backends.engine.base import FinishReason, GenerationRequest, TokenEvent
from python_backends.engine.onnx_engine import OnnxEngine, OnnxEngineConfig
from python_backends.engine_folder import EngineFolder
from python_backends.errors import InvalidRequest, Overloaded
from tests.unit.tiny_thinker import (
    IMAGE,
    WAIT,
    Listener,
    build_thinker,
    greedy_reference,
    make_request,
    media_request,
    text_request,
    thinker_config,
    thinker_tensors,
)

CONFIG = thinker_config()
TENSORS = thinker_tensors(CONFIG)
VARIANTS: dict[str, dict[str, Any]] = {
    "experts": {},
    "dense and sparse layers": {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    "router weights as they are": {"norm_topk_prob": False},
    "tied embeddings": {"tie_word_embeddings": True},
    "a deepstack tap at every layer": {"num_hidden_layers": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> EngineFolder:
    return build_thinker(tmp_path_factory.mktemp("thinker"), CONFIG, TENSORS)


@contextmanager
def running(folder: EngineFolder, **settings: Any) -> Iterator[OnnxEngine]:
    """An engine that must have everything back at the end."""
    defaults: dict[str, Any] = {"max_model_len": 256, "max_slots": 4, "kv_blocks": 64, "block_tokens": 8, "threads": 1}
    engine = OnnxEngine(folder, OnnxEngineConfig(**(defaults | {"prefill_chunk": 16} | settings)))
    try:
        yield engine
        engine.check()
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.slots_used, stats.blocks_used) == (0, 0, 0, 0)
    finally:
        engine.close()


def ask(engine: OnnxEngine, request: GenerationRequest) -> Listener:
    listener = Listener()
    engine.submit(request, listener)
    return listener


def mixed_requests(count: int) -> list[GenerationRequest]:
    """Short and long, with and without media, greedy and sampled."""
    return [
        media_request(f"media {i}", i, max_tokens=5 + i % 4)
        if i % 3 == 0
        else text_request(f"text {i}", 1 + 13 * i % 50, i, 4 + i % 9, temperature=0.9 * (i % 2), top_p=0.9, seed=i)
        for i in range(count)
    ]


class Gate(Listener):
    """A sink that holds the engine at its first event until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, event: TokenEvent) -> None:
        super().__call__(event)
        self.reached.set()
        assert self.opened.wait(WAIT)


@pytest.mark.parametrize("name", VARIANTS)
def test_greedy_tokens_and_logprobs_are_those_of_the_written_out_model(name: str, tmp_path: Path) -> None:
    config = thinker_config(**VARIANTS[name])
    tensors = thinker_tensors(config)
    with running(build_thinker(tmp_path, config, tensors)) as engine:
        for request in (text_request("text", 21, 1, logprobs=3), media_request("media", 2, logprobs=3)):
            tokens, logits = greedy_reference(config, tensors, request)
            listener = ask(engine, request)
            assert listener.tokens() == tokens
            logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            for event, expected in zip(listener.events, logprobs, strict=True):
                (found,) = event.logprobs
                best = np.argsort(-expected)[:3]
                assert [token for token, _ in found.top] == best.tolist()
                np.testing.assert_allclose([value for _, value in found.top], expected[best], atol=2e-5)
                assert found.logprob == found.top[0][1]


def test_a_request_gives_the_same_tokens_alone_and_among_others(folder: EngineFolder) -> None:
    requests = mixed_requests(12)
    with running(folder) as engine:
        alone = [ask(engine, request).tokens() for request in requests]
        together = [ask(engine, request) for request in requests]
        assert [listener.tokens() for listener in together] == alone
        assert max(engine.stats().steps_by_rows) == 4


def test_a_prompt_read_in_pieces_gives_the_tokens_of_one_read_at_once(folder: EngineFolder) -> None:
    answers = []
    for chunk in (64, 7, 1):
        with running(folder, prefill_chunk=chunk, max_step_tokens=64) as engine:
            answers.append(
                [ask(engine, request).tokens() for request in (media_request("a", 3), text_request("b", 40, 4))]
            )
    assert answers[0] == answers[1] == answers[2]


def test_a_preempted_request_gives_the_tokens_it_gives_alone(folder: EngineFolder) -> None:
    requests = [media_request(f"media {i}", i, max_tokens=30) for i in range(2)]
    requests += [text_request(f"text {i}", 20, i, 30, temperature=1.0 * i, seed=7) for i in range(2)]
    with running(folder) as engine:
        alone = [ask(engine, request).tokens() for request in requests]
    with running(folder, kv_blocks=17, block_tokens=4) as engine:
        together = [ask(engine, request) for request in requests]
        assert [listener.tokens() for listener in together] == alone
        assert engine.stats().preempted > 0


def test_a_seeded_sample_does_not_depend_on_its_neighbours(folder: EngineFolder) -> None:
    sampled = text_request("sampled", 9, 1, 20, temperature=1.2, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=11)
    with running(folder) as engine:
        alone = ask(engine, sampled).tokens()
        others = [ask(engine, request) for request in mixed_requests(5)]
        assert ask(engine, sampled).tokens() == alone
        assert ask(engine, replace(sampled, sampling=replace(sampled.sampling, seed=12))).tokens() != alone
        for other in others:
            other.last()


def test_a_cancelled_request_gives_back_its_slot_and_blocks_in_every_state(folder: EngineFolder) -> None:
    gate = Gate()
    with running(folder, max_slots=3, prefill_chunk=2, max_step_tokens=8) as engine:
        engine.submit(text_request("gate", 1, 0, 100), gate)
        assert gate.reached.wait(WAIT)
        decoding, prefilling, waiting = Gate(), Listener(), Listener()
        engine.submit(text_request("decoding", 1, 1, 100), decoding)
        engine.submit(text_request("prefilling", 100, 2), prefilling)
        engine.submit(text_request("waiting", 3, 3), waiting)
        gate.opened.set()
        assert decoding.reached.wait(WAIT)
        stats = engine.stats()
        assert (stats.running, stats.waiting) == (3, 1)
        assert not prefilling.events
        for key in ("waiting", "prefilling", "decoding", "gate"):
            assert engine.cancel(key)
            assert not engine.cancel(key)
        decoding.opened.set()
        for listener in (gate, decoding, prefilling, waiting):
            assert listener.last().finish_reason is FinishReason.CANCELLED
        assert len(decoding.tokens()) == 1
        assert engine.stats().cancelled == 4
        assert ask(engine, text_request("next", 5, 4)).last().finish_reason is FinishReason.LENGTH


def test_a_key_can_be_used_again_at_once_after_a_cancel(folder: EngineFolder) -> None:
    request = text_request("key", 5, 1)
    with running(folder) as engine:
        expected = ask(engine, request).tokens()
        gate = Gate()
        engine.submit(replace(request, sampling=replace(request.sampling, max_tokens=100)), gate)
        assert gate.reached.wait(WAIT)
        engine.cancel("key")
        again = ask(engine, request)
        gate.opened.set()
        assert gate.last().finish_reason is FinishReason.CANCELLED
        assert again.tokens() == expected


def test_an_end_of_turn_token_ends_the_answer_and_is_not_part_of_it(folder: EngineFolder) -> None:
    request = text_request("key", 12, 5, 8, ignore_eos=False)
    with running(folder) as engine:
        tokens = ask(engine, request).tokens()
    end = tokens[3]
    before = tokens[: tokens.index(end)]
    stopping = replace(folder, config=replace(folder.config, tokens=replace(folder.config.tokens, eos=(1, end))))
    with running(stopping) as engine:
        listener = ask(engine, request)
        assert listener.tokens() == before
        assert listener.last().finish_reason is FinishReason.STOP
        ignoring = replace(request, sampling=replace(request.sampling, ignore_eos=True))
        assert ask(engine, ignoring).tokens() == tokens


def test_the_first_token_and_the_last_event_tell_where_the_time_went(folder: EngineFolder) -> None:
    with running(folder) as engine:
        listener = ask(engine, text_request("key", 40, 5))
        times = listener.last().times
        assert times is not None
        assert min(times.queue, times.prefill, times.decode) > 0
        first, *between = listener.events[:-1]
        assert first.times is not None and first.times.prefill > 0
        assert all(event.times is None for event in between)
        stats = engine.stats()
        assert (stats.prefill_tokens, stats.decode_tokens, stats.finished) == (40, 7, 1)


def test_a_sink_that_fails_ends_its_own_sequence_only(folder: EngineFolder, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: TokenEvent) -> None:
        raise RuntimeError("nobody there")

    with running(folder) as engine:
        engine.submit(text_request("broken", 5, 1, 200), broken)
        assert ask(engine, text_request("other", 5, 2)).last().finish_reason is FinishReason.LENGTH
        assert not engine.cancel("broken")
        assert engine.stats().cancelled == 1
    assert "the receiver of broken failed" in caplog.text


def test_a_failed_step_ends_its_sequences_and_the_next_request_is_served(
    folder: EngineFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(folder) as engine:
        request = text_request("key", 5, 1)
        expected = ask(engine, request).tokens()

        def fail(_: object) -> None:
            raise MemoryError("no room for the step")

        with monkeypatch.context() as patch:
            patch.setattr(engine._graph, "run", fail)
            event = ask(engine, request).last()
        assert event.finish_reason is FinishReason.ERROR
        assert isinstance(event.error, MemoryError)
        assert ask(engine, request).tokens() == expected
    assert "a step failed" in caplog.text


def test_embeddings_that_are_not_numbers_fail_their_own_request_only(folder: EngineFolder) -> None:
    request = media_request("key", 1, max_tokens=20)
    assert request.vision_embeddings is not None
    with running(folder) as engine:
        expected = ask(engine, request).tokens()
        other = ask(engine, replace(request, key="other"))
        broken = np.full_like(request.vision_embeddings, np.nan)
        event = ask(engine, replace(request, key="broken", vision_embeddings=broken)).last()
        assert event.finish_reason is FinishReason.ERROR
        assert "finite" in str(event.error)
        assert other.tokens() == expected
        assert ask(engine, request).tokens() == expected


def test_media_embeddings_are_freed_once_the_prompt_is_read(folder: EngineFolder) -> None:
    request = media_request("key", 1, max_tokens=3)
    assert request.vision_embeddings is not None
    embeddings = weakref.ref(request.vision_embeddings)
    held = []
    ended = threading.Event()

    def sink(event: TokenEvent) -> None:
        held.append(embeddings() is not None)
        if event.finish_reason:
            ended.set()

    with running(folder) as engine:
        engine.submit(request, sink)
        del request
        assert ended.wait(WAIT)
    assert not held[-1]


def test_requests_that_can_never_run_are_refused_and_say_why(folder: EngineFolder) -> None:
    plain, media = text_request("key", 10, 1), media_request("key", 1)
    assert media.vision_embeddings is not None
    bad: list[tuple[GenerationRequest, str]] = [
        (text_request("key", 250, 1, 8), r"max_tokens: prompt and max_tokens need 258 tokens; allowed: 256 together"),
        (make_request("key", np.array([], int)), r"input_ids: shape \[0\]"),
        (make_request("key", np.array([5, 288])), r"input_ids: ids 5 to 288; allowed: 0 to 287"),
        (make_request("key", np.array([-1])), r"input_ids: ids -1 to -1"),
        (replace(plain, position_ids=plain.position_ids[:, 1:]), r"position_ids: shape \[3, 9\]; allowed: \[3, 10\]"),
        (replace(plain, sampling=replace(plain.sampling, max_tokens=0)), r"max_tokens: 0; allowed: at least 1"),
        (replace(media, vision_embeddings=None), r"vision_embeddings: shape \[0, 64\]; allowed: \[15, 64\]"),
        (replace(media, vision_embeddings=media.vision_embeddings[1:]), r"vision_embeddings: shape \[14, 64\]"),
        (replace(media, vision_embeddings=media.vision_embeddings[:, :32]), r"vision_embeddings: shape \[15, 32\]"),
        (replace(plain, audio_embeddings=np.ones((2, 32), np.float32)), r"audio_embeddings: shape \[2, 32\]"),
    ]
    with running(folder) as engine:
        for request, message in bad:
            with pytest.raises(InvalidRequest, match=message):
                engine.submit(request, Listener())
        listener = ask(engine, plain)
        assert listener.last().finish_reason is FinishReason.LENGTH
    with running(folder, kv_blocks=2) as engine, pytest.raises(InvalidRequest, match="allowed: 16 together"):
        engine.submit(plain, Listener())


def test_a_full_queue_refuses_and_a_running_key_is_not_taken_twice(folder: EngineFolder) -> None:
    gate = Gate()
    with running(folder, max_slots=1, max_waiting=1) as engine:
        engine.submit(text_request("gate", 1, 0, 3), gate)
        assert gate.reached.wait(WAIT)
        waiting = ask(engine, text_request("waiting", 3, 1))
        with pytest.raises(Overloaded, match="1 requests are waiting; allowed: 1"):
            engine.submit(text_request("too many", 3, 2), Listener())
        with pytest.raises(InvalidRequest, match="waiting is running already"):
            engine.submit(text_request("waiting", 3, 1), Listener())
        gate.opened.set()
        assert waiting.last().finish_reason is FinishReason.LENGTH


def test_threads_may_submit_cancel_and_ask_for_statistics_at_once(folder: EngineFolder) -> None:
    requests = [replace(request, key=f"{i}") for i, request in enumerate(mixed_requests(24))]
    with running(folder, max_slots=3, kv_blocks=20) as engine:
        alone = [ask(engine, request).tokens() for request in requests]
        listeners = [Listener() for _ in requests]

        def client(start: int) -> None:
            for i in range(start, len(requests), 4):
                engine.submit(requests[i], listeners[i])
                engine.stats()
                if i % 5 == 0:
                    engine.cancel(requests[i].key)

        clients = [threading.Thread(target=client, args=(start,)) for start in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        for i, (listener, tokens) in enumerate(zip(listeners, alone, strict=True)):
            heard = listener.tokens()
            if listener.last().finish_reason is FinishReason.CANCELLED:
                assert i % 5 == 0
                assert heard == tokens[: len(heard)]
            else:
                assert heard == tokens


def test_closing_cancels_what_runs_and_refuses_what_comes(folder: EngineFolder) -> None:
    with running(folder, max_slots=1) as engine:
        gate, waiting = Gate(), Listener()
        engine.submit(text_request("gate", 1, 0, 200), gate)
        assert gate.reached.wait(WAIT)
        engine.submit(text_request("waiting", 3, 1), waiting)
        closer = threading.Thread(target=engine.close)
        closer.start()
        gate.opened.set()
        closer.join(WAIT)
        assert gate.last().finish_reason is FinishReason.CANCELLED
        assert waiting.last().finish_reason is FinishReason.CANCELLED
        with pytest.raises(Overloaded, match="shutting down"):
            engine.submit(text_request("late", 3, 1), Listener())


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"max_slots": 0}, {"prefill_chunk": 0}, {"max_step_tokens": 3, "max_slots": 4}, {"threads": -1}):
        with pytest.raises(ValueError, match="allowed: at least"):
            OnnxEngineConfig(max_model_len=8, **wrong)


def test_placeholders_without_media_are_refused_by_kind(folder: EngineFolder) -> None:
    with running(folder) as engine, pytest.raises(InvalidRequest, match="a row for each placeholder"):
        engine.submit(make_request("key", np.array([1, IMAGE])), Listener())
