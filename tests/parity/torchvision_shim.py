"""Lets a torchvision that was built for CUDA work beside a torch without it; only its image transforms are used here.

Its operators then cannot be loaded, and importing it fails because it describes operators that are not there. With
their signatures declared first, the import goes through.
"""

from __future__ import annotations

import sys

import torch

_SIGNATURES = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision() -> None:
    """Import torchvision, declaring the operators that it misses.

    Raises:
        ImportError, RuntimeError: torchvision is not installed, or fails for another reason.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator, signature in _SIGNATURES.items():
            torch.library.define(f"torchvision::{operator}", signature)
        import torchvision  # noqa: F401
