"""Measurements on this machine: the engine alone, the engine behind Triton, and preprocessing beside transformers."""
