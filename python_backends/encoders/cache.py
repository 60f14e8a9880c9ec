"""Embeddings that were computed before, found again by the content they came from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from python_backends.messages import FloatArray


@dataclass(frozen=True)
class CacheStats:
    """Counters since the start, and what the cache holds, all read at one moment.

    Each distinct key of a call counts once: as a hit, or as a miss that was computed.
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes_used: int
    bytes_limit: int


class EmbeddingCache:
    """Maps a media key to its embeddings; the least recently used are dropped beyond `bytes_limit` bytes.

    Arrays are kept and handed out read-only, not copied. An array larger than the limit is not kept; limit 0 keeps
    none. Thread-safe.
    """

    def __init__(self, bytes_limit: int) -> None:
        if bytes_limit < 0:
            raise ValueError(f"bytes_limit: found {bytes_limit}; allowed: 0 or more")
        self._bytes_limit = bytes_limit
        self._arrays: OrderedDict[str, FloatArray] = OrderedDict()  # the least recently used first
        self._bytes_used = 0
        self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> FloatArray | None:
        """The array of a key, now the most recently used; None if it is not held."""
        with self._lock:
            array = self._arrays.get(key)
            if array is None:
                self._misses += 1
                return None
            self._hits += 1
            self._arrays.move_to_end(key)
            return array

    def put(self, key: str, array: FloatArray) -> None:
        """Hold an array, which becomes read-only, and drop older ones if there is no room.

        The array must own its memory: a view would keep the whole of its base alive.
        """
        if array.base is not None:
            raise ValueError(f"array of {key}: found a view; allowed: an array that owns its memory")
        array.setflags(write=False)
        with self._lock:
            replaced = self._arrays.pop(key, None)
            if replaced is not None:
                self._bytes_used -= replaced.nbytes
            if array.nbytes > self._bytes_limit:
                return
            self._arrays[key] = array
            self._bytes_used += array.nbytes
            while self._bytes_used > self._bytes_limit:
                _, dropped = self._arrays.popitem(last=False)
                self._bytes_used -= dropped.nbytes
                self._evictions += 1

    def resolve(
        self, keys: Sequence[str], compute: Callable[[Sequence[int]], Sequence[FloatArray]]
    ) -> list[FloatArray]:
        """The arrays of `keys`, in their order.

        `compute` is called at most once, with the places in `keys` of what is not held, one place for each distinct
        key, and returns their arrays. It runs outside the lock: two threads that miss the same key both compute it.
        """
        found: dict[str, FloatArray] = {}
        missing: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key in found or key in missing:
                continue
            array = self.get(key)
            if array is None:
                missing[key] = place
            else:
                found[key] = array
        if missing:
            for key, array in zip(missing, compute(list(missing.values())), strict=True):
                self.put(key, array)
                found[key] = array
        return [found[key] for key in keys]

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions,
                entries=len(self._arrays),
                bytes_used=self._bytes_used,
                bytes_limit=self._bytes_limit,
            )
