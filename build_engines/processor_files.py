"""The small files of an engine folder: settings, tokenizer, chat template, processor settings.

transformers 5.24 saves all processor settings in `processor_config.json` and the template in `chat_template.jinja`. The
released checkpoints have one flat `preprocessor_config.json`, which each processor class reads for itself, and
`chat_template.json`. Both end up in the first layout, with the classes' defaults filled in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from build_engines.checkpoint import Checkpoint, read_json, read_text
from build_engines.errors import CheckpointError
from build_engines.tokenizer_file import tokenizer_json

_CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD = [0.26862954, 0.26130258, 0.27577711]

# What the classes assume where the files are silent (transformers 5.24: `WhisperFeatureExtractor`,
# `Qwen2VLImageProcessor`, `Qwen2VLVideoProcessor`). Only these keys mean anything to the class.
_FEATURE_EXTRACTOR: Mapping[str, Any] = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 80,
    "sampling_rate": 16000,
    "hop_length": 160,
    "chunk_length": 30,
    "n_fft": 400,
    "padding_value": 0.0,
    "padding_side": "right",
    "dither": 0.0,
    "return_attention_mask": False,
}
_PIXELS: Mapping[str, Any] = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
    "merge_size": 2,
    "patch_size": 14,
    "resample": 3,
    "rescale_factor": 1 / 255,
    "temporal_patch_size": 2,
}
_IMAGE_PROCESSOR: Mapping[str, Any] = {
    "image_processor_type": "Qwen2VLImageProcessor",
    **_PIXELS,
    "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
}
_VIDEO_PROCESSOR: Mapping[str, Any] = {
    "video_processor_type": "Qwen2VLVideoProcessor",
    **_PIXELS,
    "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768},
    "do_sample_frames": False,
    "min_frames": 4,
    "max_frames": 768,
    "max_video_tokens": 128000,
}


def small_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Name and content of every file that is not a graph or a weight.

    Raises:
        CheckpointError: a file is missing or malformed, or contradicts the configuration.
    """
    files = {
        "config.json": (checkpoint.path / "config.json").read_bytes(),
        "tokenizer.json": tokenizer_json(checkpoint),
        "chat_template.jinja": _chat_template(checkpoint.path).encode(),
        "processor_config.json": _processor_config(checkpoint),
    }
    for name in ("generation_config.json", "tokenizer_config.json"):
        path = checkpoint.path / name
        if path.exists():
            read_json(path)
            files[name] = path.read_bytes()
    return files


def _chat_template(folder: Path) -> str:
    plain = folder / "chat_template.jinja"
    if plain.exists():
        return read_text(plain)
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = read_json(folder / name).get("chat_template") if (folder / name).exists() else None
        if isinstance(template, list):  # several, by name
            template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
        if isinstance(template, str):
            return template
    raise CheckpointError(
        f"{folder}: no chat template in chat_template.jinja, chat_template.json or tokenizer_config.json"
    )


def _processor_config(checkpoint: Checkpoint) -> bytes:
    sections = {
        "feature_extractor": (_FEATURE_EXTRACTOR, ("preprocessor_config.json",)),
        "image_processor": (_IMAGE_PROCESSOR, ("preprocessor_config.json",)),
        "video_processor": (_VIDEO_PROCESSOR, ("video_preprocessor_config.json", "preprocessor_config.json")),
    }
    config: dict[str, Any] = {"processor_class": "Qwen3OmniMoeProcessor"}
    for name, (defaults, files) in sections.items():
        config[name] = _section(defaults, _stored(checkpoint.path, name, files))
    _check(checkpoint, config)
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def _stored(folder: Path, section: str, files: tuple[str, ...]) -> Mapping[str, Any]:
    whole = folder / "processor_config.json"
    stored = read_json(whole).get(section) if whole.exists() else None
    if isinstance(stored, dict):
        return stored
    for name in files:
        if (folder / name).exists():
            return read_json(folder / name)
    raise CheckpointError(f"{folder}: no {section} in processor_config.json, and no preprocessor_config.json")


def _section(defaults: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: default if stored.get(key) is None else stored[key] for key, default in defaults.items()}
    if "size" in result:
        # the released files' older way to say the same
        edges = {"shortest_edge": stored.get("min_pixels"), "longest_edge": stored.get("max_pixels")}
        result["size"] = {**result["size"], **{key: pixels for key, pixels in edges.items() if pixels is not None}}
    return result


def _check(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    vision, audio = checkpoint.config.vision, checkpoint.config.audio
    pixels = {
        "patch_size": vision.patch_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "merge_size": vision.spatial_merge_size,
    }
    needed = {
        "image_processor": pixels,
        "video_processor": pixels,
        "feature_extractor": {"feature_size": audio.num_mel_bins},
    }
    for section, values in needed.items():
        for key, value in values.items():
            if config[section][key] != value:
                raise CheckpointError(
                    f"processor settings: {section}.{key} is {config[section][key]!r}; config.json asks for {value}"
                )
