"""Triton loads this file; the model itself is python_backends/triton/preprocess_model.py."""

from python_backends.triton.preprocess_model import PreprocessModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
