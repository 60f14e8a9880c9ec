"""Triton loads this file; the model itself is python_backends/triton/encoder_model.py."""

from python_backends.triton.encoder_model import VisionEncoderModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
