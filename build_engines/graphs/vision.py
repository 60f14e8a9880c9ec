"""The vision encoder as one ONNX graph over segments of equal length.

A segment is what attends within itself: an image, or one temporal patch of a video. Letters in shapes: B segments, S
patches of each, R = B*S rows, H hidden size, D head size, L deepstack taps, O the thinker's hidden size, M patches
merged to a token.

Every segment of a run has the same length, so attention needs no mask, and `MultiHeadAttention` then runs in tiles: its
memory grows with S, not with S squared. All other operators are standard ones of opset 23. The maths is that of
`Qwen3OmniMoeVisionEncoder` in transformers.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from build_engines.checkpoint import Checkpoint
from build_engines.graph_writer import GraphWriter
from build_engines.graphs.layers import Layers

MICROSOFT = "com.microsoft"
PREFIX = "thinker.visual"
EPSILON = 1e-6
POSITION_TAPS = 4  # corners of the cell of the learnt grid that a patch falls into


def build_vision(checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
    """Write the vision encoder.

    Inputs: `patches` f32 [R, channels * temporal_patch * patch * patch], segment after segment, in the order of merged
    blocks; `position_index` i64 [4, R] rows of the learnt position table and `position_weight` f32 [4, R, 1] their
    shares; `rope_cos`, `rope_sin` f32 [B, S, D/2]. Output: `embeddings` f32 [R/M, O * (1 + L)], each row the embedding
    and then the L deepstack features in layer order.

    Raises:
        CheckpointError: a tensor is missing, has another shape or holds values that are not finite.
    """
    _Vision(checkpoint, writer, progress).build()


class _Vision:
    def __init__(self, checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
        self.config = checkpoint.config.vision
        self.writer = writer
        self.layers = Layers(checkpoint, writer, progress, PREFIX)

    def build(self) -> None:
        config, w = self.config, self.writer
        rows = self._embed()
        rope = tuple(
            w.input(f"rope_{part}", ir.DataType.FLOAT, ["B", "S", config.head_dim // 2]) for part in ("cos", "sin")
        )
        batch = w.op("Slice", w.op("Shape", rope[0]), w.constant([0]), w.constant([2]))
        batched_shape = w.op("Concat", batch, w.constant([config.hidden_size]), axis=0)
        deepstack: list[ir.Value] = []
        for layer in range(config.depth):
            rows = self._attention(f"blocks.{layer}", rows, rope, batched_shape)
            rows = self._feed_forward(f"blocks.{layer}", rows)
            if layer in config.deepstack_visual_indexes:
                tap = config.deepstack_visual_indexes.index(layer)
                deepstack.append(self._merger(f"merger_list.{tap}", rows, norm_after_merge=True))
        features = [self._merger("merger", rows, norm_after_merge=False), *deepstack]
        embeddings = w.op("Concat", *features, axis=-1)
        w.output(embeddings, "embeddings", ir.DataType.FLOAT, ["tokens", config.out_hidden_size * len(features)])

    def _embed(self) -> ir.Value:
        """Patches and their positions: [R, H]."""
        config, w = self.config, self.writer
        patches = w.input("patches", ir.DataType.FLOAT, ["R", config.patch_dim])
        index = w.input("position_index", ir.DataType.INT64, [POSITION_TAPS, "R"])
        share = w.input("position_weight", ir.DataType.FLOAT, [POSITION_TAPS, "R", 1])
        # the convolution's kernel is as large as its stride, so it is a linear layer over flattened patches
        kernel = (config.in_channels, config.temporal_patch_size, config.patch_size, config.patch_size)
        weight = self.layers.load("patch_embed.proj.weight", config.hidden_size, *kernel)
        rows = w.op(
            "Gemm",
            patches,
            self.layers.weight("patch_embed.proj.weight", weight.reshape(config.hidden_size, config.patch_dim)),
            self.layers.tensor("patch_embed.proj.bias", config.hidden_size),
            transB=1,
        )
        table = self.layers.tensor("pos_embed.weight", config.num_position_embeddings, config.hidden_size)
        for tap in range(POSITION_TAPS):
            which = w.constant(tap)
            position = w.op("Gather", table, w.op("Gather", index, which, axis=0), axis=0)
            rows = w.op("Add", rows, w.op("Mul", position, w.op("Gather", share, which, axis=0)))
        return rows

    def _attention(self, name: str, rows: ir.Value, rope: tuple[ir.Value, ...], batched_shape: ir.Value) -> ir.Value:
        config, w, hidden = self.config, self.writer, self.config.hidden_size
        normed = self.layers.layer_norm(rows, f"{name}.norm1", hidden, EPSILON)
        query, key, value = (
            w.op("Reshape", part, batched_shape)
            for part in self.layers.stacked_linear(normed, f"{name}.attn.qkv", hidden, hidden, parts=3)
        )
        query, key = (w.op("RotaryEmbedding", part, *rope, num_heads=config.num_heads) for part in (query, key))
        attended = w.op("MultiHeadAttention", query, key, value, domain=MICROSOFT, num_heads=config.num_heads)
        attended = w.op("Reshape", attended, w.constant([-1, hidden]))
        return w.op("Add", rows, self.layers.linear(attended, f"{name}.attn.proj", hidden, hidden))

    def _feed_forward(self, name: str, rows: ir.Value) -> ir.Value:
        hidden, inner = self.config.hidden_size, self.config.intermediate_size
        normed = self.layers.layer_norm(rows, f"{name}.norm2", hidden, EPSILON)
        widened = self.layers.linear(normed, f"{name}.mlp.linear_fc1", hidden, inner)
        activated = self.layers.activation(widened, self.config.hidden_act)
        return self.writer.op("Add", rows, self.layers.linear(activated, f"{name}.mlp.linear_fc2", inner, hidden))

    def _merger(self, name: str, rows: ir.Value, norm_after_merge: bool) -> ir.Value:
        """[R, H] to [R/M, O]: the M patches of a block stand one after another and become one row."""
        config, w = self.config, self.writer
        merged = config.hidden_size * config.spatial_merge_size**2
        shape = w.constant([-1, merged])
        if norm_after_merge:
            rows = self.layers.layer_norm(w.op("Reshape", rows, shape), f"{name}.ln_q", merged, EPSILON)
        else:
            rows = w.op("Reshape", self.layers.layer_norm(rows, f"{name}.ln_q", config.hidden_size, EPSILON), shape)
        rows = self.layers.activation(self.layers.linear(rows, f"{name}.mlp.0", merged, merged), "gelu")
        return self.layers.linear(rows, f"{name}.mlp.2", merged, config.out_hidden_size)
