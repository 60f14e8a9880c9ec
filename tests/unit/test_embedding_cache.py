from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from python_backends.encoders.cache import EmbeddingCache
from python_backends.messages import FloatArray


def array(floats: int, value: float = 0) -> FloatArray:
    return np.full(floats, value, np.float32)


def test_what_was_put_is_found_again() -> None:
    cache = EmbeddingCache(100)
    kept = array(5)
    cache.put("a", kept)
    assert cache.get("a") is kept
    assert cache.get("b") is None
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries, stats.bytes_used, stats.bytes_limit) == (1, 1, 1, 20, 100)


def test_the_least_recently_used_go_first_when_bytes_run_out() -> None:
    cache = EmbeddingCache(100)
    for key in "abc":
        cache.put(key, array(8))
    cache.get("a")
    cache.put("d", array(8))
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]
    assert cache.stats().evictions == 1
    assert cache.stats().bytes_used == 96


def test_a_large_array_drops_as_many_small_ones_as_it_needs() -> None:
    cache = EmbeddingCache(100)
    for key in "abc":
        cache.put(key, array(8))
    cache.put("d", array(17))
    assert [key for key in "abcd" if cache.get(key) is not None] == ["c", "d"]


def test_an_array_larger_than_the_cache_is_not_kept_and_drops_nothing() -> None:
    cache = EmbeddingCache(100)
    cache.put("a", array(5))
    cache.put("b", array(26))
    assert cache.get("b") is None
    assert cache.get("a") is not None


def test_a_limit_of_zero_keeps_nothing() -> None:
    cache = EmbeddingCache(0)
    cache.put("a", array(1))
    assert cache.get("a") is None
    with pytest.raises(ValueError, match="bytes_limit: found -1"):
        EmbeddingCache(-1)


def test_a_key_that_is_put_again_counts_once() -> None:
    cache = EmbeddingCache(100)
    cache.put("a", array(20))
    cache.put("a", array(10, 1))
    found = cache.get("a")
    assert found is not None
    assert found[0] == 1
    assert cache.stats().bytes_used == 40
    assert cache.stats().evictions == 0


def test_a_cached_array_cannot_be_written_to() -> None:
    cache = EmbeddingCache(100)
    cache.put("a", array(5))
    found = cache.get("a")
    assert found is not None
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_a_view_is_refused_because_it_would_hold_more_than_it_counts() -> None:
    with pytest.raises(ValueError, match="array of a: found a view"):
        EmbeddingCache(100).put("a", array(50)[:5])


def test_resolve_computes_each_missing_key_once_and_keeps_the_order() -> None:
    cache = EmbeddingCache(1000)
    cache.put("known", array(1, 7))
    asked: list[Sequence[int]] = []

    def compute(places: Sequence[int]) -> list[FloatArray]:
        asked.append(places)
        return [array(1, place) for place in places]

    found = cache.resolve(["new", "known", "other", "new"], compute)
    assert [int(one[0]) for one in found] == [0, 7, 2, 0]
    assert asked == [[0, 2]]
    assert (cache.stats().hits, cache.stats().misses) == (1, 2)


def test_resolve_calls_nothing_when_everything_is_known() -> None:
    cache = EmbeddingCache(1000)
    cache.put("known", array(1, 7))

    def compute(_: Sequence[int]) -> list[FloatArray]:
        raise AssertionError

    assert int(cache.resolve(["known", "known"], compute)[0][0]) == 7
    assert cache.resolve([], compute) == []


def test_resolve_gives_what_it_cannot_keep() -> None:
    assert int(EmbeddingCache(0).resolve(["a"], lambda _: [array(9, 3)])[0][0]) == 3


def test_a_failed_computation_leaves_nothing_behind() -> None:
    cache = EmbeddingCache(1000)

    def fail(_: Sequence[int]) -> list[FloatArray]:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        cache.resolve(["a"], fail)
    assert cache.get("a") is None


def test_many_threads_leave_the_byte_count_right() -> None:
    cache = EmbeddingCache(4 * 64)

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for key in generator.integers(0, 40, 300):
            found = cache.resolve([str(key)], lambda _, size=int(key): [array(size + 1, size)])  # type: ignore[misc]
            assert found[0].shape == (key + 1,)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cache.stats()
    held = [found for key in range(40) if (found := cache.get(str(key))) is not None]
    assert stats.bytes_used == sum(one.nbytes for one in held) <= stats.bytes_limit
    assert stats.entries == len(held)
    assert stats.hits + stats.misses == 1200
