"""Engine folders of the two random checkpoints, built once for all tests of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engines.__main__ import main as build_engines
from build_engines.random_checkpoint.shapes import SHAPES
from build_engines.random_checkpoint.writer import write_checkpoint


def build(name: str, folder: Path) -> Path:
    """The engine folder of a random checkpoint."""
    write_checkpoint(SHAPES[name], folder / "checkpoint")
    assert build_engines([str(folder / "checkpoint"), "--out", str(folder / "engines")]) == 0
    return (folder / "engines" / "current").resolve()


@pytest.fixture(scope="session")
def small_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("small", tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def wide_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wide", tmp_path_factory.mktemp("wide"))
