"""The machine that is measured on: what it is, and which processes use it."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Machine:
    """Processor, cores that this process may use, and memory."""

    processor: str
    cores: int
    memory_gb: int
    system: str

    @classmethod
    def this(cls) -> Machine:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        return cls(
            processor=found[1] if found else platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            memory_gb=round(psutil.virtual_memory().total / 2**30),
            system=f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}",
        )


class CpuMeter:
    """CPU that this process and another one with its descendants use, by part."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._started = time.perf_counter()
        self._before = self._seconds()

    def cores_used(self) -> dict[str, float]:
        """Cores kept busy since the meter was made: part → mean number."""
        wall = time.perf_counter() - self._started
        return {part: round((used - self._before[part]) / wall, 3) for part, used in self._seconds().items()}

    def _seconds(self) -> Mapping[str, float]:
        seconds = {"client": sum(psutil.Process().cpu_times()[:2])}
        for process in (self._root, *self._root.children(recursive=True)):
            part = _part(process.cmdline())
            seconds[part] = seconds.get(part, 0.0) + sum(process.cpu_times()[:2])
        return seconds


def _part(command: list[str]) -> str:
    """A Python stub is named by the model whose `1/model.py` it runs."""
    for argument in command:
        if argument.endswith("model.py"):
            return Path(argument).parents[1].name
    return "tritonserver"
