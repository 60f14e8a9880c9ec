"""Where the bytes of a media part come from: a `data:` URL, raw base64, or one of the request's media tensors."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.strict_json import json_kind

_DATA_URL = "data:<type>;base64,<data>"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def read_data_url(url: Any, field: str, limits: Limits) -> bytes:
    """The bytes that a `data:` URL carries. Nothing is ever fetched from the network or the disk.

    Raises:
        InvalidRequest: not a string, another scheme, no base64, or too many bytes.
    """
    if not isinstance(url, str):
        raise InvalidRequest(field, json_kind(url), f"a {_DATA_URL} URL")
    scheme = _SCHEME.match(url)
    if scheme is None or scheme.group().lower() != "data:":
        found = f"a {scheme.group().lower()} URL" if scheme else "a string that is no URL"
        raise InvalidRequest(field, found, f"{_DATA_URL} URLs")
    head, comma, data = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise InvalidRequest(field, "a data: URL without ;base64,", f"{_DATA_URL} URLs")
    return _decode(data, field, limits)


def read_base64(data: Any, field: str, limits: Limits) -> bytes:
    """The bytes that base64 text stands for; a `data:…;base64,` prefix is taken off, line breaks are ignored.

    Raises:
        InvalidRequest: not a string, no base64, or too many bytes.
    """
    if not isinstance(data, str):
        raise InvalidRequest(field, json_kind(data), "a string of base64")
    if data[:5].lower() == "data:":
        return read_data_url(data, field, limits)
    return _decode(data, field, limits)


def check_size(data: bytes, field: str, limits: Limits) -> bytes:
    """`data`, if it is neither empty nor above the media limit.

    Raises:
        InvalidRequest: it is.
    """
    if not 0 < len(data) <= limits.max_media_bytes:
        raise InvalidRequest(field, f"{len(data)} bytes", f"1 to {limits.max_media_bytes} bytes")
    return data


def read_index(index: Any, field: str, name: str, given: int) -> int:
    """The index of a media tensor's element; `name` is the tensor, `given` its number of elements.

    Raises:
        InvalidRequest: no whole number, or there is no such element.
    """
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < given:
        found = f"{index}" if isinstance(index, int | float) else json_kind(index)
        allowed = f"0 to {given - 1}, an index of the {name} tensor" if given else f"none: the {name} tensor is absent"
        raise InvalidRequest(field, found[:32], allowed)
    return index


def _decode(data: str, field: str, limits: Limits) -> bytes:
    if len(data) > 2 * limits.max_media_bytes:  # base64 is 4/3 of the bytes; line breaks add a little
        raise InvalidRequest(field, f"{len(data)} characters of base64", f"at most {limits.max_media_bytes} bytes")
    try:
        decoded = base64.b64decode(data.encode("ascii").translate(None, b" \t\r\n"), validate=True)
    except UnicodeEncodeError:
        raise InvalidRequest(field, "bad base64 (a character that is not ASCII)", "base64 with padding") from None
    except binascii.Error as error:
        raise InvalidRequest(field, f"bad base64 ({str(error).lower()})", "base64 with padding") from None
    return check_size(decoded, field, limits)
