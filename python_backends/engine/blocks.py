"""Accounting of KV memory in blocks of a fixed number of tokens.

A sequence's entries lie together in its slot (`kv_cache.py`), so a block is no address: it is the unit in which
memory is granted, counted and given back.
"""

from __future__ import annotations


class IntegrityError(RuntimeError):
    """Books that do not add up: a fault of the engine."""


class BlockPool:
    """Grants blocks to slots on demand, and knows who holds how many."""

    def __init__(self, total: int, tokens_per_block: int) -> None:
        if total < 1 or tokens_per_block < 1:
            raise ValueError(f"found {total} blocks of {tokens_per_block} tokens; allowed: at least one of one")
        self.total = total
        self.tokens_per_block = tokens_per_block
        self._held: dict[int, int] = {}
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    @property
    def free(self) -> int:
        return self.total - self._used

    def blocks_for(self, tokens: int) -> int:
        """The fewest blocks that hold `tokens` entries."""
        return -(-tokens // self.tokens_per_block)

    def held(self, slot: int) -> int:
        return self._held.get(slot, 0)

    def grow(self, slot: int, tokens: int) -> bool:
        """Grant `slot` what it lacks for `tokens` entries; all of it, or False and nothing."""
        missing = self.blocks_for(tokens) - self.held(slot)
        if missing <= 0:
            return True
        if missing > self.free:
            return False
        self._held[slot] = self.held(slot) + missing
        self._used += missing
        return True

    def release(self, slot: int) -> int:
        """Take back all blocks of `slot`; how many they were."""
        blocks = self._held.pop(slot, 0)
        self._used -= blocks
        return blocks

    def check(self) -> None:
        """
        Raises:
            IntegrityError: the holders' blocks do not add up to those in use, or are more than there are.
        """
        held = sum(self._held.values())
        if held != self._used or not 0 <= self._used <= self.total or min(self._held.values(), default=1) < 1:
            raise IntegrityError(f"blocks: holders have {self._held}, {self._used} of {self.total} are counted as used")
