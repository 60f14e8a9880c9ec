"""The audio encoder (AuT) as one ONNX graph over chunks of mel frames and windows of tokens.

Letters in shapes: N chunks, F frames of each chunk, M mel bins, T tokens, B attention windows, S the longest of them.

Three strided convolutions turn each chunk into tokens; linear layers work on the packed tokens; attention sees the
windows as a padded [B, S] batch. A window is short (104 tokens in the released checkpoints), so the scores are small
and a key length per window costs next to nothing. `MultiHeadAttention` is the only operator that is not a standard one
of opset 23. The maths is that of `Qwen3OmniMoeAudioEncoder` in transformers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from build_engines.checkpoint import Checkpoint
from build_engines.graph_writer import GraphWriter
from build_engines.graphs.layers import Layers
from python_backends.messages import FloatArray

MICROSOFT = "com.microsoft"
PREFIX = "thinker.audio_tower"
EPSILON = 1e-5
LONGEST_WAVELENGTH = 10_000  # of the sinusoid positions, over 2 pi
CONVOLUTIONS = 3  # each halves mel bins and frames


def build_audio(checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
    """Write the audio encoder.

    Inputs: `features` f32 [N, F, M], zeros after the end of a sound; `token_index` i64 [T] which of the N * F'
    convolved frames are tokens (F' is F halved three times, rounded up); `window_index` i64 [B, S] which token stands
    where in a window (any, at padding); `window_lengths` i32 [B]; `unpad_index` i64 [T] where each token stands in the
    B * S places. Output: `embeddings` f32 [T, output_dim].

    Raises:
        CheckpointError: a tensor is missing, has another shape or holds values that are not finite.
    """
    _Audio(checkpoint, writer, progress).build()


class _Audio:
    def __init__(self, checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
        self.config = checkpoint.config.audio
        self.writer = writer
        self.layers = Layers(checkpoint, writer, progress, PREFIX)

    def build(self) -> None:
        config, w, width = self.config, self.writer, self.config.d_model
        rows = self._convolve()
        window_index = w.input("window_index", ir.DataType.INT64, ["B", "S"])
        window_lengths = w.input("window_lengths", ir.DataType.INT32, ["B"])
        unpad_index = w.input("unpad_index", ir.DataType.INT64, ["T"])
        for layer in range(config.encoder_layers):
            rows = self._attention(f"layers.{layer}", rows, window_index, window_lengths, unpad_index)
            rows = self._feed_forward(f"layers.{layer}", rows)
        rows = self.layers.layer_norm(rows, "ln_post", width, EPSILON)
        rows = self.layers.activation(self.layers.linear(rows, "proj1", width, width), config.activation_function)
        rows = self.layers.linear(rows, "proj2", width, config.output_dim)
        w.output(rows, "embeddings", ir.DataType.FLOAT, ["T", config.output_dim])

    def _convolve(self) -> ir.Value:
        """Mel frames to tokens with their positions: [T, d_model]."""
        config, w, channels = self.config, self.writer, self.config.downsample_hidden_size
        features = w.input("features", ir.DataType.FLOAT, ["N", "F", config.num_mel_bins])
        token_index = w.input("token_index", ir.DataType.INT64, ["T"])
        image = w.op("Unsqueeze", w.op("Transpose", features, perm=[0, 2, 1]), w.constant([1]))
        bins, inputs = config.num_mel_bins, 1
        for number in range(1, CONVOLUTIONS + 1):
            weight = self.layers.tensor(f"conv2d{number}.weight", channels, inputs, 3, 3)
            bias = self.layers.tensor(f"conv2d{number}.bias", channels)
            image = w.op("Conv", image, weight, bias, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
            image = self.layers.activation(image, "gelu")
            bins, inputs = (bins + 1) // 2, channels
        flat = w.op("Reshape", w.op("Transpose", image, perm=[0, 3, 1, 2]), w.constant([-1, channels * bins]))
        flat = w.op("Gather", flat, token_index, axis=0)
        rows = self.layers.linear(flat, "conv_out", channels * bins, config.d_model, bias=False)
        # positions start again in every chunk
        longest = -(-2 * config.n_window // 2**CONVOLUTIONS)
        table = w.weight("positions", _sinusoids(longest, config.d_model))
        frames = w.op("Gather", w.op("Shape", image), w.constant(3), axis=0)
        return w.op("Add", rows, w.op("Gather", table, w.op("Mod", token_index, frames), axis=0))

    def _attention(
        self, name: str, rows: ir.Value, window_index: ir.Value, window_lengths: ir.Value, unpad_index: ir.Value
    ) -> ir.Value:
        w, width = self.writer, self.config.d_model
        normed = self.layers.layer_norm(rows, f"{name}.self_attn_layer_norm", width, EPSILON)
        query, key, value = (
            w.op(
                "Gather",
                self.layers.linear(normed, f"{name}.self_attn.{part}_proj", width, width),
                window_index,
                axis=0,
            )
            for part in "qkv"
        )
        attended = w.op(
            "MultiHeadAttention",
            query,
            key,
            value,
            None,
            window_lengths,
            domain=MICROSOFT,
            num_heads=self.config.encoder_attention_heads,
        )
        attended = w.op("Gather", w.op("Reshape", attended, w.constant([-1, width])), unpad_index, axis=0)
        return w.op("Add", rows, self.layers.linear(attended, f"{name}.self_attn.out_proj", width, width))

    def _feed_forward(self, name: str, rows: ir.Value) -> ir.Value:
        config, width, inner = self.config, self.config.d_model, self.config.encoder_ffn_dim
        normed = self.layers.layer_norm(rows, f"{name}.final_layer_norm", width, EPSILON)
        widened = self.layers.activation(
            self.layers.linear(normed, f"{name}.fc1", width, inner), config.activation_function
        )
        return self.writer.op("Add", rows, self.layers.linear(widened, f"{name}.fc2", inner, width))


def _sinusoids(length: int, width: int) -> FloatArray:
    """Position table [length, width]: sines of every wavelength, then cosines."""
    half = width // 2
    rates = np.exp(np.arange(half) * (-np.log(LONGEST_WAVELENGTH) / (half - 1)))
    angles = np.arange(length)[:, None] * rates
    table: FloatArray = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return table
