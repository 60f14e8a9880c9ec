"""The engine folder that `build_engines` writes and every model reads: graphs, weights, tokenizer, settings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from python_backends.config import ConfigError, OmniConfig

SCHEMA_VERSION = 1
ENVIRONMENT = "OMNI_ENGINES"
DEFAULT_PATH = Path("engines/current")
MANIFEST = "manifest.json"


class EngineFolderError(Exception):
    """There is no usable engine folder; the sentence says which file is wrong, and how."""


class Variant(StrEnum):
    """What the checkpoint was trained for."""

    INSTRUCT = "instruct"
    THINKING = "thinking"
    CAPTIONER = "captioner"


@dataclass(frozen=True)
class FileRecord:
    """What a file of the folder must be."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """The checkpoint that the engines were built from.

    `weights_fingerprint` covers names, types, shapes and places of all tensors and both ends of each one's values, not
    all values: reading 60 GB again to see whether a build is needed would take minutes.
    """

    architecture: str
    transformers_version: str
    config_sha256: str
    weights_fingerprint: str


@dataclass(frozen=True)
class Limits:
    """`max_model_len`: the most tokens of prompt and answer together."""

    max_model_len: int


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`: what is in the folder and how it was made."""

    name: str
    variant: Variant
    source: Source
    precision: Mapping[str, str]
    limits: Limits
    files: Mapping[str, FileRecord]
    tools: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": self.schema_version, **asdict(self), "variant": self.variant.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Read a parsed `manifest.json`.

        Raises:
            EngineFolderError: another schema version, or a key is missing or of the wrong kind.
        """
        version = value.get("schema_version")
        if version != SCHEMA_VERSION:
            raise EngineFolderError(
                f"schema_version: found {version!r}; allowed: {SCHEMA_VERSION} (build the engines again)"
            )
        try:
            return cls(
                name=str(value["name"]),
                variant=Variant(value["variant"]),
                source=Source(**value["source"]),
                precision={str(part): str(kind) for part, kind in value["precision"].items()},
                limits=Limits(int(value["limits"]["max_model_len"])),
                files={
                    str(name): FileRecord(int(record["bytes"]), str(record["sha256"]))
                    for name, record in value["files"].items()
                },
                tools={str(tool): str(version) for tool, version in value["tools"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EngineFolderError(f"missing or malformed entry ({error})") from error


@dataclass(frozen=True)
class EngineFolder:
    """An engine folder whose files are all there with the right sizes."""

    path: Path
    manifest: Manifest
    config: OmniConfig

    @classmethod
    def open(cls, path: Path | None = None) -> EngineFolder:
        """Open `path`; None: what the environment variable `OMNI_ENGINES` names, else `engines/current` below here.

        A link is followed once, so that this object keeps to one version even if the link moves on.

        Raises:
            EngineFolderError: there is no such folder, its schema is another, a file is missing or has another size.
        """
        asked = path or Path(os.environ.get(ENVIRONMENT) or DEFAULT_PATH)
        folder = asked.resolve()
        if not (folder / MANIFEST).is_file():
            raise EngineFolderError(
                f"{asked}: no {MANIFEST} there; build engines with `python -m build_engines`, or set {ENVIRONMENT}"
            )
        try:
            manifest = Manifest.from_json(_read_json(folder / MANIFEST))
        except EngineFolderError as error:
            raise EngineFolderError(f"{folder / MANIFEST}: {error}") from error
        for name, record in manifest.files.items():
            _check_size(folder / name, record.bytes)
        try:
            generation = folder / "generation_config.json"
            config = OmniConfig.from_json(
                _read_json(folder / "config.json"), _read_json(generation) if generation.exists() else {}
            )
        except (ConfigError, AttributeError, TypeError, ValueError) as error:
            raise EngineFolderError(f"{folder / 'config.json'}: {error}") from error
        return cls(folder, manifest, config)

    def file(self, name: str) -> Path:
        """Path of one file.

        Raises:
            EngineFolderError: the manifest does not list it.
        """
        if name not in self.manifest.files:
            raise EngineFolderError(f"{self.path}: has no {name}; found: {', '.join(sorted(self.manifest.files))}")
        return self.path / name

    def verify(self) -> None:
        """Read every file and compare its SHA-256 with the manifest's: minutes for a large model.

        Raises:
            EngineFolderError: a file cannot be read, or is not what was built.
        """
        for name, record in self.manifest.files.items():
            try:
                with (self.path / name).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise EngineFolderError(f"{self.path / name}: cannot be read ({error.strerror})") from error
            if digest != record.sha256:
                raise EngineFolderError(f"{self.path / name}: SHA-256 is {digest}; the manifest has {record.sha256}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineFolderError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise EngineFolderError(f"{path}: found a JSON {type(value).__name__}; allowed: an object")
    return value


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise EngineFolderError(f"{path}: listed in {MANIFEST}, but cannot be read ({error.strerror})") from error
    if found != size:
        raise EngineFolderError(f"{path}: found {found} bytes; the manifest has {size}")
