"""Seeded random weights whose bits do not depend on the machine or on numpy's version.

`numpy.random.Generator` may change its streams between versions and uses the C library's logarithm; the raw integers of
a bit generator never change, and sums of integers need no library.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

_LOW_HALVES = np.uint64(0x0000FFFF0000FFFF)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_MEAN = np.float32(2 * 65535)
_DEVIATION = np.float32(4 * 65536 / np.sqrt(48))  # of a sum of four whole numbers, each uniform over 0..65535


def normal(shape: tuple[int, ...], seed: int, name: str) -> NDArray[np.float32]:
    """Nearly normal values of mean 0 and deviation 1, at most 3.5 away; the same for equal seed, name and shape."""
    source = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
    raw = source.random_raw(int(np.prod(shape)))
    halves = (raw & _LOW_HALVES) + ((raw >> np.uint64(16)) & _LOW_HALVES)
    total = (halves & _LOW_WORD) + (halves >> np.uint64(32))
    return ((total.astype(np.float32) - _MEAN) / _DEVIATION).reshape(shape)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of the floats, rounded to nearest even."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
