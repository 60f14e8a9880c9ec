"""Writes the smallest checkpoints that the builder takes, in both layouts; thousands of weights, not millions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from build_engines.expected_tensors import expected_tensors
from python_backends.config import OmniConfig

Tensors = dict[str, NDArray[Any]]

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
)
PLAIN = ("<think>", "</think>")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_MERGES = (("Ã", "©"), ("h", "i"))  # é and hi
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def vocabulary() -> dict[str, int]:
    """All bytes and the merges' results."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in _MERGES)]
    return {piece: number for number, piece in enumerate(pieces)}


def token_id(content: str) -> int:
    """Id of an added token."""
    return len(vocabulary()) + (SPECIAL + PLAIN).index(content)


def tokenizer() -> Tokenizer:
    """What transformers would save as tokenizer.json."""
    result = Tokenizer(models.BPE(vocab=vocabulary(), merges=list(_MERGES)))
    result.normalizer = normalizers.NFC()
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    result.add_tokens([AddedToken(token, normalized=False) for token in PLAIN])
    return result


def config_json(talker: bool = True) -> dict[str, Any]:
    """A whole `config.json`; change what the test is about before writing it."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "transformers_version": "5.24.0",
        "enable_audio_output": talker,
        "thinker_config": {
            "text_config": {
                "vocab_size": 288,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 16,
                "intermediate_size": 48,
                "moe_intermediate_size": 16,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "max_position_embeddings": 512,
                "rope_scaling": {"mrope_section": [4, 2, 2]},
                "tie_word_embeddings": False,
            },
            "vision_config": {
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "patch_size": 4,
                "temporal_patch_size": 2,
                "spatial_merge_size": 2,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0],
                "out_hidden_size": 32,
            },
            "audio_config": {
                "num_mel_bins": 16,
                "d_model": 16,
                "encoder_layers": 1,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 24,
                "downsample_hidden_size": 8,
                "max_source_positions": 1500,
                "n_window": 50,
                "n_window_infer": 800,
                "output_dim": 32,
            },
            "image_token_id": token_id("<|image_pad|>"),
            "video_token_id": token_id("<|video_pad|>"),
            "audio_token_id": token_id("<|audio_pad|>"),
            "vision_start_token_id": token_id("<|vision_start|>"),
            "vision_end_token_id": token_id("<|vision_end|>"),
            "audio_start_token_id": token_id("<|audio_start|>"),
            "audio_end_token_id": token_id("<|audio_end|>"),
        },
    }
    if talker:
        config["talker_config"] = {}
    return config


def random_tensors(config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """bf16 values for every tensor that the configuration asks for, and one of the talker's."""
    generator = np.random.default_rng(seed)
    shapes = {**dict(expected_tensors(OmniConfig.from_json(config, {}))), "talker.codec_head.weight": (4, 2)}
    return {
        name: generator.standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16)
        for name, shape in shapes.items()
    }


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    tensors: Tensors | None = None,
    shards: int = 1,
    released_layout: bool = False,
) -> Path:
    """Write a checkpoint and return its folder."""
    config = config_json() if config is None else config
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": token_id("<|im_end|>")})
    write_weights(folder, random_tensors(config) if tensors is None else tensors, shards)
    (_write_released if released_layout else _write_saved)(folder)
    return folder


def write_weights(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    """`model.safetensors`, or shards with an index."""
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = dict(list(tensors.items())[number::shards])
        save_file(part, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _write_saved(folder: Path) -> None:
    """As transformers 5.24 saves."""
    pixels = {
        "patch_size": 4,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    size = {"size": {"shortest_edge": 64, "longest_edge": 4096}}
    write_json(
        folder / "processor_config.json",
        {
            "processor_class": "Qwen3OmniMoeProcessor",
            "feature_extractor": {"feature_size": 16, "padding_side": "left"},
            "image_processor": pixels | size,
            "video_processor": pixels | size,
        },
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"eos_token": "<|im_end|>"})
    tokenizer().save(str(folder / "tokenizer.json"))


def _write_released(folder: Path) -> None:
    """As the released checkpoints are laid out."""
    write_json(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "image_processor_type": "Qwen2VLImageProcessor",
            "feature_size": 16,
            "padding_side": "left",
            "patch_size": 4,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
            "min_pixels": 64,
            "max_pixels": 4096,
        },
    )
    write_json(folder / "chat_template.json", {"chat_template": TEMPLATE})
    write_json(folder / "vocab.json", vocabulary())
    merges = "\n".join(" ".join(pair) for pair in _MERGES)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    write_json(
        folder / "tokenizer_config.json",
        {
            "eos_token": "<|im_end|>",
            "added_tokens_decoder": {
                str(token_id(token)): {"content": token, "normalized": False, "special": token in SPECIAL}
                for token in SPECIAL + PLAIN
            },
        },
    )
