"""The sizes and token ids of a checkpoint, read from its `config.json` (Qwen3-Omni, `configuration_qwen3_omni_moe.py`).

Both the engine builder and the serving code read sizes from here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARCHITECTURES = (
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3OmniMoeThinkerForConditionalGeneration",
)


class ConfigError(ValueError):
    """The checkpoint's configuration is missing something, or contradicts itself."""


@dataclass(frozen=True)
class TextConfig:
    """The thinker's decoder: a mixture-of-experts transformer with grouped-query attention and M-RoPE."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    rms_norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]
    max_position_embeddings: int
    tie_word_embeddings: bool
    mlp_only_layers: tuple[int, ...]
    decoder_sparse_step: int


@dataclass(frozen=True)
class VisionConfig:
    """The vision transformer; patches of `temporal_patch_size` frames of `patch_size` squared pixels."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    num_position_embeddings: int
    deepstack_visual_indexes: tuple[int, ...]
    out_hidden_size: int
    hidden_act: str
    rope_theta: float = 10000.0

    @property
    def patch_dim(self) -> int:
        """Values in one flattened patch."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


@dataclass(frozen=True)
class AudioConfig:
    """The audio encoder (AuT): convolutions over chunks of 2 * n_window mel frames, then windowed attention."""

    num_mel_bins: int
    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    downsample_hidden_size: int
    max_source_positions: int
    n_window: int
    n_window_infer: int
    output_dim: int
    activation_function: str


@dataclass(frozen=True)
class TokenIds:
    """Special tokens that the thinker's prompt is made of."""

    image: int
    video: int
    audio: int
    vision_start: int
    vision_end: int
    audio_start: int
    audio_end: int
    eos: tuple[int, ...]


@dataclass(frozen=True)
class OmniConfig:
    """A whole checkpoint, less the talker and the vocoder."""

    text: TextConfig
    vision: VisionConfig
    audio: AudioConfig
    tokens: TokenIds
    position_id_per_seconds: int
    seconds_per_chunk: int
    has_talker: bool

    @classmethod
    def from_json(cls, config: Mapping[str, Any], generation: Mapping[str, Any]) -> OmniConfig:
        """Read `config.json` and `generation_config.json` (may be empty).

        Raises:
            ConfigError: another architecture, a missing key, or sizes that contradict each other.
        """
        architectures = tuple(config.get("architectures") or ())
        if not set(architectures) & set(ARCHITECTURES):
            raise ConfigError(f"architectures: found {list(architectures)}; allowed: {' or '.join(ARCHITECTURES)}")
        thinker = config.get("thinker_config", config)
        result = cls(
            text=_text(_section(thinker, "text_config"), config, thinker),
            vision=_vision(_section(thinker, "vision_config")),
            audio=_audio(_section(thinker, "audio_config")),
            tokens=_tokens(config, thinker, generation),
            position_id_per_seconds=int(thinker.get("position_id_per_seconds", 13)),
            seconds_per_chunk=int(thinker.get("seconds_per_chunk", 2)),
            has_talker="talker_config" in config and bool(config.get("enable_audio_output", True)),
        )
        _check(result)
        return result


def _section(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = parent.get(name)
    if not isinstance(section, Mapping):
        raise ConfigError(f"thinker_config.{name}: not found in config.json")
    return section


def _number(section: Mapping[str, Any], where: str, key: str, default: int | None = None) -> int:
    value = section.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{where}.{key}: found {value!r}; allowed: a whole number that is not negative")
    return value


def _text(text: Mapping[str, Any], config: Mapping[str, Any], thinker: Mapping[str, Any]) -> TextConfig:
    where = "text_config"
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    section = rope.get("mrope_section")
    if not isinstance(section, (list, tuple)) or len(section) != 3:
        raise ConfigError(f"{where}.rope_scaling.mrope_section: found {section!r}; allowed: three whole numbers")
    heads = _number(text, where, "num_attention_heads")
    hidden = _number(text, where, "hidden_size")
    tied = text.get("tie_word_embeddings", thinker.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    return TextConfig(
        vocab_size=_number(text, where, "vocab_size"),
        hidden_size=hidden,
        num_hidden_layers=_number(text, where, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=_number(text, where, "num_key_value_heads"),
        head_dim=_number(text, where, "head_dim", hidden // heads if heads else None),
        intermediate_size=_number(text, where, "intermediate_size"),
        moe_intermediate_size=_number(text, where, "moe_intermediate_size"),
        num_experts=_number(text, where, "num_experts"),
        num_experts_per_tok=_number(text, where, "num_experts_per_tok"),
        norm_topk_prob=bool(text.get("norm_topk_prob", True)),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta", text.get("rope_theta", 1e6))),
        mrope_section=(int(section[0]), int(section[1]), int(section[2])),
        max_position_embeddings=_number(text, where, "max_position_embeddings"),
        tie_word_embeddings=bool(tied),
        mlp_only_layers=tuple(text.get("mlp_only_layers") or ()),
        decoder_sparse_step=_number(text, where, "decoder_sparse_step", 1),
    )


def _vision(vision: Mapping[str, Any]) -> VisionConfig:
    where = "vision_config"
    return VisionConfig(
        depth=_number(vision, where, "depth"),
        hidden_size=_number(vision, where, "hidden_size"),
        intermediate_size=_number(vision, where, "intermediate_size"),
        num_heads=_number(vision, where, "num_heads"),
        in_channels=_number(vision, where, "in_channels", 3),
        patch_size=_number(vision, where, "patch_size"),
        temporal_patch_size=_number(vision, where, "temporal_patch_size"),
        spatial_merge_size=_number(vision, where, "spatial_merge_size"),
        num_position_embeddings=_number(vision, where, "num_position_embeddings"),
        deepstack_visual_indexes=tuple(vision.get("deepstack_visual_indexes") or ()),
        out_hidden_size=_number(vision, where, "out_hidden_size"),
        hidden_act=str(vision.get("hidden_act", "gelu_pytorch_tanh")),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10000.0)),
    )


def _audio(audio: Mapping[str, Any]) -> AudioConfig:
    where = "audio_config"
    return AudioConfig(
        num_mel_bins=_number(audio, where, "num_mel_bins"),
        d_model=_number(audio, where, "d_model"),
        encoder_layers=_number(audio, where, "encoder_layers"),
        encoder_attention_heads=_number(audio, where, "encoder_attention_heads"),
        encoder_ffn_dim=_number(audio, where, "encoder_ffn_dim"),
        downsample_hidden_size=_number(audio, where, "downsample_hidden_size"),
        max_source_positions=_number(audio, where, "max_source_positions"),
        n_window=_number(audio, where, "n_window"),
        n_window_infer=_number(audio, where, "n_window_infer"),
        output_dim=_number(audio, where, "output_dim"),
        activation_function=str(audio.get("activation_function", "gelu")),
    )


def _tokens(config: Mapping[str, Any], thinker: Mapping[str, Any], generation: Mapping[str, Any]) -> TokenIds:
    eos = generation.get("eos_token_id", config.get("im_end_token_id", thinker.get("im_end_token_id", 151645)))
    eos_ids = tuple(int(e) for e in eos) if isinstance(eos, (list, tuple)) else (int(eos),)
    return TokenIds(
        image=_number(thinker, "thinker_config", "image_token_id"),
        video=_number(thinker, "thinker_config", "video_token_id"),
        audio=_number(thinker, "thinker_config", "audio_token_id"),
        vision_start=_number(thinker, "thinker_config", "vision_start_token_id"),
        vision_end=_number(thinker, "thinker_config", "vision_end_token_id", 151653),
        audio_start=_number(thinker, "thinker_config", "audio_start_token_id"),
        audio_end=_number(thinker, "thinker_config", "audio_end_token_id", 151670),
        eos=eos_ids,
    )


def _check(config: OmniConfig) -> None:
    text, vision, audio = config.text, config.vision, config.audio
    rules = (
        (
            vision.out_hidden_size == text.hidden_size,
            "vision_config.out_hidden_size must equal text_config.hidden_size",
        ),
        (audio.output_dim == text.hidden_size, "audio_config.output_dim must equal text_config.hidden_size"),
        (audio.n_window == 50, "audio_config.n_window must be 50 (13 tokens per 100 mel frames)"),
        (
            audio.n_window_infer >= 2 * audio.n_window,
            "audio_config.n_window_infer must be at least one chunk, 2 * n_window",
        ),
        (2 * sum(text.mrope_section) == text.head_dim, "text_config mrope_section must sum to head_dim / 2"),
        (
            text.num_key_value_heads > 0 and text.num_attention_heads % text.num_key_value_heads == 0,
            "text_config.num_attention_heads must be a multiple of num_key_value_heads",
        ),
        (text.decoder_sparse_step > 0, "text_config.decoder_sparse_step must be 1 or more"),
        (0 < text.num_experts_per_tok <= text.num_experts, "text_config.num_experts_per_tok must be 1..num_experts"),
        (
            len(vision.deepstack_visual_indexes) <= text.num_hidden_layers,
            "vision_config.deepstack_visual_indexes: more taps than the thinker has layers",
        ),
        (
            all(0 <= i < vision.depth for i in vision.deepstack_visual_indexes),
            "vision_config.deepstack_visual_indexes must lie within vision_config.depth",
        ),
        (vision.num_heads > 0 and vision.hidden_size % vision.num_heads == 0, "vision_config.hidden_size % num_heads"),
        (
            int(vision.num_position_embeddings**0.5) ** 2 == vision.num_position_embeddings,
            "vision_config.num_position_embeddings must be a square",
        ),
        (
            audio.encoder_attention_heads > 0 and audio.d_model % audio.encoder_attention_heads == 0,
            "audio_config.d_model must be a multiple of encoder_attention_heads",
        ),
        (
            all(0 <= t < text.vocab_size for t in (config.tokens.image, config.tokens.video, config.tokens.audio)),
            "media token ids must be smaller than text_config.vocab_size",
        ),
    )
    for holds, message in rules:
        if not holds:
            raise ConfigError(message)
