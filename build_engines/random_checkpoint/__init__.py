"""Random checkpoints of the Qwen3-Omni architecture, for tests and benchmarks: no training, no torch, a few seconds.

    python -m build_engines.random_checkpoint {small|wide|bench} OUT [--seed N]

transformers 5.24 loads them unchanged. Every byte follows from the shape and the seed: weights come from the raw
integers of PCG64 and plain IEEE arithmetic, the tokenizer is learnt from a word list with integer counts.
"""

from build_engines.random_checkpoint.shapes import BENCH, SHAPES, SMALL, WIDE, Shape
from build_engines.random_checkpoint.writer import write_checkpoint

__all__ = ["BENCH", "SHAPES", "SMALL", "WIDE", "Shape", "write_checkpoint"]
