"""Triton loads this file; the model itself is python_backends/triton/postprocess_model.py."""

from python_backends.triton.postprocess_model import PostprocessModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
