"""Numbers that describe repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Median and spread of one quantity; `low` and `high` are the extremes."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """
        Raises:
            ValueError: no values.
        """
        if not values:
            raise ValueError("values: found none; allowed: one or more")
        return cls(statistics.median(values), min(values), max(values), len(values))


def paired_loss(base: Sequence[float], other: Sequence[float]) -> Summary:
    """How much smaller `other` is than `base`, in percent, from pairs that were measured one after the other."""
    return Summary.of([100 * (1 - b / a) for a, b in zip(base, other, strict=True)])


def paired_excess(base: Sequence[float], other: Sequence[float]) -> Summary:
    """How much larger `other` is than `base`, in its own unit, pair by pair."""
    return Summary.of([b - a for a, b in zip(base, other, strict=True)])
