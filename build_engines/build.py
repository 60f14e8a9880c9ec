"""One build from a checkpoint to a published engine folder."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from build_engines.checkpoint import PREFIX, Checkpoint
from build_engines.engine_store import EngineStore
from build_engines.errors import BuildError
from build_engines.expected_tensors import check_tensors, expected_tensors
from build_engines.graph_writer import PAGE_BYTES, GraphWriter
from build_engines.graphs.audio import build_audio
from build_engines.graphs.thinker import build_thinker
from build_engines.graphs.vision import build_vision
from build_engines.manifest import describe, same_build
from build_engines.output_file import OutputFile
from build_engines.processor_files import small_files
from build_engines.progress import BuildProgress
from python_backends.engine_folder import MANIFEST, FileRecord, Manifest, Variant

GraphBuilder = Callable[[Checkpoint, GraphWriter, Callable[[int], None]], None]

EMBEDDINGS = "token_embeddings.npy"
_EMBEDDING_TENSOR = f"{PREFIX}model.embed_tokens.weight"
# Graphs, manifest and what the file system needs for itself.
_SPARE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class GraphPart:
    """One graph: the stem of its files, its builder, and where its weights stand in the checkpoint."""

    stem: str
    build: GraphBuilder
    prefixes: tuple[str, ...]


PARTS = (
    GraphPart("vision_encoder", build_vision, (f"{PREFIX}visual.",)),
    GraphPart("audio_encoder", build_audio, (f"{PREFIX}audio_tower.",)),
    GraphPart("thinker", build_thinker, (f"{PREFIX}model.layers.", f"{PREFIX}model.norm.", f"{PREFIX}lm_head.")),
)


@dataclass(frozen=True)
class BuildOptions:
    """What the command line asks for; None means what the checkpoint says."""

    checkpoint: Path
    out: Path
    name: str
    precision: str = "fp32"
    max_model_len: int | None = None
    variant: Variant | None = None
    force: bool = False


@dataclass(frozen=True)
class BuildResult:
    """The engine folder that the link now names; `built` is False if it was there already."""

    path: Path
    built: bool


def build(options: BuildOptions, progress: BuildProgress) -> BuildResult:
    """Build, publish and select one engine folder, or select an equal one that is there.

    Raises:
        BuildError: the checkpoint cannot be built, or does not fit on the disk.
        OSError: a file cannot be read or written. Nothing half-written is left behind by either.
    """
    checkpoint = Checkpoint(options.checkpoint)
    check_tensors(checkpoint)
    files = small_files(checkpoint)
    wanted = describe(checkpoint, files, options.name, options.precision, options.max_model_len, options.variant)
    store = EngineStore(options.out, options.name)
    if not options.force:
        found = store.find(lambda manifest: same_build(wanted, manifest))
        if found:
            store.select(found)
            return BuildResult(found, built=False)
    with store.staging() as folder:
        check_free_space(folder, needed_bytes(checkpoint))
        records = _write(checkpoint, files, folder, progress)
        _write_manifest(replace(wanted, files=records), folder)
        return BuildResult(store.publish(folder), built=True)


def needed_bytes(checkpoint: Checkpoint) -> int:
    """An upper bound of what the engine folder takes on the disk."""
    weights = sum(checkpoint.fp32_bytes(name) + PAGE_BYTES for name, _ in expected_tensors(checkpoint.config))
    tied = checkpoint.fp32_bytes(_EMBEDDING_TENSOR) if checkpoint.config.text.tie_word_embeddings else 0
    return weights + tied + _SPARE_BYTES


def check_free_space(folder: Path, needed: int) -> None:
    """Refuse a build that cannot end well.

    Raises:
        BuildError: the disk of `folder` has fewer than `needed` bytes; the sentence has the number that is missing.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BuildError(
            f"{folder.parent}: the engines need {needed} bytes, {free} are free on this disk; missing: {needed - free}"
        )


def _write(
    checkpoint: Checkpoint, files: Mapping[str, bytes], folder: Path, progress: BuildProgress
) -> dict[str, FileRecord]:
    records: dict[str, FileRecord] = {}
    for name, content in files.items():
        with OutputFile(folder / name) as file:
            file.write(content)
        records[name] = file.close()
    records[EMBEDDINGS] = _write_embeddings(checkpoint, folder / EMBEDDINGS, progress)
    for part in PARTS:
        total = sum(checkpoint.fp32_bytes(name) for name in checkpoint.names() if name.startswith(part.prefixes))
        with progress.part(part.stem, total) as advance, GraphWriter(folder, part.stem) as writer:
            part.build(checkpoint, writer, advance)
            writer.finish()
        records.update(writer.files)
    return dict(sorted(records.items()))


def _write_embeddings(checkpoint: Checkpoint, path: Path, progress: BuildProgress) -> FileRecord:
    """The token embeddings, fp32 [vocabulary, hidden], as a .npy file that the engine maps into memory."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(  # type: ignore[no-untyped-call]
        header, {"descr": "<f4", "fortran_order": False, "shape": checkpoint.shape(_EMBEDDING_TENSOR)}
    )
    with (
        progress.part("token_embeddings", checkpoint.fp32_bytes(_EMBEDDING_TENSOR)) as advance,
        OutputFile(path) as file,
    ):
        file.write(header.getvalue())
        for piece in checkpoint.pieces(_EMBEDDING_TENSOR):
            file.write_array(piece)
            advance(piece.nbytes)
    return file.close()


def _write_manifest(manifest: Manifest, folder: Path) -> None:
    with OutputFile(folder / MANIFEST) as file:
        file.write((json.dumps(manifest.to_json(), indent=2) + "\n").encode())
