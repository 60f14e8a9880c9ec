"""What comes back: pieces of text, and the whole answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from omni_client.errors import ServerError


@dataclass(frozen=True)
class Usage:
    """Tokens and time that a request took; `prompt_tokens` counts the other kinds together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    text_tokens: int = 0
    image_tokens: int = 0
    audio_tokens: int = 0
    video_tokens: int = 0
    cached_tokens: int = 0
    audio_seconds: float = 0.0
    times_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Usage:
        """Read OpenAI's form; what is missing is 0, what is unknown is left out."""
        flat = {**value, **(value.get("prompt_tokens_details") or {})}
        return cls(**{name: flat[name] for name in cls.__dataclass_fields__ if name in flat})

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's form again."""
        flat = asdict(self)
        kinds = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens", "cached_tokens")
        details = {kind: flat.pop(kind) for kind in kinds}
        return {**flat, "prompt_tokens_details": details}


@dataclass(frozen=True)
class Piece:
    """The next piece of an answer. The last one has a finish reason (`stop`, `length`, `tool_calls`) and usage.

    `logprobs` is OpenAI's form, `{"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...]}`, for this piece.
    """

    text: str
    finish_reason: str | None = None
    usage: Usage | None = None
    logprobs: Mapping[str, Any] | None = None

    @classmethod
    def from_outputs(cls, outputs: Mapping[str, str]) -> Piece:
        """A piece from the output tensors of one response, by name.

        Raises:
            ServerError: usage or log-probabilities are not JSON objects.
        """
        usage = _object("usage", outputs)
        return cls(
            text=outputs.get("text_output", ""),
            finish_reason=outputs.get("finish_reason"),
            usage=None if usage is None else Usage.from_dict(usage),
            logprobs=_object(LOGPROBS_OUTPUT, outputs),
        )


LOGPROBS_OUTPUT = "output_logprobs"
OUTPUTS = ("text_output", "finish_reason", "usage", LOGPROBS_OUTPUT)


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    text: str
    finish_reason: str | None
    usage: Usage | None
    logprobs: Mapping[str, Any] | None = None

    @classmethod
    def from_pieces(cls, pieces: Iterable[Piece]) -> Answer:
        """Put the pieces of one answer together."""
        texts: list[str] = []
        tokens: list[Any] = []
        finish_reason, usage, with_logprobs = None, None, False
        for piece in pieces:
            texts.append(piece.text)
            finish_reason = piece.finish_reason or finish_reason
            usage = piece.usage or usage
            if piece.logprobs is not None:
                with_logprobs = True
                tokens.extend(piece.logprobs.get("content") or ())
        return cls("".join(texts), finish_reason, usage, {"content": tokens} if with_logprobs else None)


def _object(name: str, outputs: Mapping[str, str]) -> dict[str, Any] | None:
    if name not in outputs:
        return None
    try:
        value = json.loads(outputs[name])
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ServerError(f"{name}: found {outputs[name][:80]!r}; allowed: a JSON object")
    return value
