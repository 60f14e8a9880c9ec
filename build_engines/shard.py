"""One safetensors file, read piece by piece (layout: https://huggingface.co/docs/safetensors, "Format").

The safetensors library maps the whole file into memory, so that every page it touches counts as resident: a 60 GB
checkpoint would look like 60 GB of use. Here only the piece that is asked for is ever in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from build_engines.errors import CheckpointError
from python_backends.messages import FloatArray

# The format allows 100 MB; a 30B checkpoint's headers have under 1 MB.
MAX_HEADER_BYTES = 100_000_000
READ_VALUES = 8 * 2**20

_FLOATS: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: `offset` bytes from the start of the shard `path`, `bytes` long, in the format's `dtype`."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class Shard:
    """A shard's table of contents. `header_sha256` stands for names, types, shapes and places, not for the values."""

    path: Path
    bytes: int
    header_sha256: str
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Read and check the header of `path`.

        Raises:
            CheckpointError: the file is not there, is cut short, or its header does not describe what is in it.
        """
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                header = _header(file, path, size)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        try:
            table = json.loads(header)
        except ValueError as error:
            raise CheckpointError(f"{path}: the safetensors header is not valid JSON") from error
        if not isinstance(table, dict):
            raise CheckpointError(f"{path}: the safetensors header is not a JSON object")
        start = 8 + len(header)
        tensors = {
            name: _entry(path, name, entry, start, size) for name, entry in table.items() if name != "__metadata__"
        }
        return cls(path, size, hashlib.sha256(header).hexdigest(), tensors)


def _header(file: BinaryIO, path: Path, size: int) -> bytes:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= MAX_HEADER_BYTES or 8 + length > size:
        raise CheckpointError(f"{path}: not a safetensors file, or cut short in its header (found {size} bytes)")
    header = file.read(length)
    if len(header) < length:
        raise CheckpointError(f"{path}: cut short in its header")
    return header


def _entry(path: Path, name: str, entry: Any, start: int, size: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = (
            str(entry["dtype"]),
            tuple(map(int, entry["shape"])),
            map(int, entry["data_offsets"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the safetensors header describes tensor {name} wrongly") from error
    right = dtype not in _FLOATS or end - begin == math.prod(shape) * _FLOATS[dtype].itemsize
    if not 0 <= begin <= end or any(length < 0 for length in shape) or not right:
        raise CheckpointError(f"{path}: tensor {name} has {end - begin} bytes, but shape {list(shape)} of {dtype}")
    if start + end > size:
        raise CheckpointError(f"{path}: cut short, tensor {name} ends at byte {start + end} of {size}")
    return StoredTensor(path, name, dtype, shape, start + begin, end - begin)


def check_dtype(tensor: StoredTensor) -> None:
    """Refuse what `read_pieces` cannot read.

    Raises:
        CheckpointError: the tensor is not bf16, fp16 or fp32.
    """
    if tensor.dtype not in _FLOATS:
        raise CheckpointError(f"tensor {tensor.name}: found type {tensor.dtype}; allowed: {', '.join(_FLOATS)}")


def read_pieces(tensor: StoredTensor, values: int = READ_VALUES) -> Iterator[FloatArray]:
    """Yield the tensor's values in storage order as flat fp32 arrays of at most `values` values, checked finite.

    Raises:
        CheckpointError: the tensor is not bf16, fp16 or fp32, the file cannot be read, or a value is NaN or infinite.
    """
    check_dtype(tensor)
    try:
        with tensor.path.open("rb", buffering=0) as file:
            file.seek(tensor.offset)
            for start in range(0, math.prod(tensor.shape), values):
                raw = np.empty(min(values, math.prod(tensor.shape) - start), _FLOATS[tensor.dtype])
                _fill(file, raw.view(np.uint8).data, tensor)
                piece = raw.astype(np.float32, copy=False)
                if not np.isfinite(piece).all():
                    at = start + int(np.flatnonzero(~np.isfinite(piece))[0])
                    place = [int(i) for i in np.unravel_index(at, tensor.shape)] if tensor.shape else []
                    raise CheckpointError(f"tensor {tensor.name}: found a value that is NaN or infinite at {place}")
                yield piece
    except OSError as error:
        raise CheckpointError(f"{tensor.path}: tensor {tensor.name} cannot be read ({error.strerror})") from error


def _fill(file: FileIO, view: memoryview, tensor: StoredTensor) -> None:
    while view:
        count = file.readinto(view)
        if not count:
            raise CheckpointError(f"{tensor.path}: cut short in tensor {tensor.name}")
        view = view[count:]
