"""OpenAI's chat messages → turns for the chat template, and the media in the order in which they are mentioned.

The turns keep only what templates know, in the form that they know: strings, and parts that are exactly one of `text`,
`image`, `audio` and `video`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.media_source import check_size, read_base64, read_data_url, read_index
from python_backends.preprocess.strict_json import json_kind, parse_json
from python_backends.preprocess.tool_schema import read_tool_calls

Turn = dict[str, Any]


class MediaKind(StrEnum):
    """A kind of media; the value names the media tensor and the template's part type."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"


MediaTensors = Mapping[MediaKind, tuple[bytes, ...]]


@dataclass(frozen=True)
class MediaPart:
    """One mention of an image, a sound or a video: its encoded bytes, and the field that a complaint names."""

    kind: MediaKind
    data: bytes
    field: str


@dataclass(frozen=True)
class Chat:
    """A conversation: turns for the chat template, and its media in the order of their mention."""

    turns: list[Turn]
    media: tuple[MediaPart, ...]


_ROLES = ("system", "user", "assistant", "tool")
_URL_PARTS = {"image_url": MediaKind.IMAGE, "audio_url": MediaKind.AUDIO, "video_url": MediaKind.VIDEO}
_PART_TYPES = ("text", *_URL_PARTS, "input_audio", *(kind.value for kind in MediaKind))


def chat_of_text(text: str, tensors: MediaTensors, limits: Limits) -> Chat:
    """One user turn: images, then sounds, then videos, each in tensor order, then the text.

    Raises:
        InvalidRequest: neither text nor media, or media over a limit.
    """
    reader = _Reader(tensors, limits)
    parts = [reader.attached(kind, i) for kind in MediaKind for i in range(len(tensors.get(kind, ())))]
    if not parts and not text:
        raise InvalidRequest("text_input", "an empty text without media", "text, media or both")
    content: str | list[Turn] = [*parts, {"type": "text", "text": text}] if parts else text
    return Chat([{"role": "user", "content": content}], tuple(reader.media))


def chat_of_messages(data: bytes, tensors: MediaTensors, limits: Limits) -> Chat:
    """The conversation that the JSON in `data` holds. Every element of `tensors` must be mentioned by a message.

    Raises:
        InvalidRequest: malformed JSON, an unknown role or part, missing content, unreadable or unmentioned media, or
            more than a limit allows.
    """
    messages = parse_json(data, "messages", limits)
    if not isinstance(messages, list) or not messages:
        found = "an empty list" if messages == [] else json_kind(messages)
        raise InvalidRequest("messages", found, "a JSON list of one message or more")
    if len(messages) > limits.max_messages:
        raise InvalidRequest("messages", f"{len(messages)} messages", f"at most {limits.max_messages}")
    reader = _Reader(tensors, limits)
    turns = [reader.turn(message, f"messages[{i}]") for i, message in enumerate(messages)]
    reader.check_all_mentioned()
    return Chat(turns, tuple(reader.media))


class _Reader:
    """Turns messages into turns one by one, and collects the media on the way."""

    def __init__(self, tensors: MediaTensors, limits: Limits) -> None:
        self._tensors = tensors
        self._limits = limits
        self._counts = dict.fromkeys(MediaKind, 0)
        self._most = {
            MediaKind.IMAGE: limits.max_images,
            MediaKind.AUDIO: limits.max_sounds,
            MediaKind.VIDEO: limits.max_videos,
        }
        self._mentioned: set[tuple[MediaKind, int]] = set()
        self.media: list[MediaPart] = []

    def turn(self, message: Any, field: str) -> Turn:
        if not isinstance(message, dict):
            raise InvalidRequest(field, json_kind(message), 'an object with "role" and "content"')
        role = message.get("role")
        if role not in _ROLES:
            raise InvalidRequest(f"{field}.role", f"{role!r}"[:64], ", ".join(_ROLES))
        turn: Turn = {"role": role}
        calls = message.get("tool_calls")
        if calls is not None and role == "assistant":
            turn["tool_calls"] = read_tool_calls(calls, f"{field}.tool_calls", self._limits)
        content = message.get("content")
        # Templates print what is not there as "None" or stumble over it, so a turn of calls alone gets an empty text.
        turn["content"] = "" if content is None and turn.get("tool_calls") else self._content(content, field)
        for key in ("name", "tool_call_id", "reasoning_content"):
            if message.get(key) is not None:
                turn[key] = _text(message[key], f"{field}.{key}")
        return turn

    def attached(self, kind: MediaKind, index: int) -> Turn:
        """The template's part for an element of a media tensor."""
        self._mentioned.add((kind, index))
        field = f"{kind.value}[{index}]"
        return self._add(kind, field, lambda: check_size(self._tensors[kind][index], field, self._limits))

    def check_all_mentioned(self) -> None:
        for kind, given in self._tensors.items():
            mentioned = sum(1 for other, _ in self._mentioned if other is kind)
            if mentioned < len(given):
                found = f"{len(given)} given, messages refer to {mentioned}"
                allowed = f'every one mentioned by a part {{"type": "{kind.value}", "index": i}}'
                raise InvalidRequest(kind.value, found, allowed)

    def _content(self, content: Any, field: str) -> str | list[Turn]:
        field = f"{field}.content"
        if isinstance(content, str):
            return content
        if not isinstance(content, list) or not content:
            found = "an empty list" if content == [] else json_kind(content)
            raise InvalidRequest(field, found, "a string, or a list of one part or more")
        return [self._part(part, f"{field}[{i}]") for i, part in enumerate(content)]

    def _part(self, part: Any, field: str) -> Turn:
        if not isinstance(part, dict):
            raise InvalidRequest(field, json_kind(part), 'an object with "type"')
        kind = part.get("type")
        if kind == "text":
            return {"type": "text", "text": _text(part.get("text"), f"{field}.text")}
        if kind == "input_audio":
            sound = _object(part.get(kind), f"{field}.{kind}", '{"data": base64, "format": …}')
            where = f"{field}.{kind}.data"
            return self._add(MediaKind.AUDIO, where, lambda: read_base64(sound.get("data"), where, self._limits))
        if isinstance(kind, str) and kind in _URL_PARTS:
            where = f"{field}.{kind}"
            value = part.get(kind)
            url = value if isinstance(value, str) else _object(value, where, 'a string or {"url": …}').get("url")
            return self._add(_URL_PARTS[kind], where, lambda: read_data_url(url, where, self._limits))
        if kind not in _PART_TYPES:
            raise InvalidRequest(f"{field}.type", f"{kind!r}"[:64], ", ".join(_PART_TYPES))
        media = MediaKind(kind)
        given = len(self._tensors.get(media, ()))
        return self.attached(media, read_index(part.get("index"), f"{field}.index", media.value, given))

    def _add(self, kind: MediaKind, field: str, read: Callable[[], bytes]) -> Turn:
        self._counts[kind] += 1
        if self._counts[kind] > self._most[kind]:
            raise InvalidRequest(field, f"{kind.value} number {self._counts[kind]}", f"at most {self._most[kind]}")
        self.media.append(MediaPart(kind, read(), field))
        return {"type": kind.value, kind.value: ""}


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(field, json_kind(value), "a string")
    return value


def _object(value: Any, field: str, allowed: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(field, json_kind(value), allowed)
    return value
