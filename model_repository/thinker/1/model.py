"""Triton loads this file; the model itself is python_backends/triton/thinker_model.py."""

from python_backends.triton.thinker_model import ThinkerModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
