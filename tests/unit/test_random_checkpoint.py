"""Random checkpoints are reproducible, readable by the usual libraries, and good enough as models of text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.normalizers import NFC

from build_engines.random_checkpoint import SMALL, WIDE, write_checkpoint
from build_engines.random_checkpoint.draw import normal, to_bfloat16


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_checkpoint(SMALL, folder)
    return folder


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    write_checkpoint(WIDE, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(small: Path) -> Tokenizer:
    return Tokenizer.from_file(str(small / "tokenizer.json"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_weights(small: Path, tmp_path: Path) -> None:
    write_checkpoint(SMALL, tmp_path / "same", seed=0)
    write_checkpoint(SMALL, tmp_path / "other", seed=1)
    assert contents(tmp_path / "same") == contents(small)
    other = contents(tmp_path / "other")
    assert {name for name in other if other[name] != contents(small)[name]} == {"model.safetensors"}


def test_draws_do_not_change_from_one_version_to_the_next() -> None:
    np.testing.assert_allclose(normal((4,), 0, "name"), [-0.45627, 0.999413, -0.315721, 0.474321], rtol=0, atol=1e-6)


def test_draws_are_nearly_normal() -> None:
    values = normal((200_000,), 3, "many")
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs(np.mean(np.abs(values) < 1) - 0.68) < 0.02


def test_values_are_rounded_to_bfloat16_as_ml_dtypes_rounds_them() -> None:
    values = normal((10_000,), 0, "rounded") * np.float32(7)
    assert np.array_equal(to_bfloat16(values), values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_safetensors_reads_all_weights_and_they_are_finite(small: Path) -> None:
    weights = load_file(small / "model.safetensors")
    assert all(np.isfinite(values.astype(np.float32)).all() for values in weights.values())
    hidden = SMALL.thinker.hidden
    assert weights["thinker.lm_head.weight"].shape == (SMALL.vocab, hidden)
    assert weights["thinker.model.layers.0.mlp.experts.7.down_proj.weight"].shape == (hidden, 64)


def test_the_index_of_a_sharded_checkpoint_names_the_shard_of_every_tensor(wide: Path) -> None:
    index = json.loads((wide / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    assert len(set(index.values())) == 3
    for shard in set(index.values()):
        assert set(load_file(wide / shard)) == {name for name, file in index.items() if file == shard}


@given(text=st.text(max_size=60))
def test_text_survives_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == NFC().normalize_str(text)


def test_roles_and_markers_are_single_tokens_and_common_words_few(tokenizer: Tokenizer) -> None:
    for text in ("system", "user", "assistant", "\n", "<|im_start|>", "<tool_call>", "</think>", " picture", " sound"):
        assert len(tokenizer.encode(text, add_special_tokens=False).ids) == 1
    sentence = "What is the largest animal in this picture, and where does it live?"
    assert len(tokenizer.encode(sentence, add_special_tokens=False).ids) <= 20


def test_tool_calls_and_thoughts_stay_in_decoded_text_and_markers_do_not(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|><think>a</think><tool_call>b</tool_call><|im_end|>").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>a</think><tool_call>b</tool_call>"


def test_vocabulary_and_merges_of_the_released_layout_cut_text_like_a_prefix_of_the_merges(
    wide: Path, tokenizer: Tokenizer
) -> None:
    vocabulary = json.loads((wide / "vocab.json").read_text(encoding="utf-8"))
    lines = (wide / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    merges = [(left, right) for left, right in (line.split(" ") for line in lines)]
    plain = Tokenizer(models.BPE(vocabulary, merges))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    text = "The quick brown fox looks at the weather."
    assert plain.decode(plain.encode(text).ids) == text
    assert len(plain.encode(text).ids) >= len(tokenizer.encode(text, add_special_tokens=False).ids)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    command = [sys.executable, "-m", "build_engines.random_checkpoint", "small", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.strip() == f"{tmp_path}: the folder is not empty"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
