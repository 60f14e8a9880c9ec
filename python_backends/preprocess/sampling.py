"""The sampling inputs of a request, checked, with their defaults filled in."""

from __future__ import annotations

import math
import secrets

from python_backends.errors import InvalidRequest
from python_backends.messages import OmniRequest, SamplingParams
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.strict_json import decode_utf8

# OpenAI's upper limit; nearer to 0 than the lower one, a float32 logit divided by it overflows: 0 means greedy.
_TEMPERATURE = (0.001, 2.0)
# The penalty multiplies or divides logits: beyond these nothing but noise or the same token is left.
_PENALTY = (0.1, 10.0)
_LOGPROBS = 20  # as OpenAI
_SEED_BITS = 64  # the input is a UINT64


def read_sampling(request: OmniRequest, prompt_tokens: int, max_model_len: int, limits: Limits) -> SamplingParams:
    """How the answer to a prompt of `prompt_tokens` tokens is drawn.

    Without a temperature decoding is greedy. Without `max_tokens` the answer may fill the rest of the model length, up
    to `limits.max_tokens_default`. Without a seed one is drawn.

    Raises:
        InvalidRequest: a value out of its range, or a prompt that with `max_tokens` exceeds the model length.
    """
    temperature = _number("temperature", request.temperature, 0.0)
    low, high = _TEMPERATURE
    if temperature != 0 and not low <= temperature <= high:
        raise InvalidRequest("temperature", f"{temperature:g}", f"0 (greedy), or {low:g} to {high:g}")
    top_p = _number("top_p", request.top_p, 1.0)
    if not 0 < top_p <= 1:
        raise InvalidRequest("top_p", f"{top_p:g}", "more than 0, at most 1")
    penalty = _number("repetition_penalty", request.repetition_penalty, 1.0)
    if not _PENALTY[0] <= penalty <= _PENALTY[1]:
        raise InvalidRequest("repetition_penalty", f"{penalty:g}", f"{_PENALTY[0]:g} to {_PENALTY[1]:g}")
    top_k = 0 if request.top_k is None else request.top_k
    if top_k < 0:
        raise InvalidRequest("top_k", f"{top_k}", "0 (all tokens), or more")
    seed = secrets.randbits(_SEED_BITS) if request.seed is None else request.seed
    if not 0 <= seed < 2**_SEED_BITS:
        raise InvalidRequest("seed", f"{seed}", f"0 to {2**_SEED_BITS - 1}")
    if request.logprobs is not None and not 0 <= request.logprobs <= _LOGPROBS:
        raise InvalidRequest("logprobs", f"{request.logprobs}", f"0 to {_LOGPROBS}")
    return SamplingParams(
        max_tokens=answer_tokens(request.max_tokens, prompt_tokens, max_model_len, limits),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=penalty,
        seed=seed,
        ignore_eos=bool(request.ignore_eos),
        logprobs=request.logprobs,
    )


def answer_tokens(asked: int | None, prompt_tokens: int, max_model_len: int, limits: Limits) -> int:
    """How many tokens the answer may have; `asked` is the request's `max_tokens`.

    Raises:
        InvalidRequest: fewer than 1 are asked for, or prompt and answer together exceed the model length.
    """
    if asked is not None and asked < 1:
        raise InvalidRequest("max_tokens", f"{asked}", "1 or more")
    room = max_model_len - prompt_tokens
    if room < (asked or 1):
        found = f"a prompt of {prompt_tokens} tokens" + (f" and max_tokens {asked}" if asked else "")
        allowed = f"{max_model_len} tokens together" if asked else f"fewer than {max_model_len} tokens"
        raise InvalidRequest("max_tokens" if asked else "prompt", found, allowed)
    return asked if asked is not None else min(room, limits.max_tokens_default)


def read_stop(stop: tuple[bytes, ...], limits: Limits) -> tuple[str, ...]:
    """The stop strings, each once, in the order given.

    Raises:
        InvalidRequest: too many, an empty one, one that is too long, or invalid UTF-8.
    """
    if len(stop) > limits.max_stop_strings:
        raise InvalidRequest("stop", f"{len(stop)} strings", f"at most {limits.max_stop_strings}")
    texts = [decode_utf8(data, f"stop[{i}]") for i, data in enumerate(stop)]
    for i, text in enumerate(texts):
        if not 0 < len(text) <= limits.max_stop_chars:
            raise InvalidRequest(f"stop[{i}]", f"{len(text)} characters", f"1 to {limits.max_stop_chars}")
    return tuple(dict.fromkeys(texts))


def _number(field: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if not math.isfinite(value):
        raise InvalidRequest(field, f"{value}", "a finite number")
    return float(value)
