"""Runs of the builder's command, and what they leave behind."""

from __future__ import annotations

from pathlib import Path

from build_engines.__main__ import main


def run(checkpoint: Path, out: Path, *options: str) -> int:
    return main([str(checkpoint), "--out", str(out), *options])


def engine_folders(out: Path) -> list[str]:
    """What a user would see as engines, finished or not."""
    return sorted(str(path.relative_to(out)) for path in out.glob("*/*") if path.parent.name != "current")


def no_traces(out: Path) -> bool:
    """Nothing but the empty lock file, or nothing at all."""
    return not out.exists() or [path.name for path in out.iterdir()] in ([], [".lock"])
