"""`python -m benchmarks [engine|triton|preprocess|all]`: measure, and write the report with its pictures."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

from omni_client import OmniClientError

from benchmarks.checkpoint import CHECKPOINT, bench_engines
from benchmarks.goals import goals_of
from benchmarks.plots import draw
from benchmarks.preprocess import WorkerFailed, measure_preprocess
from benchmarks.report import report
from benchmarks.results import Results
from benchmarks.serving import measure_both, measure_engine
from deploy.local.config import ServerConfig
from deploy.local.preflight import PreflightError
from deploy.local.runtime import ROOT, RuntimeInstallError
from deploy.local.server import ServerFailed

WORK = ROOT / ".runtime" / "bench"
REFERENCE = ROOT / ".runtime" / "parity" / "bin" / "python"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=("engine", "triton", "preprocess", "all"))
    parser.add_argument("--rounds", type=int, default=6, help="how often every turn is taken (default: 6)")
    parser.add_argument(
        "--reference-python",
        type=Path,
        default=REFERENCE,
        help="a Python with transformers (default: that of make parity)",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder for the report (default: docs)")
    arguments = parser.parse_args()
    try:
        measure(arguments.part, arguments.rounds, arguments.reference_python, arguments.out)
    except (
        RuntimeInstallError,
        PreflightError,
        ServerFailed,
        OmniClientError,
        WorkerFailed,
        subprocess.CalledProcessError,
        ValueError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def measure(part: str, rounds: int, reference: Path, out: Path) -> None:
    """Measure one part or all, keep the other parts' results, and write everything."""
    engines = bench_engines()
    results = Results.load(out)
    command = f"python -m benchmarks {part} --rounds {rounds}"
    if part == "engine":
        results.add("engine", measure_engine(engines, rounds, _say), command)
    if part in ("triton", "all"):
        config = dataclasses.replace(ServerConfig.from_environment(), engines=engines, log=WORK / "tritonserver.log")
        results.add("triton", measure_both(config, rounds, _say), command)
    if part in ("preprocess", "all"):
        measured = measure_preprocess(engines, CHECKPOINT, reference, WORK / "media", rounds, _say)
        results.add("preprocess", measured, command)
    results.save(out)
    (out / "benchmarks.md").write_text(report(results.sections), encoding="utf-8")
    draw(results.sections, out / "images")
    for goal in goals_of(results.sections):
        _say(f"{'met   ' if goal.met else 'missed'}  {goal.what}: {goal.found} ({goal.allowed})")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
