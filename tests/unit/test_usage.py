"""Usage in OpenAI's form, and the JSON between our own models."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.engine.base import TokenLogprob
from python_backends.errors import ErrorCode
from python_backends.messages import ResponseSpec, ThinkerUsage
from python_backends.postprocess.usage import Usage
from python_backends.wire import (
    LOWEST_LOGPROB,
    WireError,
    response_spec_from_json,
    response_spec_to_json,
    thinker_usage_from_json,
    thinker_usage_to_json,
    token_logprobs_from_json,
    token_logprobs_to_json,
)
from tests.unit.byte_tokenizer import spec

COUNT = st.integers(0, 10**6)
TIMES = st.dictionaries(st.text(max_size=8), st.floats(0, 1e6), max_size=4)


def test_usage_sums_the_prompt_and_joins_the_times() -> None:
    usage = Usage.of(spec(), ThinkerUsage(99, 7, {"prefill": 2.0, "decode": 3.0}), completion_tokens=5)
    assert json.loads(usage.to_json()) == {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {
            "text_tokens": 10,
            "image_tokens": 20,
            "audio_tokens": 30,
            "video_tokens": 40,
            "cached_tokens": 7,
        },
        "audio_seconds": 0.0,
        "times_ms": {"preprocess": 1.5, "prefill": 2.0, "decode": 3.0},
    }


def test_usage_without_a_word_from_the_thinker_counts_nothing_as_cached() -> None:
    usage = json.loads(Usage.of(spec(), None, completion_tokens=1).to_json())
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert usage["times_ms"] == {"preprocess": 1.5}


@given(
    st.builds(
        ResponseSpec,
        streaming=st.booleans(),
        stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
        tools=st.booleans(),
        logprobs=st.none() | COUNT,
        text_tokens=COUNT,
        image_tokens=COUNT,
        audio_tokens=COUNT,
        video_tokens=COUNT,
        times_ms=TIMES,
    )
)
def test_a_response_spec_survives_the_tensor(original: ResponseSpec) -> None:
    assert response_spec_from_json(response_spec_to_json(original)) == original


@given(st.builds(ThinkerUsage, completion_tokens=COUNT, cached_tokens=COUNT, times_ms=TIMES))
def test_thinker_usage_survives_the_tensor(original: ThinkerUsage) -> None:
    assert thinker_usage_from_json(thinker_usage_to_json(original).encode()) == original


LOGPROB = st.floats(-100, 0)


@given(
    st.lists(
        st.builds(TokenLogprob, COUNT, LOGPROB, st.lists(st.tuples(COUNT, LOGPROB), max_size=3).map(tuple)), max_size=5
    )
)
def test_log_probabilities_survive_the_tensor(original: list[TokenLogprob]) -> None:
    assert token_logprobs_from_json(token_logprobs_to_json(original)) == tuple(original)


def test_impossible_tokens_get_the_lowest_log_probability() -> None:
    odd = [TokenLogprob(1, -math.inf, ((2, math.nan), (3, 1e-9)))]
    assert token_logprobs_from_json(token_logprobs_to_json(odd)) == (
        TokenLogprob(1, LOWEST_LOGPROB, ((2, LOWEST_LOGPROB), (3, 0.0))),
    )


GOOD_SPEC = json.loads(response_spec_to_json(spec()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"streaming": 1}, "response_spec.streaming: found 1; allowed: true or false"),
        ({"stop": [""]}, "response_spec.stop"),
        ({"stop": "x"}, "response_spec.stop"),
        ({"logprobs": -1}, "response_spec.logprobs"),
        ({"text_tokens": True}, "response_spec.text_tokens"),
        ({"times_ms": {"a": "b"}}, "response_spec.times_ms"),
        ({"surprise": 1}, "unknown members \\['surprise'\\]"),
    ],
)
def test_a_wrong_response_spec_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(WireError, match=message) as caught:
        response_spec_from_json(json.dumps(GOOD_SPEC | change))
    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("name", sorted(GOOD_SPEC))
def test_a_missing_member_is_named(name: str) -> None:
    with pytest.raises(WireError, match=f"response_spec.{name}: missing"):
        response_spec_from_json(json.dumps({key: value for key, value in GOOD_SPEC.items() if key != name}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff", "[" * 100_000, '{"completion_tokens": NaN}'])
def test_text_that_is_no_usage_is_refused(text: str | bytes) -> None:
    with pytest.raises(WireError, match="thinker_usage"):
        thinker_usage_from_json(text)


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "[[1, -1]]", "[[1, -1, 5]]", "[[1.5, -1, []]]", "[[1, -1, [[2]]]]", "[[1,true,[]]]"]
)
def test_text_that_is_no_list_of_log_probabilities_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="output_logprobs"):
        token_logprobs_from_json(text)
