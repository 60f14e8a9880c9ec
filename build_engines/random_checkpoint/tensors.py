"""Every tensor of a checkpoint: its name as in the released checkpoints, its shape and how it is drawn.

The scales are chosen for sharp tests, not for training. Each block writes about as much into the residual stream as is
there, attention looks at a few tokens, and media embeddings are as large as words: so an answer depends on all of its
prompt, and the two best logits are far apart compared with rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from build_engines.random_checkpoint.draw import normal
from build_engines.random_checkpoint.shapes import AudioShape, Shape, SpeechShape, VisionShape

MEL_BINS = 128
PATCH = (3, 2, 16, 16)  # channels, frames, rows, columns
TALKER_HEAD = 32
PREDICTOR_HEADS, PREDICTOR_KV_HEADS = 4, 2
UPSAMPLE_RATES = (8, 5, 4, 3)
UPSAMPLING_RATIOS = (2, 2)


@dataclass(frozen=True, eq=False)
class Tensor:
    """Drawn as `offset + scale * normal`; `row_gains` multiplies each row of a matrix."""

    name: str
    shape: tuple[int, ...]
    scale: float
    offset: float = 0.0
    row_gains: NDArray[np.float32] | None = None

    def values(self, seed: int) -> NDArray[np.float32]:
        drawn = normal(self.shape, seed, self.name) * np.float32(self.scale) + np.float32(self.offset)
        return drawn if self.row_gains is None else drawn * self.row_gains[:, None]


def tensors(shape: Shape, row_gains: NDArray[np.float32]) -> Iterator[Tensor]:
    """All tensors in file order; `row_gains` [vocab] scales the rows of the thinker's output matrix."""
    yield from _thinker(shape, row_gains)
    yield from _vision(shape.vision, shape.thinker.hidden)
    yield from _audio(shape.audio, shape.thinker.hidden)
    yield from _talker(shape.speech, shape.thinker.hidden)
    yield from _vocoder(shape.speech)


def _weight(name: str, *shape: int, gain: float = 1.0) -> Tensor:
    """Keeps the size of a unit input, times `gain`."""
    return Tensor(f"{name}.weight", shape, gain / float(np.sqrt(np.prod(shape[1:]))))


def _linear(name: str, outputs: int, inputs: int, gain: float = 1.0, bias: float = 0.1) -> Iterator[Tensor]:
    yield _weight(name, outputs, inputs, gain=gain)
    yield Tensor(f"{name}.bias", (outputs,), bias)


def _rms_norm(name: str, size: int, mean: float = 1.0) -> Tensor:
    return Tensor(f"{name}.weight", (size,), 0.1 * mean, mean)


def _layer_norm(name: str, size: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (size,), 0.1, 1.0)
    yield Tensor(f"{name}.bias", (size,), 0.1)


def _thinker(shape: Shape, row_gains: NDArray[np.float32]) -> Iterator[Tensor]:
    t = shape.thinker
    yield Tensor("thinker.lm_head.weight", (shape.vocab, t.hidden), 4.0 / t.hidden**0.5, row_gains=row_gains)
    yield Tensor("thinker.model.embed_tokens.weight", (shape.vocab, t.hidden), 0.5)
    for layer in range(t.layers):
        at = f"thinker.model.layers.{layer}"
        yield from _attention(f"{at}.self_attn", t.hidden, t.heads, t.kv_heads, t.head_dim, sharpness=1.5)
        yield from _block_norms(at, t.hidden)
        yield _weight(f"{at}.mlp.gate", t.experts, t.hidden, gain=1.5)
        yield from _experts(f"{at}.mlp", t.experts, t.hidden, t.expert_hidden)
    yield _rms_norm("thinker.model.norm", t.hidden)


def _attention(
    at: str, hidden: int, heads: int, kv_heads: int, head_dim: int, sharpness: float = 1.0, head_norms: bool = True
) -> Iterator[Tensor]:
    yield _weight(f"{at}.q_proj", heads * head_dim, hidden)
    yield _weight(f"{at}.k_proj", kv_heads * head_dim, hidden)
    yield _weight(f"{at}.v_proj", kv_heads * head_dim, hidden)
    yield _weight(f"{at}.o_proj", hidden, heads * head_dim)
    if head_norms:
        yield _rms_norm(f"{at}.q_norm", head_dim, sharpness)
        yield _rms_norm(f"{at}.k_norm", head_dim, sharpness)


def _block_norms(at: str, hidden: int) -> Iterator[Tensor]:
    yield _rms_norm(f"{at}.input_layernorm", hidden)
    yield _rms_norm(f"{at}.post_attention_layernorm", hidden)


def _gated(at: str, hidden: int, inner: int) -> Iterator[Tensor]:
    yield _weight(f"{at}.gate_proj", inner, hidden, gain=1.5)
    yield _weight(f"{at}.up_proj", inner, hidden)
    yield _weight(f"{at}.down_proj", hidden, inner, gain=1.5)


def _experts(at: str, count: int, hidden: int, inner: int) -> Iterator[Tensor]:
    for expert in range(count):
        yield from _gated(f"{at}.experts.{expert}", hidden, inner)


def _vision(v: VisionShape, out: int) -> Iterator[Tensor]:
    at = "thinker.visual"
    merged = 4 * v.hidden
    yield Tensor(f"{at}.patch_embed.proj.weight", (v.hidden, *PATCH), 3.0 / float(np.sqrt(np.prod(PATCH))))
    yield Tensor(f"{at}.patch_embed.proj.bias", (v.hidden,), 0.1)
    yield Tensor(f"{at}.pos_embed.weight", (v.positions**2, v.hidden), 0.5)
    for block in range(v.depth):
        inner = f"{at}.blocks.{block}"
        yield from _layer_norm(f"{inner}.norm1", v.hidden)
        yield from _layer_norm(f"{inner}.norm2", v.hidden)
        yield from _linear(f"{inner}.attn.qkv", 3 * v.hidden, v.hidden, gain=1.3)
        yield from _linear(f"{inner}.attn.proj", v.hidden, v.hidden)
        yield from _linear(f"{inner}.mlp.linear_fc1", v.mlp_hidden, v.hidden)
        yield from _linear(f"{inner}.mlp.linear_fc2", v.hidden, v.mlp_hidden)
    for merger, norm in [("merger", v.hidden), *((f"merger_list.{i}", merged) for i in range(len(v.taps)))]:
        yield from _layer_norm(f"{at}.{merger}.ln_q", norm)
        yield from _linear(f"{at}.{merger}.mlp.0", merged, merged, gain=1.5)
        yield from _linear(f"{at}.{merger}.mlp.2", out, merged)


def _audio(a: AudioShape, out: int) -> Iterator[Tensor]:
    at = "thinker.audio_tower"
    bins = MEL_BINS
    channels = 1
    for conv in (1, 2, 3):
        fan_in = 9 * channels
        yield Tensor(f"{at}.conv2d{conv}.weight", (a.conv_channels, channels, 3, 3), 2.0 / fan_in**0.5)
        yield Tensor(f"{at}.conv2d{conv}.bias", (a.conv_channels,), 0.1)
        channels, bins = a.conv_channels, (bins + 1) // 2
    yield _weight(f"{at}.conv_out", a.hidden, channels * bins, gain=1.5)
    for layer in range(a.layers):
        inner = f"{at}.layers.{layer}"
        yield from _layer_norm(f"{inner}.self_attn_layer_norm", a.hidden)
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from _linear(f"{inner}.self_attn.{name}", a.hidden, a.hidden, gain=1.3)
        yield from _linear(f"{inner}.self_attn.out_proj", a.hidden, a.hidden)
        yield from _layer_norm(f"{inner}.final_layer_norm", a.hidden)
        yield from _linear(f"{inner}.fc1", a.mlp_hidden, a.hidden)
        yield from _linear(f"{inner}.fc2", a.hidden, a.mlp_hidden)
    yield from _layer_norm(f"{at}.ln_post", a.hidden)
    yield from _linear(f"{at}.proj1", a.hidden, a.hidden, gain=1.5)
    yield from _linear(f"{at}.proj2", out, a.hidden)


def _talker(s: SpeechShape, thinker_hidden: int) -> Iterator[Tensor]:
    codes = s.codebook + 1024  # the last 1024 ids are control codes and speakers
    yield Tensor("talker.model.codec_embedding.weight", (codes, s.hidden), 0.5)
    for layer in range(s.layers):
        at = f"talker.model.layers.{layer}"
        yield from _attention(f"{at}.self_attn", s.hidden, talker_heads(s), talker_kv_heads(s), TALKER_HEAD)
        yield from _block_norms(at, s.hidden)
        yield _weight(f"{at}.mlp.gate", s.experts, s.hidden, gain=1.5)
        yield from _experts(f"{at}.mlp", s.experts, s.hidden, s.expert_hidden)
        yield from _gated(f"{at}.mlp.shared_expert", s.hidden, s.expert_hidden)
        yield _weight(f"{at}.mlp.shared_expert_gate", 1, s.hidden)
    yield _rms_norm("talker.model.norm", s.hidden)
    yield _weight("talker.codec_head", codes, s.hidden, gain=4.0)
    for name in ("text_projection", "hidden_projection"):
        yield from _linear(f"talker.{name}.linear_fc1", 2 * s.hidden, thinker_hidden)
        yield from _linear(f"talker.{name}.linear_fc2", s.hidden, 2 * s.hidden)
    for group in range(s.code_groups - 1):
        yield Tensor(f"talker.code_predictor.model.codec_embedding.{group}.weight", (s.codebook, s.hidden), 0.5)
        yield _weight(f"talker.code_predictor.lm_head.{group}", s.codebook, s.hidden, gain=4.0)
    for layer in range(s.predictor_layers):
        at = f"talker.code_predictor.model.layers.{layer}"
        yield from _attention(f"{at}.self_attn", s.hidden, PREDICTOR_HEADS, PREDICTOR_KV_HEADS, TALKER_HEAD)
        yield from _block_norms(at, s.hidden)
        yield from _gated(f"{at}.mlp", s.hidden, 2 * s.hidden)
    yield _rms_norm("talker.code_predictor.model.norm", s.hidden)


def talker_heads(s: SpeechShape) -> int:
    """Attention heads of the talker."""
    return s.hidden // TALKER_HEAD


def talker_kv_heads(s: SpeechShape) -> int:
    """Key and value heads of the talker."""
    return 2 if talker_heads(s) % 2 == 0 else 1


def _vocoder(s: SpeechShape) -> Iterator[Tensor]:
    hidden = s.vocoder_hidden
    yield Tensor("code2wav.code_embedding.weight", (s.code_groups * s.codebook, hidden), 1.0)
    for layer in range(2):
        at = f"code2wav.pre_transformer.layers.{layer}"
        yield from _attention(f"{at}.self_attn", hidden, 1, 1, hidden, head_norms=False)
        yield from _block_norms(at, hidden)
        yield from _gated(f"{at}.mlp", hidden, s.vocoder_mlp_hidden)
        yield Tensor(f"{at}.self_attn_layer_scale.scale", (hidden,), 0.01, 0.1)
        yield Tensor(f"{at}.mlp_layer_scale.scale", (hidden,), 0.01, 0.1)
    yield _rms_norm("code2wav.pre_transformer.norm", hidden)
    for stage, ratio in enumerate(UPSAMPLING_RATIOS):
        at = f"code2wav.upsample.{stage}"
        yield from _conv(f"{at}.0.conv", (hidden, hidden, ratio), hidden, hidden)
        yield from _conv(f"{at}.1.dwconv.conv", (hidden, 1, 7), hidden, 7)
        yield from _layer_norm(f"{at}.1.norm", hidden)
        yield from _linear(f"{at}.1.pwconv1", 4 * hidden, hidden)
        yield from _linear(f"{at}.1.pwconv2", hidden, 4 * hidden)
        yield Tensor(f"{at}.1.gamma", (hidden,), 0.01, 0.1)
    yield from _vocoder_decoder(hidden)


def _conv(name: str, shape: tuple[int, ...], bias: int, fan_in: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", shape, 1.0 / fan_in**0.5)
    yield Tensor(f"{name}.bias", (bias,), 0.02)


def _snake(name: str, channels: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.alpha", (channels,), 0.1)
    yield Tensor(f"{name}.beta", (channels,), 0.1)


def _vocoder_decoder(hidden: int) -> Iterator[Tensor]:
    at = "code2wav.decoder"
    yield from _conv(f"{at}.0.conv", (hidden, hidden, 7), hidden, 7 * hidden)
    channels = hidden
    for stage, rate in enumerate(UPSAMPLE_RATES, 1):
        block = f"{at}.{stage}.block"
        yield from _snake(f"{block}.0", channels)
        yield from _conv(f"{block}.1.conv", (channels, channels // 2, 2 * rate), channels // 2, 2 * channels)
        channels //= 2
        for unit in (2, 3, 4):
            yield from _snake(f"{block}.{unit}.act1", channels)
            yield from _conv(f"{block}.{unit}.conv1.conv", (channels, channels, 7), channels, 7 * channels)
            yield from _snake(f"{block}.{unit}.act2", channels)
            yield from _conv(f"{block}.{unit}.conv2.conv", (channels, channels, 1), channels, channels)
    last = len(UPSAMPLE_RATES) + 1
    yield from _snake(f"{at}.{last}", channels)
    yield from _conv(f"{at}.{last + 1}.conv", (1, channels, 7), 1, 7 * channels)
