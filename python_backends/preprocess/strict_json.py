"""JSON from a client: only what RFC 8259 allows, within bounds on nesting and size."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits


class _RefusedError(ValueError):
    """JSON that Python's parser takes and this project does not."""


def decode_utf8(data: bytes, field: str) -> str:
    """The text in `data`.

    Raises:
        InvalidRequest: the bytes are no UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(field, f"invalid UTF-8 at byte {error.start}", "UTF-8 text") from None


def parse_json(data: bytes, field: str, limits: Limits) -> Any:
    """The value that `data` holds: dict, list, str, int, float, bool or None.

    Numbers are finite, keys of an object differ, and all strings can be encoded as UTF-8.

    Raises:
        InvalidRequest: malformed JSON (the sentence says where), invalid UTF-8, NaN or infinity, an object with a key
            twice, a lone surrogate, too deep a nesting, or more values than any prompt can hold.
    """
    text = decode_utf8(data, field)
    # Ten million empty lists fit into the request limit as text, but not as Python objects.
    values = sum(data.count(mark) for mark in (b"[", b"{", b","))
    if values > limits.max_prompt_chars:
        raise InvalidRequest(field, f"{values} brackets and commas", f"at most {limits.max_prompt_chars}")
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite_float, object_pairs_hook=_unique_keys
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest(field, f"malformed JSON at {place} ({error.msg})", "JSON") from None
    except RecursionError:
        raise _too_deep(field, limits) from None
    except _RefusedError as error:
        raise InvalidRequest(field, str(error), "JSON with finite numbers and keys that differ") from None
    except ValueError:  # the only other one: an integer of thousands of digits
        raise InvalidRequest(field, "a number with too many digits", "numbers that a computer can hold") from None
    _check(value, field, limits)
    return value


def json_kind(value: Any) -> str:
    """What a parsed value is, in words for an error's sentence."""
    names = {type(None): "null", bool: "true or false", dict: "an object", list: "a list", str: "a string"}
    return names.get(type(value), "a number")


def _check(value: Any, field: str, limits: Limits) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > limits.max_json_depth:
            raise _too_deep(field, limits)
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item, field)
            elif isinstance(item, list):
                below += item
            elif isinstance(item, dict):
                below += item.keys()
                below += item.values()
        level = below


def _check_text(text: str, field: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"the lone surrogate \\u{ord(text[error.start]):04x} in a string"
        raise InvalidRequest(field, found, "strings of whole Unicode characters") from None


def _too_deep(field: str, limits: Limits) -> InvalidRequest:
    return InvalidRequest(field, "JSON that is nested too deep", f"at most {limits.max_json_depth} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"the number {name}")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError(f"the number {text[:32]}")
    return number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _RefusedError(f"the key {twice[:64]!r} twice in one object")
    return result
