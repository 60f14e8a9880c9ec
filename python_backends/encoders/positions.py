"""Where each patch of a grid stands: inputs of the vision graph that follow from the grid alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.config import VisionConfig
from python_backends.messages import FloatArray


@dataclass(frozen=True, eq=False)
class PatchPositions:
    """Positions of the S = h * w patches of one segment, in the order of merged blocks."""

    index: NDArray[np.int64]  # [4, S] rows of the learnt table
    weight: FloatArray  # [4, S, 1] the rows' shares
    rope_cos: FloatArray  # [S, head_dim / 2]: angles of the row, then of the column
    rope_sin: FloatArray


def patch_positions(config: VisionConfig, height: int, width: int) -> PatchPositions:
    """Positions on a grid of `height` by `width` patches, both multiples of `spatial_merge_size`.

    The learnt table is a square grid, stretched over the image with its corners on the image's corners and read
    bilinearly (transformers `vision_utils`, `align_corners=True`). Rotations are two-dimensional: half of the angles by
    row, half by column (`Qwen3OmniMoeVisionRotaryEmbedding`).
    """
    merge = config.spatial_merge_size
    blocks = np.arange(height * width).reshape(height // merge, merge, width // merge, merge)
    raster = blocks.transpose(0, 2, 1, 3).reshape(-1)
    row, column = raster // width, raster % width

    side = round(config.num_position_embeddings**0.5)
    row_taps, row_shares = _taps(height, side)
    column_taps, column_shares = _taps(width, side)
    index = row_taps[:, None, row] * side + column_taps[None, :, column]
    weight = row_shares[:, None, row] * column_shares[None, :, column]

    row_angles, column_angles = _angles(config, height), _angles(config, width)
    angles = np.concatenate([row_angles[row], column_angles[column]], axis=1)
    return PatchPositions(
        index=index.reshape(4, -1),
        weight=weight.reshape(4, -1, 1),
        rope_cos=np.cos(angles),
        rope_sin=np.sin(angles),
    )


def _taps(size: int, side: int) -> tuple[NDArray[np.int64], FloatArray]:
    """The table's places before and after each of `size` places on an axis, and their shares; both [2, size]."""
    place = np.arange(size, dtype=np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    before = np.floor(place)
    after_share = place - before
    taps = np.minimum(before.astype(np.int64) + np.array([[0], [1]]), side - 1)
    return taps, np.stack([1 - after_share, after_share])


def _angles(config: VisionConfig, size: int) -> FloatArray:
    """Rotation angles along one axis: [size, head_dim / 4]."""
    turned = config.head_dim // 2
    rates = 1 / config.rope_theta ** (np.arange(0, turned, 2, dtype=np.float32) / turned)
    return np.arange(size, dtype=np.float32)[:, None] * rates.astype(np.float32)
