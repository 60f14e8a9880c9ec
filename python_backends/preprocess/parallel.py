"""Threads that share the arithmetic of one sound, image or video; they end with the call.

numpy, Pillow and FFmpeg let go of the interpreter lock while they compute, so threads are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_slices(length: int, smallest: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Call `work(start, stop)` for ranges that cover 0..length, on up to `threads` threads, the caller's among them.

    Ranges are not shorter than `smallest` but for the last. An exception of a piece is raised when all have ended.
    """
    step = max(smallest, -(-length // threads), 1)
    ranges = [(start, min(start + step, length)) for start in range(0, length, step)]
    if len(ranges) < 2:
        for start, stop in ranges:
            work(start, stop)
        return
    with ThreadPoolExecutor(len(ranges) - 1, thread_name_prefix="media") as pool:
        others = [pool.submit(work, start, stop) for start, stop in ranges[1:]]
        work(*ranges[0])
        for other in others:
            other.result()


def while_reading(items: Iterable[T], threads: int, work: Callable[[T], None]) -> None:
    """Call `work` for every item on `threads` threads, while the caller's thread reads the next items.

    At most `threads + 1` items are held at a time. An exception of `items` or of a piece is raised when the running
    pieces have ended.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="media") as pool:
        waiting: deque[Future[None]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                waiting.popleft().result()
        for future in waiting:
            future.result()
