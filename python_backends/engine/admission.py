"""Requests that wait for a slot."""

from __future__ import annotations

from bisect import insort

from python_backends.engine.sequence import Sequence
from python_backends.errors import Overloaded


class AdmissionQueue:
    """A bounded queue; the oldest goes first, so a sequence that lost its slot goes before all that never had one.

    Which one is next is decided here alone: weights and ageing by traffic class belong into `peek` and `pop`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, sequence: Sequence) -> None:
        """
        Raises:
            Overloaded: as many as are allowed wait already.
        """
        if len(self._waiting) >= self._limit:
            raise Overloaded(f"{len(self._waiting)} requests are waiting; allowed: {self._limit}")
        self._insert(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Take back a sequence that was admitted before; never refused."""
        self._insert(sequence)

    def peek(self) -> Sequence | None:
        """The one that `pop` would give."""
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Sequence:
        return self._waiting.pop(0)

    def remove(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)

    def _insert(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=lambda waiting: waiting.order)
