"""The thinker's decoder as one ONNX graph whose step mixes prefill chunks and decode rows.

Letters in shapes: T packed tokens of the step, B batch rows (slots), S longest chunk of the step, R rows that need
logits, C capacity of a slot, H hidden size, D head size, N and K query and key/value heads, L deepstack taps.

Linear layers, norms and experts work on the packed tokens; only attention sees a padded [B, S] batch, whose padding
and idle rows GroupQueryAttention skips (`query_seqlens`). The maths is that of `Qwen3OmniMoeThinkerTextModel` in
transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from build_engines.checkpoint import Checkpoint
from build_engines.errors import CheckpointError
from build_engines.graph_writer import GraphWriter
from python_backends.config import TextConfig
from python_backends.messages import FloatArray

MICROSOFT = "com.microsoft"
PREFIX = "thinker.model"


@dataclass(frozen=True)
class _Inputs:
    """The step's inputs that every layer reads."""

    rope_cos: ir.Value
    rope_sin: ir.Value
    pad_index: ir.Value
    unpad_index: ir.Value
    query_seqlens: ir.Value
    seqlens_k: ir.Value
    total_sequence_length: ir.Value
    logit_index: ir.Value
    deepstack: tuple[ir.Value, ...]  # one [1 or T, 1 or H] a tap


def build_thinker(checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
    """Write the decoder, `lm_head` included; the token embeddings stay outside.

    Inputs: `inputs_embeds` f32 [T, H]; `deepstack` f32 [L, T, H] or [L, 1, 1] (only if L > 0), added after the first
    L layers; `rope_cos`, `rope_sin` f32 [1, T, D/2]; `pad_index` i64 [B, S] into T; `unpad_index` i64 [T] into B*S;
    `query_seqlens` i32 [B] new tokens of each row; `seqlens_k` i32 [B] cached tokens after the step, less one;
    `total_sequence_length` i32 [] (an upper bound); `logit_index` i64 [R] into T; `past_key_i`, `past_value_i` f32
    [B, K, C, D]. Every row needs cached + S <= C. Outputs: `logits` f32 [R, vocabulary], `present_key_i`,
    `present_value_i` (bind the past's memory).

    `progress` is called with the bytes of each group of weights once it is written.

    Raises:
        CheckpointError: a tensor is missing, has another shape or holds values that are not finite.
    """
    _Thinker(checkpoint, writer, progress).build()


class _Thinker:
    def __init__(self, checkpoint: Checkpoint, writer: GraphWriter, progress: Callable[[int], None]) -> None:
        self.checkpoint = checkpoint
        self.writer = writer
        self.progress = progress
        self.text: TextConfig = checkpoint.config.text
        self.taps = len(checkpoint.config.vision.deepstack_visual_indexes)

    def build(self) -> None:
        text, w = self.text, self.writer
        hidden = w.input("inputs_embeds", ir.DataType.FLOAT, ["T", text.hidden_size])
        inputs = self._inputs()
        last = text.num_hidden_layers - 1
        # After the last attention only the rows that need logits matter, unless a deepstack row of every token is
        # still to be added.
        trim_last = self.taps < text.num_hidden_layers
        for layer in range(text.num_hidden_layers):
            trim = layer == last and trim_last
            hidden = self._attention(layer, hidden, inputs, trim)
            hidden = self._feed_forward(layer, hidden)
            if layer < self.taps:
                hidden = w.op("Add", hidden, inputs.deepstack[layer])
        if not trim_last:
            hidden = w.op("Gather", hidden, inputs.logit_index, axis=0)
        hidden = self._norm(hidden, f"{PREFIX}.norm")
        head = f"{PREFIX}.embed_tokens" if text.tie_word_embeddings else "thinker.lm_head"
        logits = w.op("MatMul", hidden, self._linear("lm_head", text.hidden_size, {head: text.vocab_size}))
        w.output(logits, "logits", ir.DataType.FLOAT, ["R", text.vocab_size])

    def _inputs(self) -> _Inputs:
        w, half = self.writer, self.text.head_dim // 2
        deepstack: tuple[ir.Value, ...] = ()
        if self.taps:
            stacked = w.input("deepstack", ir.DataType.FLOAT, [self.taps, "Td", "Hd"])
            deepstack = tuple(w.op("Gather", stacked, w.constant(tap), axis=0) for tap in range(self.taps))
        return _Inputs(
            rope_cos=w.input("rope_cos", ir.DataType.FLOAT, [1, "T", half]),
            rope_sin=w.input("rope_sin", ir.DataType.FLOAT, [1, "T", half]),
            pad_index=w.input("pad_index", ir.DataType.INT64, ["B", "S"]),
            unpad_index=w.input("unpad_index", ir.DataType.INT64, ["T"]),
            query_seqlens=w.input("query_seqlens", ir.DataType.INT32, ["B"]),
            seqlens_k=w.input("seqlens_k", ir.DataType.INT32, ["B"]),
            total_sequence_length=w.input("total_sequence_length", ir.DataType.INT32, []),
            logit_index=w.input("logit_index", ir.DataType.INT64, ["R"]),
            deepstack=deepstack,
        )

    def _attention(self, layer: int, hidden: ir.Value, inputs: _Inputs, trim: bool) -> ir.Value:
        """One attention block with its residual; [T, H] in, [T, H] out ([R, H] if `trim`)."""
        text, w, base = self.text, self.writer, f"{PREFIX}.layers.{layer}"
        queries, keys, size = text.num_attention_heads, text.num_key_value_heads, text.head_dim
        rotated = (queries + keys) * size
        normed = self._norm(hidden, f"{base}.input_layernorm")
        widths = {"q": queries * size, "k": keys * size, "v": keys * size}
        projections = {f"{base}.self_attn.{part}_proj": width for part, width in widths.items()}
        qkv = w.op("MatMul", normed, self._linear(f"layer_{layer}.qkv", text.hidden_size, projections))
        qk, value = w.ops("Split", qkv, w.constant([rotated, keys * size]), outputs=2, axis=-1)
        qk = w.op("Reshape", qk, w.constant([-1, queries + keys, size]))
        scales = [self._load(f"{base}.self_attn.{p}_norm.weight", size) for p in "qk"]
        per_head = np.repeat(np.stack(scales), [queries, keys], axis=0)
        qk = w.op(
            "RMSNormalization", qk, self._weight(f"layer_{layer}.qk_norm", per_head), axis=-1, epsilon=text.rms_norm_eps
        )
        qk = w.op("Reshape", qk, w.constant([1, -1, rotated]))
        qk = w.op("RotaryEmbedding", qk, inputs.rope_cos, inputs.rope_sin, num_heads=queries + keys)
        qkv = w.op("Concat", w.op("Reshape", qk, w.constant([-1, rotated])), value, axis=-1)
        shape: list[int | str] = ["B", keys, "C", size]
        past = [w.input(f"past_{part}_{layer}", ir.DataType.FLOAT, shape) for part in ("key", "value")]
        attended, present_key, present_value = w.ops(
            "GroupQueryAttention",
            w.op("Gather", qkv, inputs.pad_index, axis=0),
            None,
            None,
            *past,
            inputs.seqlens_k,
            inputs.total_sequence_length,
            *([None] * 9),  # rotary caches, positions, bias, sink, cache scales, q and k norms
            inputs.query_seqlens,
            domain=MICROSOFT,
            outputs=3,
            num_heads=queries,
            kv_num_heads=keys,
        )
        w.output(present_key, f"present_key_{layer}", ir.DataType.FLOAT, shape)
        w.output(present_value, f"present_value_{layer}", ir.DataType.FLOAT, shape)
        attended = w.op("Reshape", attended, w.constant([-1, queries * size]))
        wanted = inputs.unpad_index
        if trim:
            wanted = w.op("Gather", wanted, inputs.logit_index, axis=0)
            hidden = w.op("Gather", hidden, inputs.logit_index, axis=0)
        attended = w.op("Gather", attended, wanted, axis=0)
        output = self._linear(f"layer_{layer}.o", queries * size, {f"{base}.self_attn.o_proj": text.hidden_size})
        return w.op("Add", hidden, w.op("MatMul", attended, output))

    def _feed_forward(self, layer: int, hidden: ir.Value) -> ir.Value:
        """The experts or the dense MLP of a layer, with the residual."""
        text, w = self.text, self.writer
        normed = self._norm(hidden, f"{PREFIX}.layers.{layer}.post_attention_layernorm")
        sparse = layer not in text.mlp_only_layers and (layer + 1) % text.decoder_sparse_step == 0
        return w.op("Add", hidden, self._experts(layer, normed) if sparse else self._dense(layer, normed))

    def _dense(self, layer: int, normed: ir.Value) -> ir.Value:
        w, base = self.writer, f"{PREFIX}.layers.{layer}.mlp"
        hidden, width = self.text.hidden_size, self.text.intermediate_size
        first = self._linear(f"layer_{layer}.gate_up", hidden, {f"{base}.gate_proj": width, f"{base}.up_proj": width})
        both = w.op("MatMul", normed, first)
        gate, up = w.ops("Split", both, w.constant([width, width]), outputs=2, axis=-1)
        activated = w.op("Mul", w.op("Mul", gate, w.op("Sigmoid", gate)), up)
        return w.op("MatMul", activated, self._linear(f"layer_{layer}.down", width, {f"{base}.down_proj": hidden}))

    def _experts(self, layer: int, normed: ir.Value) -> ir.Value:
        text, w, base = self.text, self.writer, f"{PREFIX}.layers.{layer}.mlp"
        width, hidden = text.moe_intermediate_size, text.hidden_size
        router = self._linear(f"layer_{layer}.router", hidden, {f"{base}.gate": text.num_experts})
        scores = w.op("MatMul", normed, router)
        # the operator wants gate and up rows interleaved, expert by expert
        gate_up = np.empty((text.num_experts, 2 * width, hidden), np.float32)
        for expert in range(text.num_experts):
            gate_up[expert, 0::2] = self._load(f"{base}.experts.{expert}.gate_proj.weight", width, hidden)
            gate_up[expert, 1::2] = self._load(f"{base}.experts.{expert}.up_proj.weight", width, hidden)
        first = self._weight(f"layer_{layer}.experts_gate_up", gate_up)
        del gate_up  # a released checkpoint has 1.6 GB here: never hold both groups
        down = np.empty((text.num_experts, hidden, width), np.float32)
        for expert in range(text.num_experts):
            down[expert] = self._load(f"{base}.experts.{expert}.down_proj.weight", hidden, width)
        return w.op(
            "MoE",
            normed,
            scores,
            first,
            None,
            self._weight(f"layer_{layer}.experts_down", down),
            domain=MICROSOFT,
            k=text.num_experts_per_tok,
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.0,
            activation_beta=0.0,
            normalize_routing_weights=int(text.norm_topk_prob),
        )

    def _norm(self, hidden: ir.Value, name: str) -> ir.Value:
        scale = self._weight(name.removeprefix(f"{PREFIX}."), self._load(f"{name}.weight", self.text.hidden_size))
        return self.writer.op("RMSNormalization", hidden, scale, axis=-1, epsilon=self.text.rms_norm_eps)

    def _linear(self, name: str, inputs: int, modules: Mapping[str, int]) -> ir.Value:
        """The weights of modules (name -> output width) side by side, turned to [in, out] as MatMul wants them."""
        stacked = np.empty((inputs, sum(modules.values())), np.float32)
        start = 0
        for module, outputs in modules.items():
            stacked[:, start : start + outputs] = self._load(f"{module}.weight", outputs, inputs).T
            start += outputs
        return self._weight(name, stacked)

    def _load(self, name: str, *shape: int) -> FloatArray:
        array = self.checkpoint.load(name)
        if array.shape != shape:
            raise CheckpointError(f"{name}: found shape {array.shape}; allowed: {shape}")
        return array

    def _weight(self, name: str, array: FloatArray) -> ir.Value:
        value = self.writer.weight(name, array)
        self.progress(array.nbytes)
        return value
