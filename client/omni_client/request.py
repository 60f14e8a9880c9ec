"""A request, as the public contract of the server has it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_client.errors import InvalidRequestError

Media = bytes | str | os.PathLike[str]
"""An encoded file (JPEG, WAV, MP4, ...): its bytes, or the path to it."""


@dataclass(frozen=True)
class Sampling:
    """How the answer is drawn. None leaves the choice to the server: greedy, and as long as the model allows.

    Attributes:
        max_tokens: length of the answer at most.
        temperature: 0 is greedy.
        top_k: draw from so many of the most likely tokens; 0 from all.
        top_p: draw from the most likely tokens that together have this probability.
        repetition_penalty: above 1 discourages tokens that occurred already.
        seed: the same seed gives the same answer.
        stop: the answer ends before the first of these strings.
        ignore_eos: go on after the end-of-sequence token.
        logprobs: report log-probabilities of the tokens and of so many alternatives to each.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    ignore_eos: bool | None = None
    logprobs: int | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """One question to the model: a user turn as `text`, or whole `messages` in OpenAI's form; exactly one of them.

    Attributes:
        image, audio, video: media that stand before `text`, or that `messages` refer to with
            `{"type": "image"|"audio"|"video", "index": i}`.
        tools: function definitions in OpenAI's form.
        use_audio_in_video: read the videos' sound tracks too.
        streaming: whether the server answers in pieces. None: as the method that is called needs it.
        request_id: any name for the request; appears in the server's logs.
        priority: 1 is served first; None is the server's default. Heeded over gRPC only.

    Raises:
        InvalidRequestError: neither or both of `text` and `messages`, or a priority below 1.
    """

    text: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    image: Sequence[Media] = ()
    audio: Sequence[Media] = ()
    video: Sequence[Media] = ()
    sampling: Sampling = field(default_factory=Sampling)
    tools: Sequence[Mapping[str, Any]] | None = None
    use_audio_in_video: bool | None = None
    streaming: bool | None = None
    request_id: str = ""
    priority: int | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.messages is None):
            found = "neither" if self.text is None else "both"
            raise InvalidRequestError(f"text, messages: found {found}; allowed: exactly one of them")
        if self.priority is not None and self.priority < 1:
            raise InvalidRequestError(f"priority: found {self.priority}; allowed: 1 (first) or more")

    def media(self) -> dict[str, tuple[bytes, ...]]:
        """The encoded files by kind; paths are read now.

        Raises:
            InvalidRequestError: a file cannot be read.
        """
        kinds = {"image": self.image, "audio": self.audio, "video": self.video}
        return {
            kind: tuple(_read(f"{kind}[{index}]", item) for index, item in enumerate(items))
            for kind, items in kinds.items()
            if items
        }


def _read(name: str, item: Media) -> bytes:
    if isinstance(item, bytes):
        return item
    try:
        return Path(item).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidRequestError(f"{name}: cannot read {os.fspath(item)}: {reason}") from None
