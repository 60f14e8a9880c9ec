"""KV memory of the running sequences: one contiguous slot each, committed by the operating system as it is written.

Every layer's keys and values lie in one array [slots, kv_heads, capacity, head_dim] over a private anonymous mapping.
A page takes memory only once something was written to it, so a slot can have room for the longest sequence; giving a
slot back returns its pages (madvise(2), MADV_DONTNEED), after which they read as zeros.
"""

from __future__ import annotations

import heapq
import math
import mmap
from dataclasses import dataclass

import numpy as np

from python_backends.engine.blocks import IntegrityError
from python_backends.messages import FloatArray

# <bits/mman-map-flags-generic.h>; Python names it from 3.13 on
_MAP_NORESERVE = 0x4000


@dataclass(frozen=True)
class KVShape:
    """Sizes of the cache. `tokens` is the most entries that a slot must hold."""

    layers: int
    kv_heads: int
    head_dim: int
    slots: int
    tokens: int

    @property
    def capacity(self) -> int:
        """Entries of a slot, rounded up so that slots begin at page borders and can be given back alone."""
        entry_bytes = self.head_dim * 4
        step = mmap.PAGESIZE // math.gcd(mmap.PAGESIZE, entry_bytes)
        return -(-self.tokens // step) * step

    @property
    def slot_bytes(self) -> int:
        """Address space of one slot in one array."""
        return self.kv_heads * self.capacity * self.head_dim * 4

    @property
    def bytes_per_token(self) -> int:
        """Memory of one cached token over all layers, keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


class KVCache:
    """The arrays, and who has which slot. Not thread-safe: only the engine's thread uses it.

    Raises:
        OSError: no address space for the mappings.
    """

    def __init__(self, shape: KVShape) -> None:
        self.shape = shape
        self._maps = [_reserve(shape.slots * shape.slot_bytes) for _ in range(2 * shape.layers)]
        dims = (shape.slots, shape.kv_heads, shape.capacity, shape.head_dim)
        arrays = [np.frombuffer(area, np.float32).reshape(dims) for area in self._maps]
        self.keys: tuple[FloatArray, ...] = tuple(arrays[0::2])
        self.values: tuple[FloatArray, ...] = tuple(arrays[1::2])
        self._free = list(range(shape.slots))
        self._used: set[int] = set()

    @property
    def used(self) -> int:
        return len(self._used)

    @property
    def free(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        """Take the lowest free slot, so that a batch over slots 0..n stays short.

        Raises:
            IntegrityError: all slots are taken.
        """
        if not self._free:
            raise IntegrityError(f"slots: all {self.shape.slots} are taken")
        slot = heapq.heappop(self._free)
        self._used.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Give a slot and its memory back.

        Raises:
            IntegrityError: the slot was not taken.
        """
        if slot not in self._used:
            raise IntegrityError(f"slot {slot} was given back but not taken")
        self._used.remove(slot)
        heapq.heappush(self._free, slot)
        for area in self._maps:
            area.madvise(mmap.MADV_DONTNEED, slot * self.shape.slot_bytes, self.shape.slot_bytes)

    def check(self) -> None:
        """
        Raises:
            IntegrityError: a slot is lost, or is both free and taken.
        """
        if sorted([*self._free, *self._used]) != list(range(self.shape.slots)):
            raise IntegrityError(f"slots: {sorted(self._free)} free, {sorted(self._used)} taken of {self.shape.slots}")


def _reserve(size: int) -> mmap.mmap:
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    # a huge page would commit 2 MB for the first token of every head
    area.madvise(mmap.MADV_NOHUGEPAGE)
    return area
