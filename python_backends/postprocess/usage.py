"""What a request consumed, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from python_backends.messages import ResponseSpec, ThinkerUsage


@dataclass(frozen=True)
class Usage:
    """Token counts and times of one finished answer; `prompt_tokens` is the sum of the four kinds."""

    completion_tokens: int
    text_tokens: int
    image_tokens: int
    audio_tokens: int
    video_tokens: int
    cached_tokens: int
    audio_seconds: float
    times_ms: Mapping[str, float]

    @classmethod
    def of(cls, spec: ResponseSpec, thinker: ThinkerUsage | None, completion_tokens: int) -> Usage:
        """The account of a text answer; `thinker` is what the thinker reported last."""
        return cls(
            completion_tokens=completion_tokens,
            text_tokens=spec.text_tokens,
            image_tokens=spec.image_tokens,
            audio_tokens=spec.audio_tokens,
            video_tokens=spec.video_tokens,
            cached_tokens=thinker.cached_tokens if thinker else 0,
            audio_seconds=0.0,
            times_ms={**spec.times_ms, **(thinker.times_ms if thinker else {})},
        )

    @property
    def prompt_tokens(self) -> int:
        return self.text_tokens + self.image_tokens + self.audio_tokens + self.video_tokens

    def to_json(self) -> str:
        """The value of the output `usage`."""
        return json.dumps(
            {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "total_tokens": self.prompt_tokens + self.completion_tokens,
                "prompt_tokens_details": {
                    "text_tokens": self.text_tokens,
                    "image_tokens": self.image_tokens,
                    "audio_tokens": self.audio_tokens,
                    "video_tokens": self.video_tokens,
                    "cached_tokens": self.cached_tokens,
                },
                "audio_seconds": self.audio_seconds,
                "times_ms": dict(self.times_ms),
            },
            allow_nan=False,
        )
