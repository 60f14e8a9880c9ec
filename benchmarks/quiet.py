"""Measuring while nothing else runs, or saying how much did."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")

IDLE_PERCENT = 90.0  # the machine counts as quiet
OTHERS_PERCENT = 5.0  # a measurement with more than this taken by others is repeated
TRIES = 4
PATIENCE = 60.0  # seconds to wait for a quiet machine
_WINDOW = 0.5  # seconds


@dataclass(frozen=True)
class Load:
    """The machine before a measurement (load average of a minute, idle CPU), and the CPU others took meanwhile."""

    average: float
    idle_percent: float
    others_percent: float


def undisturbed(measure: Callable[[], T]) -> tuple[T, Load]:
    """Measure on a quiet machine; again, at most `TRIES` times, if others took CPU. The least disturbed one counts."""
    best: tuple[T, Load] | None = None
    for _ in range(TRIES):
        idle = _wait_until_quiet()
        average = os.getloadavg()[0]
        started, busy, own = time.perf_counter(), _busy_seconds(), _own_seconds()
        found = measure()
        others = (_busy_seconds() - busy) - (_own_seconds() - own)
        share = 100 * others / ((time.perf_counter() - started) * (os.cpu_count() or 1))
        load = Load(round(average, 2), round(idle, 1), round(max(share, 0.0), 1))
        if best is None or load.others_percent < best[1].others_percent:
            best = found, load
        if share <= OTHERS_PERCENT:
            break
    assert best is not None
    return best


def _wait_until_quiet() -> float:
    deadline = time.monotonic() + PATIENCE
    while (idle := psutil.cpu_times_percent(_WINDOW).idle) < IDLE_PERCENT and time.monotonic() < deadline:
        pass  # the call above takes its window
    return float(idle)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def _own_seconds() -> float:
    """This process and all below it: the server and the workers are its children."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total
