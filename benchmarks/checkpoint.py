"""The bench-size checkpoint and its engines, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deploy.local.runtime import ROOT

CHECKPOINT = ROOT / "checkpoints" / "bench"
STORE = ROOT / "engines" / "bench-store"


def bench_engines() -> Path:
    """The engine folder; builds what is missing (a minute, 6 GB of disk).

    Raises:
        subprocess.CalledProcessError: a build failed; it has said why.
    """
    if not CHECKPOINT.exists():
        _python("-m", "build_engines.random_checkpoint", "bench", str(CHECKPOINT))
    if not (STORE / "current").exists():
        _python("-m", "build_engines", str(CHECKPOINT), "--out", str(STORE))
    return STORE / "current"


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)
