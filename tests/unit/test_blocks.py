"""Accounting of KV memory in blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.engine.blocks import BlockPool, IntegrityError


def test_blocks_are_granted_as_entries_come_and_all_come_back_at_once() -> None:
    pool = BlockPool(total=10, tokens_per_block=4)
    assert pool.grow(slot=0, tokens=1)
    assert pool.grow(slot=0, tokens=4)
    assert pool.held(0) == 1
    assert pool.grow(slot=0, tokens=5)
    assert (pool.held(0), pool.used, pool.free) == (2, 2, 8)
    assert pool.release(0) == 2
    assert (pool.held(0), pool.used, pool.release(0)) == (0, 0, 0)


def test_what_does_not_fit_is_refused_whole() -> None:
    pool = BlockPool(total=3, tokens_per_block=4)
    assert pool.grow(slot=0, tokens=8)
    assert not pool.grow(slot=1, tokens=5)
    assert (pool.held(1), pool.free) == (0, 1)
    assert pool.grow(slot=1, tokens=4)


@pytest.mark.parametrize(("total", "tokens_per_block"), [(0, 4), (4, 0)])
def test_a_pool_without_room_is_refused(total: int, tokens_per_block: int) -> None:
    with pytest.raises(ValueError, match="at least one of one"):
        BlockPool(total, tokens_per_block)


def test_books_that_do_not_add_up_are_noticed() -> None:
    pool = BlockPool(total=3, tokens_per_block=4)
    pool.grow(slot=0, tokens=8)
    pool._held[1] = 1
    with pytest.raises(IntegrityError, match="2 of 3 are counted as used"):
        pool.check()


@given(
    total=st.integers(1, 20),
    size=st.integers(1, 8),
    moves=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60) | st.none())),
)
def test_no_order_of_grants_and_returns_loses_or_doubles_a_block(
    total: int, size: int, moves: list[tuple[int, int | None]]
) -> None:
    pool = BlockPool(total, size)
    needs: dict[int, int] = {}
    for slot, tokens in moves:
        if tokens is None:
            assert pool.release(slot) == needs.pop(slot, 0)
        else:
            wanted = max(needs.get(slot, 0), -(-tokens // size))
            fits = sum(needs.values()) - needs.get(slot, 0) + wanted <= total
            assert pool.grow(slot, tokens) == fits
            if fits:
                needs[slot] = wanted
        pool.check()
        assert pool.used == sum(needs.values()) == total - pool.free
