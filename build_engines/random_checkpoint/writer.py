"""Writes a whole checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from build_engines.random_checkpoint import config_files, tokenizer_files
from build_engines.random_checkpoint.draw import to_bfloat16
from build_engines.random_checkpoint.safetensors_file import shard_index, split_into_shards, write_safetensors
from build_engines.random_checkpoint.shapes import Shape
from build_engines.random_checkpoint.tensors import tensors
from build_engines.random_checkpoint.tokenizer_files import Vocabulary

_SHARDS = 3


def write_checkpoint(
    shape: Shape, folder: Path, seed: int = 0, report: Callable[[int, int], None] | None = None
) -> int:
    """Write the checkpoint and return its number of parameters; `report` hears parameters done and in all.

    Raises:
        OSError: the folder has something in it already, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError("the folder is not empty")
    vocabulary = Vocabulary.learn(shape.merges)
    _write_json(folder / "config.json", config_files.config_json(shape, vocabulary))
    _write_json(folder / "generation_config.json", config_files.generation_config_json(shape, vocabulary))
    (folder / "tokenizer_config.json").write_text(tokenizer_files.tokenizer_config_json(vocabulary), encoding="utf-8")
    template = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")
    if shape.released_layout:
        _write_json(folder / "preprocessor_config.json", config_files.preprocessor_config_json(shape))
        _write_json(folder / "chat_template.json", {"chat_template": template})
        (folder / "vocab.json").write_text(tokenizer_files.vocab_json(vocabulary), encoding="utf-8")
        (folder / "merges.txt").write_text(tokenizer_files.merges_txt(vocabulary), encoding="utf-8")
    else:
        _write_json(folder / "processor_config.json", config_files.processor_config_json(shape))
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        (folder / "tokenizer.json").write_text(tokenizer_files.tokenizer_json(vocabulary), encoding="utf-8")
    return _write_weights(shape, vocabulary, folder, seed, report)


def _write_weights(
    shape: Shape, vocabulary: Vocabulary, folder: Path, seed: int, report: Callable[[int, int], None] | None
) -> int:
    gains = vocabulary.row_gains(shape.vocab, shape.end_of_turn_gain)
    by_name = {tensor.name: tensor for tensor in tensors(shape, gains)}
    shapes = {name: tensor.shape for name, tensor in by_name.items()}
    total = sum(int(np.prod(dims)) for dims in shapes.values())
    count = _SHARDS if shape.released_layout else 1
    shards = split_into_shards(shapes, count)
    names = ["model.safetensors"]
    if shape.released_layout:
        names = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        (folder / "model.safetensors.index.json").write_text(shard_index(shards, names, total), encoding="utf-8")
    done = 0

    def advance(values: int) -> None:
        nonlocal done
        done += values
        if report:
            report(done, total)

    for name, shard in zip(names, shards, strict=True):
        drawn = (to_bfloat16(by_name[tensor].values(seed)) for tensor in shard)
        write_safetensors(folder / name, {tensor: shapes[tensor] for tensor in shard}, drawn, advance)
    return total


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
