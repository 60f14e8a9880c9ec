"""KV memory: slots, and what the operating system commits for them."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.engine.blocks import IntegrityError
from python_backends.engine.kv_cache import KVCache, KVShape
from python_backends.messages import FloatArray


def committed(array: FloatArray) -> int:
    """Bytes of memory behind the mapping that holds `array`."""
    address = array.__array_interface__["data"][0]
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        first = line.split()[0]
        if "-" in first:
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "Rss:":
            return int(line.split()[1]) * 1024
    raise AssertionError("the array lies in no mapping")


def test_only_entries_that_were_written_take_memory_and_a_slot_gives_all_of_it_back() -> None:
    cache = KVCache(KVShape(layers=1, kv_heads=2, head_dim=16, slots=4, tokens=100_000))
    slot = cache.acquire()
    before = committed(cache.keys[0])
    cache.keys[0][slot, :, : 10 * mmap.PAGESIZE // 64] = 1
    assert committed(cache.keys[0]) - before == 20 * mmap.PAGESIZE
    cache.release(slot)
    assert committed(cache.keys[0]) == before
    assert not cache.keys[0][slot, :, :100].any()


def test_giving_a_slot_back_leaves_its_neighbours_alone() -> None:
    cache = KVCache(KVShape(layers=2, kv_heads=2, head_dim=24, slots=3, tokens=77))
    for array in (*cache.keys, *cache.values):
        array[...] = 5
    for _ in range(3):
        cache.acquire()
    cache.release(1)
    for array in (*cache.keys, *cache.values):
        assert (array[[0, 2]] == 5).all()
        assert not array[1].any()


@pytest.mark.parametrize("head_dim", [16, 24, 64, 80, 128])
def test_slots_have_the_asked_room_and_begin_at_page_borders(head_dim: int) -> None:
    shape = KVShape(layers=3, kv_heads=2, head_dim=head_dim, slots=2, tokens=1001)
    assert shape.capacity >= 1001
    assert shape.slot_bytes % mmap.PAGESIZE == 0
    cache = KVCache(shape)
    assert len(cache.keys) == len(cache.values) == 3
    assert cache.keys[0].shape == (2, 2, shape.capacity, head_dim)
    assert shape.bytes_per_token == 3 * 2 * 2 * head_dim * 4


def test_the_lowest_free_slot_goes_first() -> None:
    cache = KVCache(KVShape(1, 1, 16, slots=4, tokens=64))
    assert [cache.acquire() for _ in range(4)] == [0, 1, 2, 3]
    cache.release(2)
    cache.release(0)
    assert [cache.acquire(), cache.acquire()] == [0, 2]


def test_more_slots_than_there_are_and_double_returns_are_errors() -> None:
    cache = KVCache(KVShape(1, 1, 16, slots=1, tokens=64))
    slot = cache.acquire()
    with pytest.raises(IntegrityError, match="all 1 are taken"):
        cache.acquire()
    cache.release(slot)
    with pytest.raises(IntegrityError, match="given back but not taken"):
        cache.release(slot)


@given(st.lists(st.integers(0, 5)))
def test_no_order_of_taking_and_returning_loses_a_slot(moves: list[int]) -> None:
    cache = KVCache(KVShape(1, 1, 16, slots=5, tokens=64))
    taken: set[int] = set()
    for move in moves:
        if move in taken:
            cache.release(move)
            taken.remove(move)
        elif cache.free:
            slot = cache.acquire()
            assert slot == min(set(range(5)) - taken)
            taken.add(slot)
        cache.check()
        assert (cache.used, cache.free) == (len(taken), 5 - len(taken))
