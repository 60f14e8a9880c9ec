"""Shows how far a build is: a bar on a terminal, now and then a line elsewhere. All of it goes to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

Advance = Callable[[int], None]
LINE_SECONDS = 10.0


class BuildProgress:
    """One part after another, each measured in bytes of fp32 weights."""

    @contextmanager
    def part(self, name: str, total: int) -> Iterator[Advance]:
        """Report one part; call the yielded function with the bytes that were done since the last call."""
        with self._bar(name, total) if sys.stderr.isatty() else self._lines(name, total) as advance:
            yield advance

    @contextmanager
    def _bar(self, name: str, total: int) -> Iterator[Advance]:
        columns = (
            TextColumn("{task.description:<17}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(name, total=total)
            yield lambda done: progress.advance(task, done)
            progress.update(task, completed=total)  # norms that are repeated or padded do not add up exactly

    @contextmanager
    def _lines(self, name: str, total: int) -> Iterator[Advance]:
        start = last = time.monotonic()
        done = 0

        def advance(count: int) -> None:
            nonlocal done, last
            done += count
            if time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                print(f"{name}: {min(100, 100 * done // max(1, total))} % of {total / 1e6:.1f} MB", file=sys.stderr)

        yield advance
        print(f"{name}: {total / 1e6:.1f} MB in {time.monotonic() - start:.1f} s", file=sys.stderr)
