"""Layers that the vision and the audio encoder share, written into a graph with their weights.

All of them work on packed rows [rows, width], so that `Gemm` runs once over every row of a run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from build_engines.checkpoint import Checkpoint
from build_engines.errors import CheckpointError
from build_engines.graph_writer import GraphWriter
from python_backends.messages import FloatArray

# transformers' names (`ACT2FN`) that ONNX has an operator for, with its `approximate` attribute
_GELUS = {"gelu": "none", "gelu_pytorch_tanh": "tanh"}


class Layers:
    """Writes layers of one encoder.

    Tensor names are taken below `prefix` of the checkpoint and are the names of the weights in the graph. `progress` is
    called with the bytes of each weight once it is written.
    """

    def __init__(
        self, checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None], prefix: str
    ) -> None:
        self.checkpoint = checkpoint
        self.writer = writer
        self.progress = progress
        self.prefix = prefix

    def load(self, name: str, *shape: int) -> FloatArray:
        """A tensor of the checkpoint.

        Raises:
            CheckpointError: it is missing, has another shape or holds values that are not finite.
        """
        array = self.checkpoint.load(f"{self.prefix}.{name}")
        if array.shape != shape:
            raise CheckpointError(f"{self.prefix}.{name}: found shape {array.shape}; allowed: {shape}")
        return array

    def weight(self, name: str, array: FloatArray) -> ir.Value:
        value = self.writer.weight(name, array)
        self.progress(array.nbytes)
        return value

    def tensor(self, name: str, *shape: int) -> ir.Value:
        """A tensor of the checkpoint as a weight of the graph, unchanged."""
        return self.weight(name, self.load(name, *shape))

    def linear(self, rows: ir.Value, name: str, inputs: int, outputs: int, bias: bool = True) -> ir.Value:
        """`torch.nn.Linear`: [rows, inputs] to [rows, outputs]."""
        weight = self.tensor(f"{name}.weight", outputs, inputs)
        terms = (weight, self.tensor(f"{name}.bias", outputs)) if bias else (weight,)
        return self.writer.op("Gemm", rows, *terms, transB=1)

    def stacked_linear(self, rows: ir.Value, name: str, inputs: int, outputs: int, parts: int) -> list[ir.Value]:
        """A linear layer whose weight holds `parts` layers one after another: each part's [rows, outputs].

        Several `Gemm` cost the same as one, and the results need no copy to be taken apart.
        """
        weights = np.split(self.load(f"{name}.weight", parts * outputs, inputs), parts)
        biases = np.split(self.load(f"{name}.bias", parts * outputs), parts)
        return [
            self.writer.op(
                "Gemm",
                rows,
                self.weight(f"{name}.weight.{part}", weights[part]),
                self.weight(f"{name}.bias.{part}", biases[part]),
                transB=1,
            )
            for part in range(parts)
        ]

    def layer_norm(self, rows: ir.Value, name: str, width: int, epsilon: float) -> ir.Value:
        """`torch.nn.LayerNorm` over the last axis."""
        scale, bias = self.tensor(f"{name}.weight", width), self.tensor(f"{name}.bias", width)
        return self.writer.op("LayerNormalization", rows, scale, bias, axis=-1, epsilon=epsilon)

    def activation(self, value: ir.Value, function: str) -> ir.Value:
        """An activation under its name in transformers.

        Raises:
            CheckpointError: a function that the encoders are not known to use.
        """
        if function not in _GELUS:
            raise CheckpointError(f"{self.prefix}: found activation {function!r}; allowed: {' or '.join(_GELUS)}")
        return self.writer.op("Gelu", value, approximate=_GELUS[function])
