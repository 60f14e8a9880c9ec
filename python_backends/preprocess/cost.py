"""What a request will cost, and which class of traffic it belongs to, from its prompt alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from python_backends.config import TokenIds
from python_backends.messages import IntArray, RequestCost, TrafficClass
from python_backends.preprocess.chat import MediaKind

# From light to heavy, by what a typical one costs: the heaviest kind of media decides.
_CLASSES = {
    MediaKind.AUDIO: TrafficClass.AUDIO,
    MediaKind.IMAGE: TrafficClass.IMAGE,
    MediaKind.VIDEO: TrafficClass.VIDEO,
}


@dataclass(frozen=True)
class TokenCounts:
    """Prompt tokens by kind. A video's sound track counts as audio, the tokens that embrace media as text."""

    text: int
    image: int
    audio: int
    video: int

    @classmethod
    def of(cls, input_ids: IntArray, tokens: TokenIds) -> TokenCounts:
        """Count the ids of a whole prompt."""
        image, audio, video = (
            int(np.count_nonzero(input_ids == t)) for t in (tokens.image, tokens.audio, tokens.video)
        )
        return cls(len(input_ids) - image - audio - video, image, audio, video)

    @property
    def total(self) -> int:
        return self.text + self.image + self.audio + self.video


def request_cost(counts: TokenCounts, frames: int, max_tokens: int) -> RequestCost:
    """The cost of a prompt with `frames` video frames that is answered with `max_tokens` tokens at most."""
    return RequestCost(
        prompt_tokens=counts.total,
        vision_tokens=counts.image + counts.video,
        audio_tokens=counts.audio,
        frames=frames,
        max_tokens=max_tokens,
    )


def traffic_class(kinds: Iterable[MediaKind]) -> TrafficClass:
    """The class of a request whose media are of these kinds."""
    present = set(kinds)
    classes = [traffic for kind, traffic in _CLASSES.items() if kind in present]
    return classes[-1] if classes else TrafficClass.TEXT
