"""Makes the references of the parity tests with transformers.

    python tests/parity/make_references.py            writes tests/parity/references/
    python tests/parity/make_references.py --check    makes them anew elsewhere and compares

Needs the packages of requirements/parity.txt. The two checkpoints are built on the way.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parents[2]))

from build_engines.random_checkpoint import SMALL, WIDE, write_checkpoint
from tests.parity.references import FOLDER, Reference, differences


def main() -> int:
    """0, or 1 if a check found differences."""
    parser = argparse.ArgumentParser(description="Make the references of the parity tests with transformers.")
    parser.add_argument("--check", action="store_true", help="compare with the stored ones instead of replacing them")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch (default: 1)")
    arguments = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in (SMALL, WIDE):
            made = _make(shape.name, Path(folder), arguments.threads)
            if not arguments.check:
                made.save(FOLDER, shape.name)
                continue
            stored = Reference.load(shape.name)
            for package, version in stored.versions.items():
                if made.versions[package] != version:
                    print(f"{shape.name}: stored with {package} {version}, checked with {made.versions[package]}")
            found += [f"{shape.name}: {difference}" for difference in differences(stored, made)]
    for difference in found:
        print(difference)
    if arguments.check:
        print(f"{len(found)} differences" if found else "the stored references are what transformers computes")
    return 1 if found else 0


def _make(name: str, folder: Path, threads: int) -> Reference:
    import torch

    from tests.parity.torchvision_shim import import_torchvision

    import_torchvision()
    from transformers.utils import logging

    from tests.parity.reference_model import ReferenceModel

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    shape = {"small": SMALL, "wide": WIDE}[name]
    checkpoint = folder / name
    write_checkpoint(shape, checkpoint)
    started = time.monotonic()

    def report(what: str) -> None:
        print(f"{name} {time.monotonic() - started:6.1f} s  {what}", flush=True)

    return ReferenceModel(checkpoint).reference(report)


if __name__ == "__main__":
    raise SystemExit(main())
