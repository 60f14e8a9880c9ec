"""Writes bfloat16 tensors in the safetensors format one after another, so that only one is in memory.

Format: 8 bytes with the length of a JSON header (little-endian), the header, then the tensors' bytes in its order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def write_safetensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Iterable[NDArray[np.uint16]],
    done: Callable[[int], None],
) -> None:
    """Write `tensors` (bfloat16 bits), which come in the order of `shapes`; `done` hears the values of each."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors:
            file.write(tensor.astype("<u2", copy=False).tobytes())
            done(tensor.size)


def split_into_shards(shapes: Mapping[str, tuple[int, ...]], count: int) -> list[list[str]]:
    """Names in order, in `count` runs of about the same number of bytes."""
    total = sum(int(np.prod(shape)) for shape in shapes.values())
    shards: list[list[str]] = [[] for _ in range(count)]
    seen = 0
    for name, shape in shapes.items():
        shards[min(count - 1, seen * count // total)].append(name)
        seen += int(np.prod(shape))
    return shards


def shard_index(shards: Sequence[Sequence[str]], file_names: Sequence[str], values: int) -> str:
    """The text of `model.safetensors.index.json`."""
    weight_map = {name: file for names, file in zip(shards, file_names, strict=True) for name in names}
    return json.dumps({"metadata": {"total_size": 2 * values}, "weight_map": weight_map}, indent=2) + "\n"
