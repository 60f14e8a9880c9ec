from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from build_engines.checkpoint import Checkpoint
from build_engines.errors import CheckpointError
from build_engines.expected_tensors import check_tensors
from build_engines.shard import Shard, read_pieces
from tests.unit.tiny_checkpoint import config_json, random_tensors, write_checkpoint, write_json, write_weights

NORM = "thinker.model.norm.weight"


def with_tensor(folder: Path, name: str, values: Any, shards: int = 1) -> Path:
    """A checkpoint one tensor of which is replaced; None leaves it out."""
    tensors = random_tensors(config_json())
    del tensors[name]
    if values is not None:
        tensors[name] = values
    return write_checkpoint(folder, tensors=tensors, shards=shards)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_weights_of_every_float_type_are_read_as_fp32(tmp_path: Path, dtype: Any) -> None:
    stored = np.array([1.5, -2.0, 3.25, 1e-3] * 8).astype(dtype)
    loaded = Checkpoint(with_tensor(tmp_path / "c", NORM, stored)).load(NORM)
    assert loaded.dtype == np.float32
    assert loaded.flags.c_contiguous
    assert loaded.flags.writeable
    np.testing.assert_array_equal(loaded, stored.astype(np.float32))


def test_one_file_and_several_shards_hold_the_same_tensors(tmp_path: Path) -> None:
    one = Checkpoint(write_checkpoint(tmp_path / "one"))
    many = Checkpoint(write_checkpoint(tmp_path / "many", shards=3))
    assert set(one.names()) == set(many.names())
    for name in one.names():
        assert one.shape(name) == many.shape(name)
        np.testing.assert_array_equal(one.load(name), many.load(name))


def test_a_large_tensor_is_read_in_pieces(tmp_path: Path) -> None:
    values = np.arange(32, dtype=np.float32)
    write_weights(tmp_path, {"a": values.reshape(4, 8)})
    pieces = list(read_pieces(Shard.open(tmp_path / "model.safetensors").tensors["a"], values=5))
    assert [len(piece) for piece in pieces] == [5, 5, 5, 5, 5, 5, 2]
    np.testing.assert_array_equal(np.concatenate(pieces), values)


def test_a_thinker_alone_is_read_under_the_names_of_a_whole_checkpoint(tmp_path: Path) -> None:
    whole = config_json(talker=False)
    alone = {**whole["thinker_config"], "architectures": ["Qwen3OmniMoeThinkerForConditionalGeneration"]}
    tensors = random_tensors(whole)
    bare = {name.removeprefix("thinker."): values for name, values in tensors.items() if name.startswith("thinker.")}
    checkpoint = Checkpoint(write_checkpoint(tmp_path / "c", alone, bare))
    check_tensors(checkpoint)
    np.testing.assert_array_equal(checkpoint.load(NORM), tensors[NORM].astype(np.float32))


def test_an_absent_tensor_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint(with_tensor(tmp_path / "c", NORM, None))
    with pytest.raises(CheckpointError, match=r"thinker\.model\.norm\.weight: not found"):
        checkpoint.load(NORM)
    with pytest.raises(CheckpointError, match=r"thinker\.model\.norm\.weight: not found"):
        check_tensors(checkpoint)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    checkpoint = Checkpoint(with_tensor(tmp_path / "c", NORM, np.ones(31, np.float32)))
    with pytest.raises(CheckpointError, match=r"norm\.weight: found shape \[31\]; config.json asks for \[32\]"):
        check_tensors(checkpoint)


def test_a_quantised_tensor_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(with_tensor(tmp_path / "c", NORM, np.ones(32, np.int8)))
    with pytest.raises(CheckpointError, match=r"norm\.weight: found type I8; allowed: F32, F16, BF16"):
        check_tensors(checkpoint)


def test_a_tensor_that_no_graph_would_use_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors(config_json())
    tensors["thinker.model.layers.0.self_attn.q_proj.bias"] = np.ones(32, np.float32)
    checkpoint = Checkpoint(write_checkpoint(tmp_path / "c", tensors=tensors))
    with pytest.raises(CheckpointError, match=r"q_proj\.bias: not known"):
        check_tensors(checkpoint)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_value_that_is_not_finite_is_named_with_its_place(tmp_path: Path, bad: float, dtype: Any) -> None:
    values = np.ones((4, 32), np.float32)
    values[2, 7] = bad
    name = "thinker.model.layers.1.mlp.gate.weight"
    checkpoint = Checkpoint(with_tensor(tmp_path / "c", name, values.astype(dtype)))
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.gate\.weight: .*NaN or infinite at \[2, 7\]"):
        checkpoint.load(name)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors: shard .* not found"):
        Checkpoint(folder)


def test_an_index_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", shards=2)
    write_json(folder / "model.safetensors.index.json", {"weight_map": {NORM: "../secret.safetensors"}})
    with pytest.raises(CheckpointError, match=r"'\.\./secret\.safetensors'; allowed: a file in the same folder"):
        Checkpoint(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", shards=2)
    first = folder / "model-00001-of-00002.safetensors"
    (folder / "model-00002-of-00002.safetensors").write_bytes(first.read_bytes())
    with pytest.raises(CheckpointError, match=r"is in .*00001.* and in .*00002"):
        Checkpoint(folder)


def test_a_file_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        Checkpoint(folder)


def _cut_in_header(content: bytes) -> bytes:
    return content[:100]


def _cut_in_data(content: bytes) -> bytes:
    return content[:-1]


def _empty(_: bytes) -> bytes:
    return b""


def _header_longer_than_the_file(content: bytes) -> bytes:
    return struct.pack("<Q", 2**40) + content[8:]


def _header_is_no_json(content: bytes) -> bytes:
    return content[:8] + b"?" + content[9:]


def _size_contradicts_shape(content: bytes) -> bytes:
    return content.replace(b'"shape":[32]', b'"shape":[16]', 1)


@pytest.mark.parametrize(
    "damage",
    [_cut_in_header, _cut_in_data, _empty, _header_longer_than_the_file, _header_is_no_json, _size_contradicts_shape],
)
def test_a_damaged_shard_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    folder = write_checkpoint(tmp_path / "c")
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: "):
        Checkpoint(folder)


def test_a_shard_that_shrinks_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c")
    checkpoint = Checkpoint(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(CheckpointError, match="cut short in tensor"):
        for name in checkpoint.names():
            checkpoint.load(name)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    config = config_json() | {"architectures": ["LlamaForCausalLM"]}
    with pytest.raises(CheckpointError, match=r"config\.json: architectures: found \['LlamaForCausalLM'\]"):
        Checkpoint(write_checkpoint(tmp_path / "c", config, {}))


def test_sizes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    config = config_json()
    config["thinker_config"]["vision_config"]["out_hidden_size"] = 64
    with pytest.raises(CheckpointError, match="out_hidden_size must equal"):
        Checkpoint(write_checkpoint(tmp_path / "c", config, {}))


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"architectures": 3}), "\ufeff{}"])
def test_a_config_that_is_no_config_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_checkpoint(tmp_path / "c")
    (folder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Checkpoint(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: not a folder"):
        Checkpoint(tmp_path / "nowhere")
