"""The prompt as the thinker sees it: media placeholders opened up to one token per embedding row, and rope positions.

This happens on token ids: a video of 100,000 placeholder tokens is never text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from python_backends.config import TokenIds
from python_backends.messages import IntArray
from python_backends.preprocess.positions import (
    Block,
    VisionGrid,
    text_block,
    video_with_sound_block,
    vision_block,
)


@dataclass(frozen=True, eq=False)
class Prompt:
    """`input_ids` [T], `position_ids` [3, T]; the first generated token stands at position T + `rope_delta`."""

    input_ids: IntArray
    position_ids: IntArray
    rope_delta: int


class PromptBuilder:
    """Puts a prompt together piece by piece, in order."""

    def __init__(self, tokens: TokenIds) -> None:
        self._tokens = tokens
        self._ids: list[IntArray] = []
        self._positions: list[IntArray] = []
        self._next = 0

    def add_text(self, ids: IntArray | Sequence[int]) -> None:
        """Append text tokens (the tokens that embrace media are text too)."""
        self._add(np.asarray(ids, dtype=np.int32), text_block(self._next, len(ids)))

    def add_sound(self, tokens: int) -> None:
        """Append a sound of `tokens` tokens."""
        self._add(_repeat(self._tokens.audio, tokens), text_block(self._next, tokens))

    def add_image(self, grid: VisionGrid) -> None:
        """Append an image."""
        self._add(_repeat(self._tokens.image, grid.tokens), vision_block(self._next, grid))

    def add_video(self, grid: VisionGrid) -> None:
        """Append a video without sound."""
        self._add(_repeat(self._tokens.video, grid.tokens), vision_block(self._next, grid))

    def add_video_with_sound(self, grid: VisionGrid, sound: int) -> None:
        """Append a video whose sound track has `sound` tokens, between the tokens that embrace a sound."""
        self.add_text([self._tokens.audio_start])
        block, order = video_with_sound_block(self._next, grid, sound)
        kinds = np.where(order < grid.tokens, np.int32(self._tokens.video), np.int32(self._tokens.audio))
        self._add(kinds, block)
        self.add_text([self._tokens.audio_end])

    def build(self) -> Prompt:
        """The prompt so far.

        transformers' `generate` (5.24) counts on from the prompt's last position. The model's own `rope_deltas` counts
        from the largest one; they differ only right after a wide video with a short sound track.
        """
        ids = np.concatenate(self._ids)
        positions = np.ascontiguousarray(np.concatenate(self._positions, axis=1))
        return Prompt(ids, positions, int(positions[:, -1].max()) + 1 - len(ids))

    def _add(self, ids: IntArray, block: Block) -> None:
        self._ids.append(ids)
        self._positions.append(block.positions)
        self._next = block.end


def _repeat(token: int, times: int) -> IntArray:
    return np.full(times, token, dtype=np.int32)
