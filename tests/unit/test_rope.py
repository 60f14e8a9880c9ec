"""Rotation angles of interleaved M-RoPE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from python_backends.engine.rope import MRope
from python_backends.messages import FloatArray


def rows(rope: MRope, positions: NDArray[np.int64], half: int) -> tuple[FloatArray, FloatArray]:
    cos, sin = (np.empty((positions.shape[1], half), np.float32) for _ in range(2))
    rope.rows(positions, cos, sin)
    return cos, sin


def test_text_turns_as_plain_rope_does() -> None:
    positions = np.tile(np.arange(1000), (3, 1))
    cos, sin = rows(MRope(64, 1e6, (12, 10, 10)), positions, 32)
    angles = positions[0][:, None] * 1e6 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(cos, np.cos(angles), atol=2e-4)
    np.testing.assert_allclose(sin, np.sin(angles), atol=2e-4)


def test_time_height_and_width_take_turns_until_their_sections_end() -> None:
    rope = MRope(128, 1.0, (24, 20, 20))  # with base 1 every column turns by the position itself
    cos, sin = rows(rope, np.array([[1], [2], [3]]), 64)
    turned_by = np.rint(np.arctan2(sin[0], cos[0])).astype(int).tolist()
    assert turned_by == [1, 2, 3] * 20 + [1] * 4


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    rope = MRope(32, 1e6, (6, 5, 5))
    positions = np.random.default_rng(0).integers(0, 30_000, (3, 50))
    together = rows(rope, positions, 16)
    for index in range(50):
        alone = rows(rope, positions[:, index : index + 1], 16)
        for part, whole in zip(alone, together, strict=True):
            np.testing.assert_allclose(part[0], whole[index], atol=1e-6)
