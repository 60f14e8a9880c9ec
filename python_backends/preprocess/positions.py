"""3-D rope positions of media tokens (time, height, width), as Qwen3-Omni's `get_rope_index` gives them.

Text and sound tokens stand one after another, alike on all three axes. The tokens of an image or video share the
position where it begins: time grows with the video's clock, height and width with a token's row and column. What
follows begins after the largest of these positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from python_backends.messages import IntArray

# The audio encoder makes 13 tokens of 100 mel frames; fewer frames go through three convolutions of stride 2.
_CHUNK_FRAMES = 100
_CHUNK_TOKENS = 13
_CONVOLUTIONS = 3


@dataclass(frozen=True)
class VisionGrid:
    """The tokens of an image (`steps` 1) or video: `steps` temporal patches of `rows` x `columns` tokens.

    `stride` is the distance in time positions between two temporal patches.
    """

    steps: int
    rows: int
    columns: int
    stride: int

    @property
    def tokens(self) -> int:
        return self.steps * self.rows * self.columns


@dataclass(frozen=True, eq=False)
class Block:
    """Positions [3, n] of a run of tokens, and the position at which the next run begins."""

    positions: IntArray
    end: int


def sound_tokens(frames: int) -> int:
    """Tokens that the audio encoder makes of `frames` mel frames (`_get_feat_extract_output_lengths`)."""
    chunks, rest = divmod(frames, _CHUNK_FRAMES)
    for _ in range(_CONVOLUTIONS):
        rest = (rest + 1) // 2
    return chunks * _CHUNK_TOKENS + rest


def text_block(start: int, tokens: int) -> Block:
    """Positions of text, or of a sound alone."""
    line = np.arange(start, start + tokens, dtype=np.int32)
    return Block(np.broadcast_to(line, (3, tokens)), start + tokens)


def vision_block(start: int, grid: VisionGrid) -> Block:
    """Positions of an image, or of a video without sound."""
    shape = (grid.steps, grid.rows, grid.columns)
    axes = np.indices(shape, dtype=np.int32).reshape(3, -1)
    axes[0] *= grid.stride
    furthest = max((grid.steps - 1) * grid.stride, grid.rows - 1, grid.columns - 1)
    return Block(axes + np.int32(start), start + furthest + 1)


def video_with_sound_block(start: int, grid: VisionGrid, sound: int) -> tuple[Block, IntArray]:
    """Positions of a video and its sound track of `sound` tokens, merged by time; at equal times the video comes first.

    Returns:
        The block, and `order` [grid.tokens + sound]: which token stands there, counting the video's, then the sound's.
    """
    both = np.concatenate((vision_block(start, grid).positions, text_block(start, sound).positions), axis=1)
    order = np.argsort(both[0], kind="stable")
    merged = both[:, order]
    # The reference goes on from the last piece that it appended: the tokens that remain when one of the two kinds has
    # run out. A wide frame earlier in the merge may well reach further than that.
    is_sound = order >= grid.tokens
    tail = np.flatnonzero(is_sound != is_sound[-1])
    first = int(tail[-1]) + 1 if tail.size else 0
    return Block(merged, int(merged[:, first:].max()) + 1), order.astype(np.int32)
