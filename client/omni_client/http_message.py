"""Requests and responses of Triton's `generate_stream`: JSON one way, server-sent events the other.

A JSON string cannot carry raw bytes, so media become `data:` URLs within `messages`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from omni_client.answer import OUTPUTS
from omni_client.errors import InvalidRequestError, ServerError, error_from_server
from omni_client.inputs import json_input, settings_of, text_input
from omni_client.request import GenerateRequest

_Media = Mapping[str, tuple[bytes, ...]]


def path_of(model: str) -> str:
    """Where to POST."""
    return f"/v2/models/{quote(model, safe='')}/generate_stream"


def body_of(request: GenerateRequest, streaming: bool) -> bytes:
    """The JSON body.

    Raises:
        InvalidRequestError: a value that its tensor cannot hold, an unreadable file, or `messages` that refer to media
            that are not there or do not refer to media that are.
    """
    inputs = settings_of(request, streaming)
    media = request.media()
    if request.messages is not None:
        inputs.append(json_input("messages", _with_data_urls(request.messages, media)))
    elif request.text is not None and media:
        inputs.append(json_input("messages", _user_turn(request.text, media)))
    elif request.text is not None:
        inputs.append(text_input(request.text))
    body: dict[str, Any] = {}
    for item in inputs:
        values = [value.decode() if item.datatype == "BYTES" else value for value in item.values]
        body[item.name] = values if item.name == "stop" else values[0]
    if request.request_id:
        body["id"] = request.request_id
    if request.priority is not None:
        body["priority"] = request.priority
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


def outputs_of(event: str) -> dict[str, str]:
    """The output tensors that one event holds.

    Raises:
        OmniClientError: the event is an error.
        ServerError: the event is not a JSON object.
    """
    try:
        value = json.loads(event)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ServerError(f"event: found {event[:80]!r}; allowed: a JSON object")
    if "error" in value:
        raise error_from_server(str(value["error"]))
    return {name: str(value[name]) for name in OUTPUTS if name in value}


def message_in_error_body(body: str) -> str:
    """The error message in the body of a response that is no 200: JSON, one event, or plain text from a proxy."""
    text = body.strip().removeprefix("data:").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:500]


class EventReader:
    """Takes a server-sent event stream apart.

    Lines end at LF, CR or CRLF and nowhere else: JSON may hold U+2028 and the like, at which Python would split too.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def push(self, received: bytes) -> list[str]:
        """The data of the events that are complete now.

        Raises:
            ServerError: an event is not UTF-8.
        """
        buffer = self._rest + received
        # a CR at the end may be half of a CRLF: leave it for the next time
        usable = len(buffer) - buffer.endswith(b"\r")
        *lines, rest = buffer[:usable].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + buffer[usable:]
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(self._finish())
        return events

    def _finish(self) -> str:
        data, self._data = b"\n".join(self._data), []
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ServerError(f"event: found {data[:80]!r}; allowed: UTF-8") from None


def _user_turn(text: str, media: _Media) -> list[dict[str, Any]]:
    """What the server makes of `text_input` with media: images, sounds, videos, then the text."""
    parts = [_part(kind, data) for kind in ("image", "audio", "video") for data in media.get(kind, ())]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def _with_data_urls(messages: Sequence[Mapping[str, Any]], media: _Media) -> list[Any]:
    used: set[tuple[str, int]] = set()
    result = [_turn_with_data_urls(message, f"messages[{i}]", media, used) for i, message in enumerate(messages)]
    for kind, files in media.items():
        for index in range(len(files)):
            if (kind, index) not in used:
                allowed = f'media that a part {{"type": "{kind}", "index": {index}}} refers to'
                raise InvalidRequestError(f"{kind}[{index}]: found no part that refers to it; allowed: {allowed}")
    return result


def _turn_with_data_urls(message: Any, where: str, media: _Media, used: set[tuple[str, int]]) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("image", "audio", "video"):
            index, files = part.get("index"), media.get(kind, ())
            if type(index) is not int or not 0 <= index < len(files):
                found = f"{where}.content[{i}].index: found {index!r}"
                raise InvalidRequestError(f"{found}; allowed: the index of one of {len(files)} {kind} inputs")
            used.add((kind, index))
            parts.append(_part(kind, files[index]))
        else:
            parts.append(part)
    return {**message, "content": parts}


def _part(kind: str, data: bytes) -> dict[str, Any]:
    name = f"{kind}_url"
    url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"
    return {"type": name, name: {"url": url}}
