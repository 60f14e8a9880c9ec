"""Preprocessing here and in transformers, each in a process of its own, measured in turns: A B, B A, A B."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from benchmarks.media import MediaCase, make_media
from benchmarks.quiet import Load, undisturbed
from benchmarks.serving import Say
from deploy.local.runtime import ROOT
from python_backends.preprocess.limits import Limits

PAUSE_SECONDS = 0.1  # lets the threads of the last turn fall asleep
REQUESTS = 5  # in a turn; the first one is not counted


@dataclass(frozen=True)
class Preprocess:
    """Milliseconds a unit by case, from encoded bytes to tensors; equal places were measured in one round."""

    threads: int
    ours_ms: dict[str, list[float]]
    transformers_ms: dict[str, list[float]]
    loads: list[Load]


class WorkerFailed(RuntimeError):
    """A measuring process is missing, died, or prepared something else than the other one."""


class Worker:
    """A process that measures one request at a time; it sleeps between them."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
        )
        self._read()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()

    def turn(self, case: MediaCase) -> tuple[float, int]:
        """Milliseconds a unit (the median of some requests), and how many prompt tokens a request makes."""
        time.sleep(PAUSE_SECONDS)
        found = [self._request(case) for _ in range(REQUESTS)]
        return statistics.median(milliseconds for milliseconds, _ in found[1:]) / case.units, found[0][1]

    def _request(self, case: MediaCase) -> tuple[float, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case.kind} {case.path.resolve()}\n")
        self._process.stdin.flush()
        seconds, tokens = self._read().split()
        return 1e3 * float(seconds), int(tokens)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self._process.args!r} ended with status {self._process.wait()}")
        return line


def measure_preprocess(engines: Path, checkpoint: Path, python: Path, work: Path, rounds: int, say: Say) -> Preprocess:
    """Every case in every round, here and with transformers in `python`.

    Raises:
        WorkerFailed: a worker died, or the two do not make the same number of tokens.
    """
    if not python.exists():
        raise WorkerFailed(f"--reference-python: found no {python}; allowed: a Python with transformers (make parity)")
    threads = Limits().media_threads
    cases = make_media(work)
    times: tuple[dict[str, list[float]], dict[str, list[float]]] = (
        {case: [] for case in cases},
        {case: [] for case in cases},
    )
    loads = []
    script = Path(__file__).with_name("transformers_worker.py")
    with (
        Worker([sys.executable, "-m", "benchmarks.preprocess_worker", engines]) as ours,
        Worker([python, script, checkpoint, str(threads)]) as theirs,
    ):
        for number in range(rounds):
            for name, case in cases.items():
                order = (ours, theirs) if number % 2 == 0 else (theirs, ours)
                turns, load = undisturbed(partial(_turns, order, case))
                loads.append(load)
                for worker, values in zip((ours, theirs), times, strict=True):
                    values[name].append(turns[worker][0])
                if turns[ours][1] != turns[theirs][1]:
                    counts = f"{turns[ours][1]} and {turns[theirs][1]}"
                    raise WorkerFailed(f"{name}: the two make different prompts ({counts} tokens)")
                say(f"round {number + 1} of {rounds}: {name}: {times[0][name][-1]:.1f}, {times[1][name][-1]:.1f} ms")
    return Preprocess(threads, *times, loads)


def _turns(workers: Sequence[Worker], case: MediaCase) -> dict[Worker, tuple[float, int]]:
    return {worker: worker.turn(case) for worker in workers}
