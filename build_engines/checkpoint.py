"""A Hugging Face checkpoint of the Qwen3-Omni architecture: settings and weights, without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from build_engines.errors import CheckpointError
from build_engines.shard import Shard, StoredTensor, check_dtype, read_pieces
from python_backends.config import ConfigError, OmniConfig
from python_backends.messages import FloatArray

PREFIX = "thinker."
_THINKER_ONLY = "Qwen3OmniMoeThinkerForConditionalGeneration"


class Checkpoint:
    """One folder with `config.json` and safetensors weights in one file, or in shards with an index.

    Tensor names are those of a whole checkpoint, `thinker.…`; in a checkpoint of the thinker alone, whose names lack
    the prefix, they are read under the prefixed name all the same. Only headers are read until `load` or `pieces`.

    Raises:
        CheckpointError: no such folder, another architecture, contradicting sizes, a missing or damaged shard.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise CheckpointError(f"{path}: not a folder; allowed: a Hugging Face checkpoint with config.json")
        self.path = path
        self.config_json = read_json(path / "config.json")
        generation = path / "generation_config.json"
        self.generation_json = read_json(generation) if generation.exists() else {}
        try:
            self.config = OmniConfig.from_json(self.config_json, self.generation_json)
        except (ConfigError, AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path / 'config.json'}: {error}") from error
        self.shards: tuple[Shard, ...] = tuple(Shard.open(file) for file in _shard_files(path))
        bare = _THINKER_ONLY in self.config_json["architectures"]
        self._tensors: dict[str, StoredTensor] = {}
        for shard in self.shards:
            for stored, tensor in shard.tensors.items():
                name = PREFIX + stored if bare and not stored.startswith(PREFIX) else stored
                if name in self._tensors:
                    raise CheckpointError(f"tensor {name}: is in {self._tensors[name].path} and in {tensor.path}")
                self._tensors[name] = tensor

    def names(self) -> Collection[str]:
        """Names of all tensors, the talker's and the vocoder's included."""
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, from its shard's header.

        Raises:
            CheckpointError: there is no such tensor.
        """
        return self._find(name).shape

    def check_dtype(self, name: str) -> None:
        """Find out early whether `load` can read a tensor.

        Raises:
            CheckpointError: there is no such tensor, or it is not bf16, fp16 or fp32.
        """
        check_dtype(self._find(name))

    def load(self, name: str) -> FloatArray:
        """The values of one tensor: fp32, C-contiguous, finite; writable and owned by the caller.

        Raises:
            CheckpointError: there is no such tensor, it is not floating point, or a value is NaN or infinite.
        """
        tensor = self._find(name)
        result = np.empty(tensor.shape, np.float32)
        flat = result.reshape(-1)
        at = 0
        for piece in read_pieces(tensor):
            flat[at : at + piece.size] = piece
            at += piece.size
        return result

    def pieces(self, name: str) -> Iterator[FloatArray]:
        """The values of one tensor in storage order, in flat fp32 pieces of a few MB, for tensors that are only copied.

        Raises:
            CheckpointError: as `load`.
        """
        return read_pieces(self._find(name))

    def fp32_bytes(self, name: str) -> int:
        """Bytes that the tensor takes as fp32."""
        return 4 * math.prod(self.shape(name))

    def _find(self, name: str) -> StoredTensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"tensor {name}: not found in {self.path}")
        return tensor


def read_json(path: Path) -> Mapping[str, Any]:
    """One JSON object from a file.

    Raises:
        CheckpointError: the file is not there, or is not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: not found") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: found a JSON {type(value).__name__}; allowed: an object")
    return value


def read_text(path: Path) -> str:
    """One text file.

    Raises:
        CheckpointError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as text ({error})") from error


def _shard_files(path: Path) -> list[Path]:
    index, single = path / "model.safetensors.index.json", path / "model.safetensors"
    if not index.exists():
        if not single.exists():
            raise CheckpointError(f"{path}: found neither model.safetensors nor model.safetensors.index.json")
        return [single]
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise CheckpointError(f"{index}: weight_map is not a table of tensor names and file names")
    files = sorted(set(weight_map.values()))
    for file in files:
        if Path(file).name != file:
            raise CheckpointError(f"{index}: found shard {file!r}; allowed: a file in the same folder")
        if not (path / file).exists():
            raise CheckpointError(f"{path / file}: shard named in {index.name} not found")
    return [path / file for file in files]
