"""What the builder writes into `manifest.json`, and when two manifests say that nothing new would be built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from build_engines.checkpoint import Checkpoint
from build_engines.errors import CheckpointError
from build_engines.fingerprint import tool_versions, weights_fingerprint
from python_backends.config import ARCHITECTURES
from python_backends.engine_folder import FileRecord, Limits, Manifest, Source, Variant

PARTS = ("vision_encoder", "audio_encoder", "thinker", "kv_cache")
PRECISIONS = ("fp32",)
# Files that follow from the source, unlike the small ones, which are compared by content.
_BUILT = (".onnx", ".onnx.data", ".npy")


def describe(
    checkpoint: Checkpoint,
    small_files: Mapping[str, bytes],
    name: str,
    precision: str,
    max_model_len: int | None,
    variant: Variant | None,
) -> Manifest:
    """The manifest as far as it is known before anything is built: of the files only the small ones.

    Args:
        max_model_len: None means what the configuration allows.
        variant: None means what the checkpoint says of itself.

    Raises:
        CheckpointError: `max_model_len` is more than the configuration allows.
    """
    longest = checkpoint.config.text.max_position_embeddings
    length = longest if max_model_len is None else max_model_len
    if not 0 < length <= longest:
        raise CheckpointError(f"max_model_len: found {length}; allowed: 1 to {longest} (max_position_embeddings)")
    config, generation = checkpoint.config_json, checkpoint.generation_json
    version = config.get("transformers_version") or generation.get("transformers_version") or "unknown"
    return Manifest(
        name=name,
        variant=variant or guess_variant(checkpoint),
        source=Source(
            architecture=next(name for name in ARCHITECTURES if name in config["architectures"]),
            transformers_version=str(version),
            config_sha256=hashlib.sha256(small_files["config.json"]).hexdigest(),
            weights_fingerprint=weights_fingerprint(checkpoint),
        ),
        precision=dict.fromkeys(PARTS, precision),
        limits=Limits(length),
        files={
            file: FileRecord(len(content), hashlib.sha256(content).hexdigest())
            for file, content in sorted(small_files.items())
        },
        tools=tool_versions(),
    )


def guess_variant(checkpoint: Checkpoint) -> Variant:
    """`instruct` if there is a talker.

    Thinking and Captioner checkpoints have the same configuration and differ only in what they were trained for:
    `captioner` if the name of the folder, of the Hugging Face repository in whose cache it lies, or the configuration's
    `_name_or_path` says so, else `thinking`.
    """
    if checkpoint.config.has_talker:
        return Variant.INSTRUCT
    names = (checkpoint_name(checkpoint.path), str(checkpoint.config_json.get("_name_or_path", "")))
    return Variant.CAPTIONER if any("captioner" in name.lower() for name in names) else Variant.THINKING


def checkpoint_name(path: Path) -> str:
    """Name of the checkpoint's folder; in the Hugging Face cache (`models--ORG--NAME/snapshots/HASH`) the model's."""
    folder = path.resolve()
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.rpartition("--")[2]
    return folder.name


def same_build(wanted: Manifest, found: Manifest) -> bool:
    """Whether building what `wanted` describes (see `describe`) would give what `found` describes."""
    small = {name: record for name, record in found.files.items() if not name.endswith(_BUILT)}
    return replace(found, files=small) == wanted
