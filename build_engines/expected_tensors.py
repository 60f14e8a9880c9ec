"""Which tensors the thinker and its encoders must have, and in which shape, from the configuration alone.

Comparing a checkpoint with this list takes milliseconds and happens before anything is written, so that a tensor which
is missing from the last shard is not found an hour into the build.
"""

from __future__ import annotations

from collections.abc import Iterator

from build_engines.checkpoint import PREFIX, Checkpoint
from build_engines.errors import CheckpointError
from python_backends.config import AudioConfig, OmniConfig, TextConfig, VisionConfig

# Tables that some checkpoints store, but that follow from the configuration.
_DERIVED = (".inv_freq",)

NamedShape = tuple[str, tuple[int, ...]]


def expected_tensors(config: OmniConfig) -> Iterator[NamedShape]:
    """Name and shape of every tensor below `thinker.`, as transformers' `modeling_qwen3_omni_moe.py` has them."""
    parts = (
        ("model.", _text(config.text)),
        ("", _head(config.text)),
        ("visual.", _vision(config.vision)),
        ("audio_tower.", _audio(config.audio)),
    )
    return ((f"{PREFIX}{part}{name}", shape) for part, tensors in parts for name, shape in tensors)


def check_tensors(checkpoint: Checkpoint) -> None:
    """Compare the checkpoint's tensors with the expected ones.

    Raises:
        CheckpointError: a tensor is missing, has another shape or type, or would silently be left out of the graphs.
    """
    expected = set()
    for name, shape in expected_tensors(checkpoint.config):
        expected.add(name)
        checkpoint.check_dtype(name)
        found = checkpoint.shape(name)
        if found != shape:
            raise CheckpointError(f"tensor {name}: found shape {list(found)}; config.json asks for {list(shape)}")
    for name in checkpoint.names():
        if name.startswith(PREFIX) and name not in expected and not name.endswith(_DERIVED):
            raise CheckpointError(f"tensor {name}: not known to this builder; leaving it out would change the answers")


def _linear(name: str, outputs: int, inputs: int) -> Iterator[NamedShape]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[NamedShape]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _text(text: TextConfig) -> Iterator[NamedShape]:
    yield "embed_tokens.weight", (text.vocab_size, text.hidden_size)
    yield "norm.weight", (text.hidden_size,)
    queries, keys = text.num_attention_heads * text.head_dim, text.num_key_value_heads * text.head_dim
    for index in range(text.num_hidden_layers):
        layer = f"layers.{index}"
        yield f"{layer}.input_layernorm.weight", (text.hidden_size,)
        yield f"{layer}.post_attention_layernorm.weight", (text.hidden_size,)
        yield f"{layer}.self_attn.q_proj.weight", (queries, text.hidden_size)
        yield f"{layer}.self_attn.k_proj.weight", (keys, text.hidden_size)
        yield f"{layer}.self_attn.v_proj.weight", (keys, text.hidden_size)
        yield f"{layer}.self_attn.o_proj.weight", (text.hidden_size, queries)
        yield f"{layer}.self_attn.q_norm.weight", (text.head_dim,)
        yield f"{layer}.self_attn.k_norm.weight", (text.head_dim,)
        if index not in text.mlp_only_layers and (index + 1) % text.decoder_sparse_step == 0:
            yield f"{layer}.mlp.gate.weight", (text.num_experts, text.hidden_size)
            for expert in range(text.num_experts):
                yield from _mlp(f"{layer}.mlp.experts.{expert}", text.hidden_size, text.moe_intermediate_size)
        else:
            yield from _mlp(f"{layer}.mlp", text.hidden_size, text.intermediate_size)


def _mlp(name: str, hidden: int, intermediate: int) -> Iterator[NamedShape]:
    yield f"{name}.gate_proj.weight", (intermediate, hidden)
    yield f"{name}.up_proj.weight", (intermediate, hidden)
    yield f"{name}.down_proj.weight", (hidden, intermediate)


def _head(text: TextConfig) -> Iterator[NamedShape]:
    if not text.tie_word_embeddings:
        yield "lm_head.weight", (text.vocab_size, text.hidden_size)


def _vision(vision: VisionConfig) -> Iterator[NamedShape]:
    hidden, merged = vision.hidden_size, vision.hidden_size * vision.spatial_merge_size**2
    patch = (vision.in_channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size)
    yield "patch_embed.proj.weight", (hidden, *patch)
    yield "patch_embed.proj.bias", (hidden,)
    yield "pos_embed.weight", (vision.num_position_embeddings, hidden)
    for index in range(vision.depth):
        yield from _norm(f"blocks.{index}.norm1", hidden)
        yield from _norm(f"blocks.{index}.norm2", hidden)
        yield from _linear(f"blocks.{index}.attn.qkv", 3 * hidden, hidden)
        yield from _linear(f"blocks.{index}.attn.proj", hidden, hidden)
        yield from _linear(f"blocks.{index}.mlp.linear_fc1", vision.intermediate_size, hidden)
        yield from _linear(f"blocks.{index}.mlp.linear_fc2", hidden, vision.intermediate_size)
    taps = [(f"merger_list.{tap}", merged) for tap in range(len(vision.deepstack_visual_indexes))]
    # The last merger normalises single patches; those of the deepstack taps normalise merged ones.
    for name, normalised in [("merger", hidden), *taps]:
        yield from _norm(f"{name}.ln_q", normalised)
        yield from _linear(f"{name}.mlp.0", merged, merged)
        yield from _linear(f"{name}.mlp.2", vision.out_hidden_size, merged)


def _audio(audio: AudioConfig) -> Iterator[NamedShape]:
    channels, width, bins = audio.downsample_hidden_size, audio.d_model, audio.num_mel_bins
    for index, inputs in enumerate((1, channels, channels), start=1):
        yield f"conv2d{index}.weight", (channels, inputs, 3, 3)
        yield f"conv2d{index}.bias", (channels,)
        bins = (bins + 1) // 2  # stride 2
    yield "conv_out.weight", (width, channels * bins)
    for index in range(audio.encoder_layers):
        layer = f"layers.{index}"
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{layer}.self_attn.{projection}", width, width)
        yield from _norm(f"{layer}.self_attn_layer_norm", width)
        yield from _linear(f"{layer}.fc1", audio.encoder_ffn_dim, width)
        yield from _linear(f"{layer}.fc2", width, audio.encoder_ffn_dim)
        yield from _norm(f"{layer}.final_layer_norm", width)
    yield from _norm("ln_post", width)
    yield from _linear("proj1", width, width)
    yield from _linear("proj2", audio.output_dim, width)
