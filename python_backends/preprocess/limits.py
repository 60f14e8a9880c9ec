"""What a request may ask for at most. Preprocess refuses the rest before it costs anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import get_type_hints


class LimitsError(ValueError):
    """A limit in the model's configuration is unknown or is no positive number."""


@dataclass(frozen=True)
class Limits:
    """Upper limits of a request; every one is a positive number.

    The defaults of the two body limits are those of the access layer, so that a request that passes there passes here.
    """

    max_request_bytes: int = 32 * 1024 * 1024  # everything in one request together, as it came in
    max_media_bytes: int = 20 * 1024 * 1024  # one encoded image, sound or video
    max_images: int = 32
    max_sounds: int = 16
    max_videos: int = 4
    max_image_pixels: int = 64 * 1024 * 1024  # one decoded image: the guard against decompression bombs
    max_frame_pixels: int = 2 * 3840 * 2160  # one decoded frame of a video; decoders hold many at a time
    max_audio_seconds: float = 1800.0
    max_video_seconds: float = 1800.0
    max_messages: int = 1024
    max_json_depth: int = 64  # nesting of `messages` and `tools`
    max_prompt_chars: int = 1024 * 1024  # the prompt as text, before its media tokens are expanded
    max_stop_strings: int = 16
    max_stop_chars: int = 256  # one stop string
    max_tools: int = 128
    max_tokens_default: int = 4096  # tokens to generate at most when the request names no number
    media_threads: int = 2  # media of one request that are decoded at the same time

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 < value < float("inf"):
                raise LimitsError(f"{item.name}: found {value}; allowed: a positive number")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> Limits:
        """The limits named in a model configuration (`parameters` of config.pbtxt); the others keep their defaults.

        Raises:
            LimitsError: an unknown name, or a value that is no positive number.
        """
        kinds = get_type_hints(cls)
        values: dict[str, int | float] = {}
        for name, text in parameters.items():
            if name not in kinds:
                raise LimitsError(f"limit {name!r}: not known; allowed: {', '.join(sorted(kinds))}")
            try:
                values[name] = kinds[name](text)
            except ValueError:
                what = "a whole number" if kinds[name] is int else "a number"
                raise LimitsError(f"{name}: found {text!r}; allowed: {what}") from None
        return cls(**values)  # type: ignore[arg-type]
