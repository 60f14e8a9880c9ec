"""From logits to tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from python_backends.engine.sampler import Drawn, SamplingRow, draw, uniform
from python_backends.messages import FloatArray, SamplingParams


def row(seen: list[int] | None = None, generated: int = 0, **params: Any) -> SamplingRow:
    return SamplingRow(SamplingParams(max_tokens=100, **params), np.array(seen or [], np.int32), generated)


def logits(*rows: list[float]) -> FloatArray:
    return np.array(rows, np.float32)


def draw_one(scores: list[float], **params: Any) -> int | None:
    return draw(logits(scores), [row(**params)])[0].token_id


def shares(scores: NDArray[Any], draws: int = 4000, **params: Any) -> NDArray[np.float64]:
    """How often each token is drawn."""
    scores = scores.astype(np.float32)
    drawn = [draw(scores[None], [row(generated=n, temperature=1.0, **params)])[0].token_id for n in range(draws)]
    return np.bincount(np.array(drawn, int), minlength=len(scores)) / draws


def test_temperature_zero_takes_the_most_likely_and_of_equals_the_first() -> None:
    drawn = draw(logits([0, 3, 1], [5, 5, 4], [-2, -3, -1]), [row(), row(), row()])
    assert drawn == [Drawn(1), Drawn(0), Drawn(2)]


def test_tokens_are_drawn_as_often_as_the_softmax_says() -> None:
    expected = np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(shares(np.log(expected)), expected, atol=0.03)


def test_temperature_sharpens_and_flattens() -> None:
    scores = np.log([0.2, 0.8]).astype(np.float32)[None]
    for temperature, expected in ((0.5, 16 / 17), (2.0, 2 / 3)):
        rows = [row(generated=n, temperature=temperature) for n in range(4000)]
        drawn = [draw(scores, [one])[0].token_id for one in rows]
        assert abs(drawn.count(1) / len(drawn) - expected) < 0.03


def test_top_k_keeps_the_k_best_and_all_that_equal_the_last_of_them() -> None:
    assert np.flatnonzero(shares(np.array([1, 4, 2, 3]), 500, top_k=2)).tolist() == [1, 3]
    assert np.flatnonzero(shares(np.array([1, 3, 2, 2]), 500, top_k=2)).tolist() == [1, 2, 3]


def test_top_p_keeps_the_best_until_they_have_the_mass() -> None:
    scores = np.log([0.15, 0.5, 0.05, 0.3])
    for top_p, kept in ((0.45, [1]), (0.7, [1, 3]), (0.9, [0, 1, 3]), (0.0001, [1])):
        assert np.flatnonzero(shares(scores, 500, top_p=top_p)).tolist() == kept


def test_top_p_works_where_most_of_a_large_vocabulary_is_needed() -> None:
    scores = np.zeros(20_000, np.float32)
    drawn = {draw(scores[None], [row(generated=n, temperature=1.0, top_p=0.5)])[0].token_id for n in range(60)}
    assert len(drawn) > 50
    assert max(token for token in drawn if token is not None) < 10_000


def test_the_penalty_weakens_tokens_of_prompt_and_answer_whatever_their_sign() -> None:
    assert draw_one([4, 3, -1]) == 0
    assert draw_one([4, 3, -1], seen=[0], repetition_penalty=1.5) == 1
    assert draw_one([-1, -1.2, -5], seen=[0, 0], repetition_penalty=1.5) == 1
    assert draw_one([4, 3, -1], seen=[1], repetition_penalty=0.5) == 1


def test_a_seed_gives_the_same_tokens_again_whatever_stands_beside_it() -> None:
    scores = np.random.default_rng(0).standard_normal((3, 500), dtype=np.float32)
    mine = [row(generated=n, temperature=1.0, seed=2**64 - 1) for n in range(3)]
    alone = [draw(scores[n : n + 1], [mine[n]])[0] for n in range(3)]
    assert draw(scores, mine) == alone
    assert draw(scores[::-1].copy(), [row(), mine[1], row(temperature=2.0, seed=5)])[1] == alone[1]


def test_random_numbers_differ_by_seed_and_by_token() -> None:
    numbers = [uniform(seed, index) for seed in (0, 1, 2**63) for index in range(50)]
    assert len(set(numbers)) == 150
    assert abs(np.mean(numbers) - 0.5) < 0.1
    assert uniform(7, 3) == uniform(7, 3)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_random_numbers_lie_in_the_unit_interval(seed: int, index: int) -> None:
    assert 0 <= uniform(seed, index) < 1


def test_logprobs_are_of_the_raw_logits_and_end_with_the_asked_number() -> None:
    scores = logits([1, 2, 3, 4])
    expected = scores[0] - np.log(np.exp(scores[0]).sum())
    for wanted in (0, 2, 9):
        (drawn,) = draw(scores, [row([3], temperature=0.5, top_k=1, repetition_penalty=9.0, logprobs=wanted)])
        assert drawn.logprob is not None
        assert drawn.token_id == drawn.logprob.token_id == 2
        assert drawn.logprob.logprob == pytest.approx(float(expected[2]))
        assert [token for token, _ in drawn.logprob.top] == [3, 2, 1, 0][:wanted]
        assert [value for _, value in drawn.logprob.top] == pytest.approx(expected[::-1][:wanted].tolist())


def test_logprobs_stay_finite_where_probabilities_vanish() -> None:
    (drawn,) = draw(logits([0, 3e38, -3e38]), [row(logprobs=3)])
    assert drawn.logprob is not None
    assert all(np.isfinite(value) for _, value in drawn.logprob.top)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_gives_no_token_and_harms_no_other(bad: float) -> None:
    assert draw(logits([0, bad, 1], [0, 1, 0]), [row(), row()]) == [Drawn(None), Drawn(1)]


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30),
    st.floats(1e-50, 100),
    st.integers(0, 40),
    st.floats(0.01, 1),
    st.floats(0.1, 10),
    st.integers(0, 2**64 - 1),
)
def test_whatever_is_asked_a_token_comes_that_the_limits_allow(
    scores: list[float], temperature: float, top_k: int, top_p: float, penalty: float, seed: int
) -> None:
    params = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    token = draw_one(scores, **params, seen=[0], repetition_penalty=penalty)
    assert token is not None
    assert 0 <= token < len(scores)
    token = draw_one(scores, **params)
    assert token is not None
    if top_k:
        assert sum(score > scores[token] for score in scores) < top_k


def test_drawing_changes_no_logits() -> None:
    scores = logits([1, 2, 3])
    before = scores.copy()
    draw(scores, [row([0, 1], temperature=0.7, top_k=2, top_p=0.5, repetition_penalty=2.0, logprobs=2)])
    np.testing.assert_array_equal(scores, before)
