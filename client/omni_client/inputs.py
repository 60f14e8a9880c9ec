"""A request as input tensors, which both protocols send in their own way."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_client.errors import InvalidRequestError
from omni_client.request import GenerateRequest

_FORMATS = {"INT32": "<i", "UINT64": "<Q", "FP32": "<f", "BOOL": "<?"}
_KINDS: dict[str, tuple[type, str]] = {
    "INT32": (int, "a whole number of 32 bits"),
    "UINT64": (int, "a whole number from 0 to 2^64 - 1"),
    "FP32": (float, "a finite number"),
    "BOOL": (bool, "true or false"),
}


@dataclass(frozen=True)
class Input:
    """One input tensor of shape [1, number of values]. Values of BYTES are bytes, others Python's own."""

    name: str
    datatype: str
    values: tuple[Any, ...]

    def raw(self) -> bytes:
        """The tensor as gRPC carries it: little-endian, every string with its length in front."""
        if self.datatype == "BYTES":
            return b"".join(struct.pack("<I", len(value)) + value for value in self.values)
        return b"".join(struct.pack(_FORMATS[self.datatype], value) for value in self.values)


def settings_of(request: GenerateRequest, streaming: bool) -> list[Input]:
    """All inputs but text, messages and media.

    Raises:
        InvalidRequestError: a value that its tensor cannot hold.
    """
    sampling = request.sampling
    if isinstance(sampling.stop, str):
        raise InvalidRequestError(f"stop: found the string {sampling.stop!r}; allowed: a list of strings")
    scalars = (
        ("max_tokens", "INT32", sampling.max_tokens),
        ("temperature", "FP32", sampling.temperature),
        ("top_k", "INT32", sampling.top_k),
        ("top_p", "FP32", sampling.top_p),
        ("repetition_penalty", "FP32", sampling.repetition_penalty),
        ("seed", "UINT64", sampling.seed),
        ("ignore_eos", "BOOL", sampling.ignore_eos),
        ("logprobs", "INT32", sampling.logprobs),
        ("use_audio_in_video", "BOOL", request.use_audio_in_video),
        ("streaming", "BOOL", streaming),
    )
    inputs = [_scalar(name, datatype, value) for name, datatype, value in scalars if value is not None]
    if sampling.stop:
        inputs.append(Input("stop", "BYTES", tuple(_utf8("stop", text) for text in sampling.stop)))
    if request.tools is not None:
        inputs.append(json_input("tools", request.tools))
    return inputs


def text_input(text: str) -> Input:
    """The user's turn."""
    return Input("text_input", "BYTES", (_utf8("text", text),))


def json_input(name: str, value: Sequence[Mapping[str, Any]]) -> Input:
    """A list of objects as JSON.

    Raises:
        InvalidRequestError: JSON cannot express it.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{name}: not expressible in JSON: {error}") from None
    return Input(name, "BYTES", (_utf8(name, text),))


def _scalar(name: str, datatype: str, value: Any) -> Input:
    kind, allowed = _KINDS[datatype]
    error = InvalidRequestError(f"{name}: found {value!r}; allowed: {allowed}")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise error
    item = Input(name, datatype, (value,))
    try:
        item.raw()
    except (struct.error, OverflowError):
        raise error from None
    return item


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"{name}: found half a surrogate pair; allowed: text that UTF-8 can express"
        ) from None
