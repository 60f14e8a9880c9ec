"""JSON of the structures that cross the tensor borders between preprocess, thinker and postprocess.

Both ends are ours, so reading is strict: anything unexpected is a fault of the project and raises `WireError`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from python_backends.engine.base import TokenLogprob
from python_backends.errors import OmniError
from python_backends.messages import RequestCost, ResponseSpec, ThinkerUsage

LOWEST_LOGPROB = -9999.0
"""Stands for a probability of zero (and for NaN): JSON knows no infinity. vLLM reports the same number."""


class WireError(OmniError):
    """A tensor between our own models does not hold what it should."""


def finite_logprob(value: float) -> float:
    """The value as it may stand in JSON: between `LOWEST_LOGPROB` and 0."""
    return LOWEST_LOGPROB if math.isnan(value) else min(max(float(value), LOWEST_LOGPROB), 0.0)


def response_spec_to_json(spec: ResponseSpec) -> str:
    """The tensor `response_spec`."""
    return _dumps(
        {
            "streaming": spec.streaming,
            "stop": list(spec.stop),
            "tools": spec.tools,
            "logprobs": spec.logprobs,
            "text_tokens": spec.text_tokens,
            "image_tokens": spec.image_tokens,
            "audio_tokens": spec.audio_tokens,
            "video_tokens": spec.video_tokens,
            "times_ms": dict(spec.times_ms),
        }
    )


def response_spec_from_json(text: str | bytes) -> ResponseSpec:
    """
    Raises:
        WireError: the text is no JSON of a `ResponseSpec`.
    """
    fields = _Fields("response_spec", _loads("response_spec", text))
    stop = fields.take("stop")
    if not isinstance(stop, list) or not all(isinstance(item, str) and item for item in stop):
        raise fields.error("stop", stop, "a list of strings that are not empty")
    spec = ResponseSpec(
        streaming=fields.flag("streaming"),
        stop=tuple(stop),
        tools=fields.flag("tools"),
        logprobs=fields.count_or_none("logprobs"),
        text_tokens=fields.count("text_tokens"),
        image_tokens=fields.count("image_tokens"),
        audio_tokens=fields.count("audio_tokens"),
        video_tokens=fields.count("video_tokens"),
        times_ms=fields.times("times_ms"),
    )
    fields.finish()
    return spec


def request_cost_to_json(cost: RequestCost) -> str:
    """The tensor `request_cost`."""
    return _dumps(dataclasses.asdict(cost))


def request_cost_from_json(text: str | bytes) -> RequestCost:
    """
    Raises:
        WireError: the text is no JSON of a `RequestCost`.
    """
    fields = _Fields("request_cost", _loads("request_cost", text))
    cost = RequestCost(**{item.name: fields.count(item.name) for item in dataclasses.fields(RequestCost)})
    fields.finish()
    return cost


def thinker_usage_to_json(usage: ThinkerUsage) -> str:
    """The tensor `thinker_usage`."""
    return _dumps(
        {
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "times_ms": dict(usage.times_ms),
        }
    )


def thinker_usage_from_json(text: str | bytes) -> ThinkerUsage:
    """
    Raises:
        WireError: the text is no JSON of a `ThinkerUsage`.
    """
    fields = _Fields("thinker_usage", _loads("thinker_usage", text))
    usage = ThinkerUsage(
        completion_tokens=fields.count("completion_tokens"),
        cached_tokens=fields.count("cached_tokens"),
        times_ms=fields.times("times_ms"),
    )
    fields.finish()
    return usage


def token_logprobs_to_json(tokens: Sequence[TokenLogprob]) -> str:
    """The tensor `output_logprobs`: `[[id, logprob, [[id, logprob], ...]], ...]`; infinities and NaN become finite."""
    return _dumps(
        [
            [token.token_id, finite_logprob(token.logprob), [[i, finite_logprob(p)] for i, p in token.top]]
            for token in tokens
        ]
    )


def token_logprobs_from_json(text: str | bytes) -> tuple[TokenLogprob, ...]:
    """
    Raises:
        WireError: the text is no JSON of such a list.
    """
    what = "output_logprobs"
    rows = _loads(what, text)
    if not isinstance(rows, list):
        raise WireError(f"{what}: found {type(rows).__name__}; allowed: a list")
    return tuple(_token_logprob(what, row) for row in rows)


def _token_logprob(what: str, row: Any) -> TokenLogprob:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
        raise WireError(f"{what}: found {row!r}; allowed: [id, logprob, [[id, logprob], ...]]")
    token_id, logprob = _id_and_logprob(what, row[:2])
    return TokenLogprob(token_id, logprob, tuple(_id_and_logprob(what, pair) for pair in row[2]))


def _id_and_logprob(what: str, pair: Any) -> tuple[int, float]:
    if isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and type(pair[1]) in (int, float):
        return pair[0], finite_logprob(pair[1])
    raise WireError(f"{what}: found {pair!r}; allowed: [id, logprob]")


class _Fields:
    """The members of a JSON object, each read once and checked."""

    def __init__(self, what: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise WireError(f"{what}: found {type(value).__name__}; allowed: an object")
        self._what = what
        self._left: dict[str, Any] = dict(value)

    def error(self, name: str, found: Any, allowed: str) -> WireError:
        return WireError(f"{self._what}.{name}: found {found!r}; allowed: {allowed}")

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise WireError(f"{self._what}.{name}: missing")
        return self._left.pop(name)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def count(self, name: str) -> int:
        value = self.take(name)
        if type(value) is not int or value < 0:
            raise self.error(name, value, "a whole number that is not negative")
        return value

    def count_or_none(self, name: str) -> int | None:
        if self._left.get(name, 0) is None:
            self.take(name)
            return None
        return self.count(name)

    def times(self, name: str) -> dict[str, float]:
        value = self.take(name)
        if not isinstance(value, Mapping) or not all(type(ms) in (int, float) for ms in value.values()):
            raise self.error(name, value, "an object of numbers")
        return {key: float(ms) for key, ms in value.items()}

    def finish(self) -> None:
        if self._left:
            raise WireError(f"{self._what}: unknown members {sorted(self._left)}")


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _loads(what: str, text: str | bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise WireError(f"{what}: found {constant}; allowed: finite numbers")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{what}: not JSON: {error}") from error
