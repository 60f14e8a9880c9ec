"""What the server's processes hold, for tests that look for leaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.server import TritonServer


@dataclass(frozen=True)
class Footprint:
    """Sums over `tritonserver` and its Python stubs.

    `memory_mb` is what each process has to itself; `shared` counts the regions in /dev/shm.
    """

    threads: int
    files: int
    memory_mb: float
    shared: int

    @classmethod
    def of(cls, server: TritonServer) -> Footprint:
        root = psutil.Process(server.pid)
        processes = [root, *root.children(recursive=True)]
        return cls(
            threads=sum(process.num_threads() for process in processes),
            files=sum(process.num_fds() for process in processes),
            memory_mb=sum(process.memory_full_info().uss for process in processes) / 2**20,
            shared=len(list(Path("/dev/shm").iterdir())),
        )
