"""Rotation angles of interleaved M-RoPE (`Qwen3OmniMoeThinkerTextRotaryEmbedding` in transformers)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from python_backends.messages import FloatArray


class MRope:
    """Turns position ids (time, height, width) into rows of cosines and sines.

    Column j of the D/2 frequencies turns by the height if j = 1 (mod 3) and by the width if j = 2 (mod 3), as far as
    their sections reach; all other columns turn by the time.
    """

    def __init__(self, head_dim: int, theta: float, section: tuple[int, int, int]) -> None:
        exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        # The power is rounded to fp32 before the division, as in the reference: at position 32,000 a last bit of a
        # frequency is 0.002 in the cosine.
        powers = np.power(np.float64(theta), exponents.astype(np.float64)).astype(np.float32)
        self._frequencies: FloatArray = np.float32(1) / powers
        self._axis = np.zeros(head_dim // 2, np.intp)
        for axis in (1, 2):
            self._axis[axis : 3 * section[axis] : 3] = axis

    def rows(self, positions: NDArray[np.int64], cos: FloatArray, sin: FloatArray) -> None:
        """Fill `cos` and `sin` [T, D/2] for `positions` [3, T]."""
        angles = positions.astype(np.float32)[self._axis].T * self._frequencies
        np.cos(angles, out=cos)
        np.sin(angles, out=sin)
