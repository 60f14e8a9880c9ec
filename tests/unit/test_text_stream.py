"""What a client sees of an answer: pieces, finish reason, usage and log-probabilities."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.engine.base import TokenLogprob
from python_backends.errors import Overloaded
from python_backends.messages import ResponseSpec, ThinkerUsage
from python_backends.postprocess.stream import ChunkError, Piece, ThinkerChunk
from python_backends.postprocess.table import Outcome, StreamTable
from tests.unit.byte_tokenizer import TOKENIZER, VOCABULARY, id_of, ids_of, logprobs_of, spec

THINKER_USAGE = ThinkerUsage(completion_tokens=77, cached_tokens=4, times_ms={"decode": 9.0})
ANY_TOKENS = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40)


def chunks_of(
    parts: Sequence[Sequence[int]], response: ResponseSpec, reason: str = "stop", key: str = "k"
) -> list[ThinkerChunk]:
    """The thinker's chunks, the last of which also ends the answer."""
    last = max(len(parts) - 1, 0)
    return [
        ThinkerChunk(
            key=key,
            index=index,
            spec=response if index == 0 else None,
            token_ids=tuple(part),
            logprobs=logprobs_of(tuple(part)) if response.logprobs is not None else (),
            finish_reason=reason if index == last else None,
            usage=THINKER_USAGE if index == last else None,
        )
        for index, part in enumerate(parts or [()])
    ]


def run(chunks: Sequence[ThinkerChunk], table: StreamTable | None = None) -> list[Piece]:
    table = table or StreamTable(VOCABULARY)
    return [piece for chunk in chunks for piece in table.push(chunk).pieces]


def split(token_ids: Sequence[int], borders: Sequence[int]) -> list[Sequence[int]]:
    cuts = [0, *sorted(border % (len(token_ids) + 1) for border in borders), len(token_ids)]
    return [token_ids[a:b] for a, b in pairwise(cuts)]


def report(piece: Piece) -> list[dict[str, Any]]:
    return [] if piece.logprobs_json is None else json.loads(piece.logprobs_json)["content"]


@given(ANY_TOKENS, st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_the_pieces_joined_are_the_whole_text_however_the_tokens_are_cut(
    token_ids: list[int], borders: list[int], streaming: bool
) -> None:
    pieces = run(chunks_of(split(token_ids, borders), spec(streaming=streaming)))
    assert "".join(piece.text for piece in pieces) == TOKENIZER.decode(token_ids, skip_special_tokens=True)
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["stop"]
    assert all(piece.text for piece in pieces[:-1])
    assert streaming or len(pieces) == 1


@given(ANY_TOKENS, st.lists(st.integers(0, 100), max_size=8), st.permutations(range(9)))
def test_chunks_that_overtake_each_other_are_put_in_order(
    token_ids: list[int], borders: list[int], order: list[int]
) -> None:
    chunks = chunks_of(split(token_ids, borders), spec())
    table = StreamTable(VOCABULARY)
    pieces = run([chunks[i] for i in order if i < len(chunks)], table)
    assert "".join(piece.text for piece in pieces) == TOKENIZER.decode(token_ids, skip_special_tokens=True)
    assert pieces[-1].finish_reason == "stop"
    assert len(table) == 0


@given(
    st.text("ab。", max_size=30), st.lists(st.text("ab。", min_size=1, max_size=3), min_size=1, max_size=3), st.data()
)
def test_the_answer_with_stop_strings_does_not_depend_on_how_the_tokens_are_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    token_ids = ids_of(text)
    response = spec(stop=tuple(stops), logprobs=1)
    whole = run(chunks_of([token_ids], response))
    cut = run(chunks_of(split(token_ids, data.draw(st.lists(st.integers(0, 50), max_size=6))), response))
    assert "".join(piece.text for piece in cut) == whole[0].text
    assert [entry for piece in cut for entry in report(piece)] == report(whole[0])
    assert cut[-1].finish_reason == whole[0].finish_reason
    assert not any(stop in whole[0].text for stop in stops)


def test_an_empty_answer_still_has_a_last_piece() -> None:
    (piece,) = run(chunks_of([[id_of("<|im_end|>")]], spec()))
    assert (piece.text, piece.finish_reason) == ("", "stop")
    assert piece.usage is not None
    assert piece.usage.completion_tokens == 77


def test_a_heartbeat_sends_nothing() -> None:
    table = StreamTable(VOCABULARY)
    assert table.push(ThinkerChunk("k", 0, spec())) == Outcome()
    assert len(table) == 1


def test_length_is_reported_as_the_thinker_says_it() -> None:
    assert run(chunks_of([ids_of("hello")], spec(), reason="length"))[-1].finish_reason == "length"


def test_a_stop_string_over_two_chunks_ends_the_answer_and_stops_the_thinker() -> None:
    table = StreamTable(VOCABULARY)
    one = ThinkerChunk("k", 0, spec(stop=("lo w",)), ids_of("say hello"), usage=ThinkerUsage(2, 3, {"queue": 1.0}))
    two = ThinkerChunk("k", 1, None, ids_of(" world and more"))
    assert table.push(one).pieces == (Piece("say hel"),)
    outcome = table.push(two)
    (piece,) = outcome.pieces
    assert outcome.stop_thinker
    assert (piece.text, piece.finish_reason) == ("", "stop")
    assert piece.usage is not None
    assert piece.usage.completion_tokens == len(ids_of("say hello")) + 1
    assert (piece.usage.cached_tokens, piece.usage.times_ms) == (3, {"preprocess": 1.5, "queue": 1.0})
    assert len(table) == 0


def test_chunks_after_a_stop_string_are_swallowed_until_the_thinker_is_done() -> None:
    table = StreamTable(VOCABULARY)
    table.push(ThinkerChunk("k", 0, spec(stop=("STOP",)), ids_of("STOP")))
    assert table.push(ThinkerChunk("k", 1, None, ids_of("more"))) == Outcome()
    assert table.push(ThinkerChunk("k", 2, None, finish_reason="cancelled")) == Outcome()
    assert not table._over


def test_a_stop_string_in_the_thinkers_last_chunk_needs_no_stop() -> None:
    table = StreamTable(VOCABULARY)
    (chunk,) = chunks_of([ids_of("helloSTOP!")], spec(stop=("STOP",)), reason="length")
    outcome = table.push(chunk)
    assert not outcome.stop_thinker
    assert (outcome.pieces[0].text, outcome.pieces[0].finish_reason) == ("hello", "stop")
    assert not table._over


def test_a_cancelled_request_is_forgotten_and_its_late_chunks_are_swallowed() -> None:
    table = StreamTable(VOCABULARY)
    table.push(ThinkerChunk("k", 0, spec(), ids_of("hello")))
    table.drop("k")
    assert len(table) == 0
    assert table.push(ThinkerChunk("k", 1, None, ids_of("more"))) == Outcome()
    assert len(table) == 0


def test_an_answer_that_the_thinker_cancelled_ends_without_a_piece() -> None:
    table = StreamTable(VOCABULARY)
    table.push(ThinkerChunk("k", 0, spec()))
    assert table.push(ThinkerChunk("k", 1, finish_reason="cancelled")) == Outcome()
    assert len(table) == 0


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "tools", "reason", "expected"),
    [
        (CALL, True, "stop", "tool_calls"),
        (f"Let me see. {CALL}{CALL}", True, "stop", "tool_calls"),
        (f"<tool_call>oops</tool_call>{CALL}", True, "stop", "tool_calls"),
        (CALL, False, "stop", "stop"),
        (CALL, True, "length", "length"),
        (CALL[:-1], True, "stop", "stop"),
        ('{"name": "weather", "arguments": {}}</tool_call>', True, "stop", "stop"),
        ('<tool_call>{"name": 1, "arguments": {}}</tool_call>', True, "stop", "stop"),
        ("<tool_call>" + "[" * 5000 + "</tool_call>", True, "stop", "stop"),
        ("plain", True, "stop", "stop"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_complete_tool_call_is_the_finish_reason(
    text: str, tools: bool, reason: str, expected: str, streaming: bool
) -> None:
    parts = [[token_id] for token_id in ids_of(text)]
    pieces = run(chunks_of(parts, spec(streaming=streaming, tools=tools), reason=reason))
    assert pieces[-1].finish_reason == expected
    assert "".join(piece.text for piece in pieces) == text


def test_log_probabilities_come_with_the_piece_that_carries_their_text() -> None:
    response = spec(stop=("STOP",), logprobs=1)
    parts = [ids_of("hello"), ids_of("ST"), ids_of("世")[:1], ids_of("é")]
    pieces = run(chunks_of(parts, response))
    assert [piece.text for piece in pieces] == ["hello", "ST世", "é"]
    assert [[entry["token"] for entry in report(piece)] for piece in pieces] == [["hello"], ["ST", "世"], ["é"]]


def test_a_token_within_a_character_is_reported_with_the_whole_character() -> None:
    parts = [[BYTE_IDS[byte]] for byte in "🦜".encode()]
    first, last = run(chunks_of([*parts, ids_of("!")], spec(logprobs=0)))
    assert first.text == "🦜"
    assert [entry["bytes"] for entry in report(first)] == [[byte] for byte in "🦜".encode()]
    assert [entry["token"] for entry in report(last)] == ["!"]


BYTE_IDS = {
    spelling[0]: i for i in range(TOKENIZER.get_vocab_size()) if len(spelling := VOCABULARY.spelling(i) or b"") == 1
}


def test_tokens_removed_by_a_stop_string_are_not_reported() -> None:
    (piece,) = run(chunks_of([[*ids_of("hello"), *ids_of("STOP"), *ids_of("hello")]], spec(stop=("OP",), logprobs=1)))
    assert piece.text == "helloST"
    assert [entry["token"] for entry in report(piece)] == ["hello", "STOP"]
    (piece,) = run(chunks_of([[*ids_of("hello"), *ids_of("STOP"), *ids_of("hello")]], spec(stop=("STOP",), logprobs=1)))
    assert [entry["token"] for entry in report(piece)] == ["hello"]


def test_log_probabilities_have_openais_form_and_are_always_finite() -> None:
    token_id = ids_of("é")[0]
    logprob = TokenLogprob(token_id, -math.inf, ((token_id, math.nan), (10**6, -1.0), (0, -2.0)))
    chunk = ThinkerChunk("k", 0, spec(logprobs=2), (token_id,), (logprob,), "stop", THINKER_USAGE)
    (piece,) = run([chunk])
    assert report(piece) == [
        {
            "token": "é",
            "logprob": -9999.0,
            "bytes": [0xC3, 0xA9],
            "top_logprobs": [
                {"token": "é", "logprob": -9999.0, "bytes": [0xC3, 0xA9]},
                {"token": "", "logprob": -1.0, "bytes": None},
            ],
        }
    ]


def test_special_tokens_are_reported_though_they_have_no_text() -> None:
    (piece,) = run(chunks_of([[*ids_of("he"), id_of("<|im_end|>")]], spec(logprobs=0)))
    assert [entry["token"] for entry in report(piece)] == ["he", "<|im_end|>"]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (ThinkerChunk("k", 0), "no response_spec"),
        (ThinkerChunk("k", 0, spec(), finish_reason="error"), "finish_reason: found 'error'"),
        (ThinkerChunk("k", 0, spec(logprobs=0), (1,)), "logprobs: found 0"),
    ],
)
def test_chunks_that_contradict_themselves_end_the_request(chunk: ThinkerChunk, message: str) -> None:
    table = StreamTable(VOCABULARY)
    with pytest.raises(ChunkError, match=message):
        table.push(chunk)
    assert len(table) == 0
    assert table.push(ThinkerChunk("k", 1, None, ids_of("late"))) == Outcome()


def test_a_chunk_that_comes_twice_is_an_error() -> None:
    table = StreamTable(VOCABULARY)
    table.push(ThinkerChunk("k", 0, spec()))
    with pytest.raises(ChunkError, match="chunk 0 of k: came twice"):
        table.push(ThinkerChunk("k", 0, spec()))


def test_only_so_many_chunks_wait_for_one_that_is_missing() -> None:
    table = StreamTable(VOCABULARY, max_early_chunks=3)
    for index in (1, 2, 3):
        table.push(ThinkerChunk("k", index))
    with pytest.raises(ChunkError, match="chunk 0 of k: missing"):
        table.push(ThinkerChunk("k", 4))
    assert len(table) == 0


def test_a_full_table_refuses_new_answers_and_serves_the_running_ones() -> None:
    table = StreamTable(VOCABULARY, max_streams=1)
    table.push(ThinkerChunk("one", 0, spec()))
    with pytest.raises(Overloaded, match="1 answers are running; allowed: 1"):
        table.push(ThinkerChunk("two", 0, spec()))
    assert table.push(ThinkerChunk("one", 1, None, ids_of("hello"))).pieces == (Piece("hello"),)


def test_answers_that_nobody_continues_are_forgotten() -> None:
    now = 0.0
    table = StreamTable(VOCABULARY, max_streams=2, idle_seconds=10.0, clock=lambda: now)
    table.push(ThinkerChunk("lost", 0, spec()))
    table.drop("cancelled")
    now = 8.0
    table.push(ThinkerChunk("alive", 0, spec()))
    now = 11.0
    table.push(ThinkerChunk("new", 0, spec()))
    assert list(table._running) == ["alive", "new"]
    assert list(table._over) == ["lost"]


def test_the_keys_to_swallow_are_bounded() -> None:
    table = StreamTable(VOCABULARY, max_streams=3)
    for number in range(10):
        table.drop(str(number))
    assert list(table._over) == ["7", "8", "9"]


def test_many_threads_may_share_a_table() -> None:
    table = StreamTable(VOCABULARY)
    answers: dict[str, str] = {}

    def answer(key: str) -> None:
        parts = [[token_id] for token_id in ids_of(f"hello {key} 世界")]
        answers[key] = "".join(piece.text for piece in run(chunks_of(parts, spec(), key=key), table))

    threads = [threading.Thread(target=answer, args=(str(n),)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {str(n): f"hello {n} 世界" for n in range(16)}
    assert len(table) == 0
