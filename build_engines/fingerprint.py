"""What tells one checkpoint or builder from another without reading 60 GB of weights again."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from platform import python_version

from build_engines.checkpoint import Checkpoint
from build_engines.shard import Shard

EDGE_BYTES = 4096


def weights_fingerprint(checkpoint: Checkpoint) -> str:
    """SHA-256 over each shard's header, and over the first and last 4 KB of each tensor.

    Retraining changes nearly every value and is noticed. An edit that leaves both ends of every tensor as they were is
    not: `--force` builds all the same.
    """
    digest = hashlib.sha256()
    for shard in checkpoint.shards:
        digest.update(shard.header_sha256.encode())
        _add_edges(digest, shard)
    return digest.hexdigest()


def _add_edges(digest: hashlib._Hash, shard: Shard) -> None:
    with shard.path.open("rb") as file:
        for tensor in sorted(shard.tensors.values(), key=lambda tensor: tensor.offset):
            file.seek(tensor.offset)
            digest.update(file.read(min(EDGE_BYTES, tensor.bytes)))
            file.seek(tensor.offset + max(0, tensor.bytes - EDGE_BYTES))
            digest.update(file.read(min(EDGE_BYTES, tensor.bytes)))


def tool_versions() -> dict[str, str]:
    """Versions of all that decides what a graph looks like; `build_engines` is a hash of this package's source."""
    return {
        "omni_triton": _own_version(),
        "build_engines": _source_hash(),
        "python": python_version(),
        "numpy": metadata.version("numpy"),
        "onnx": metadata.version("onnx"),
        "onnx_ir": metadata.version("onnx-ir"),
    }


def _own_version() -> str:
    try:
        return metadata.version("omni-triton")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "checkout"


def _source_hash() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in [*sorted(folder.glob("*.py")), *sorted((folder / "graphs").glob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
