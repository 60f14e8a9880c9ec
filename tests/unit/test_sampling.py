"""Sampling inputs are checked one by one, and what is absent gets a default that a client can rely on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.errors import InvalidRequest
from python_backends.messages import OmniRequest, SamplingParams
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.sampling import read_sampling, read_stop

LIMITS = Limits(max_tokens_default=100)


def read(prompt_tokens: int = 10, max_model_len: int = 1000, **inputs: Any) -> SamplingParams:
    return read_sampling(OmniRequest(**inputs), prompt_tokens, max_model_len, LIMITS)


def test_without_inputs_decoding_is_greedy_over_all_tokens() -> None:
    params = read()
    assert (params.temperature, params.top_k, params.top_p, params.repetition_penalty) == (0.0, 0, 1.0, 1.0)
    assert params.logprobs is None
    assert not params.ignore_eos


def test_what_the_client_gives_is_kept() -> None:
    params = read(temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05, seed=2**64 - 1, logprobs=20)
    assert (params.temperature, params.top_k, params.top_p, params.repetition_penalty) == (0.7, 20, 0.8, 1.05)
    assert (params.seed, params.logprobs) == (2**64 - 1, 20)


def test_two_requests_without_a_seed_draw_different_ones() -> None:
    assert read().seed != read().seed


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"temperature": -0.1}, r"temperature: -0.1; allowed: 0 \(greedy\), or 0.001 to 2"),
        ({"temperature": 2.5}, r"temperature: 2.5; allowed"),
        ({"temperature": 1e-30}, r"temperature: 1e-30; allowed"),
        ({"temperature": math.nan}, r"temperature: nan; allowed: a finite number"),
        ({"temperature": math.inf}, r"temperature: inf; allowed: a finite number"),
        ({"top_k": -1}, r"top_k: -1; allowed: 0 \(all tokens\), or more"),
        ({"top_p": 0.0}, r"top_p: 0; allowed: more than 0, at most 1"),
        ({"top_p": 1.1}, r"top_p: 1.1; allowed"),
        ({"top_p": math.nan}, r"top_p: nan; allowed"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty: 0; allowed: 0.1 to 10"),
        ({"repetition_penalty": -1.0}, r"repetition_penalty: -1; allowed"),
        ({"repetition_penalty": math.inf}, r"repetition_penalty: inf; allowed"),
        ({"seed": -1}, r"seed: -1; allowed: 0 to 18446744073709551615"),
        ({"seed": 2**64}, r"seed: 18446744073709551616; allowed"),
        ({"logprobs": -1}, r"logprobs: -1; allowed: 0 to 20"),
        ({"logprobs": 21}, r"logprobs: 21; allowed: 0 to 20"),
        ({"max_tokens": 0}, r"max_tokens: 0; allowed: 1 or more"),
        ({"max_tokens": -5}, r"max_tokens: -5; allowed: 1 or more"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(inputs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read(**inputs)


def test_without_max_tokens_the_rest_of_the_model_length_is_allowed_up_to_the_cap() -> None:
    assert read(prompt_tokens=950).max_tokens == 50
    assert read(prompt_tokens=10).max_tokens == 100


def test_a_prompt_and_answer_that_exceed_the_model_length_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidRequest, match=r"prompt of 901 tokens and max_tokens 100; allowed: 1000 tokens together"):
        read(prompt_tokens=901, max_tokens=100)
    assert read(prompt_tokens=900, max_tokens=100).max_tokens == 100


def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"prompt: a prompt of 1000 tokens; allowed: fewer than 1000 tokens"):
        read(prompt_tokens=1000)


@given(
    st.builds(
        OmniRequest,
        max_tokens=st.none() | st.integers(-(2**31), 2**31 - 1),
        temperature=st.none() | st.floats(width=32),
        top_k=st.none() | st.integers(-(2**31), 2**31 - 1),
        top_p=st.none() | st.floats(width=32),
        repetition_penalty=st.none() | st.floats(width=32),
        seed=st.none() | st.integers(0, 2**64 - 1),
        logprobs=st.none() | st.integers(-(2**31), 2**31 - 1),
    )
)
def test_whatever_comes_in_it_is_refused_or_makes_numbers_that_can_be_computed_with(request_: OmniRequest) -> None:
    try:
        params = read_sampling(request_, 10, 1000, LIMITS)
    except InvalidRequest:
        return
    assert params.temperature == 0 or 0.001 <= params.temperature <= 2
    assert 0 < params.top_p <= 1
    assert 0.1 <= params.repetition_penalty <= 10
    assert 1 <= params.max_tokens <= 990


def test_stop_strings_are_text_and_each_is_kept_once() -> None:
    assert read_stop((b"END", "停".encode(), b"END"), LIMITS) == ("END", "停")


@pytest.mark.parametrize(
    ("stop", "sentence"),
    [
        ((b"a", b""), r"stop\[1\]: 0 characters; allowed: 1 to 256"),
        ((b"x" * 257,), r"stop\[0\]: 257 characters; allowed: 1 to 256"),
        ((b"x",) * 17, r"stop: 17 strings; allowed: at most 16"),
        ((b"\xff",), r"stop\[0\]: invalid UTF-8 at byte 0; allowed: UTF-8 text"),
    ],
)
def test_stop_strings_that_cannot_be_watched_for_are_refused(stop: tuple[bytes, ...], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read_stop(stop, LIMITS)
