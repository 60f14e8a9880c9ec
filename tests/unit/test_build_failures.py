from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from build_engines import build as build_module
from build_engines.checkpoint import Checkpoint
from build_engines.output_file import OutputFile
from python_backends.engine_folder import EngineFolder
from tests.unit.build_runs import engine_folders, no_traces, run
from tests.unit.tiny_checkpoint import (
    config_json,
    random_tensors,
    write_checkpoint,
    write_json,
)

EMBEDDINGS = "thinker.model.embed_tokens.weight"


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of these tests' time would be `fsync`, which only matters when the power fails."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "engines"


def _no_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()


def _broken_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("{}", encoding="utf-8")


def _no_template(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").unlink()


def _template_is_not_text(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_bytes(b"\xff\xfe")


def _no_processor(checkpoint: Path) -> None:
    (checkpoint / "processor_config.json").unlink()


def _other_patch_size(checkpoint: Path) -> None:
    path = checkpoint / "processor_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"patch_size": 4', '"patch_size": 8'), encoding="utf-8")


def _change_config(checkpoint: Path, key: str, value: Any) -> None:
    path = checkpoint / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["thinker_config"][key] = value
    write_json(path, config)


def _unknown_media_token(checkpoint: Path) -> None:
    _change_config(checkpoint, "image_token_id", 287)


def _media_token_is_a_byte(checkpoint: Path) -> None:
    _change_config(checkpoint, "audio_token_id", 256)


def _no_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (_no_tokenizer, "found neither tokenizer.json nor vocab.json with merges.txt"),
        (_broken_tokenizer, "tokenizer.json: cannot be read as a tokenizer"),
        (_no_template, "no chat template"),
        (_template_is_not_text, "chat_template.jinja: cannot be read as text"),
        (_no_processor, "no feature_extractor in processor_config.json"),
        (_other_patch_size, "image_processor.patch_size is 8; config.json asks for 4"),
        (_unknown_media_token, "image_token_id is 287"),
        (_media_token_is_a_byte, "audio_token_id is 256"),
        (_no_weights, "found neither model.safetensors"),
    ],
)
def test_an_incomplete_checkpoint_ends_with_one_sentence_and_leaves_nothing(
    checkpoint: Path,
    out: Path,
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[Path], None],
    sentence: str,
) -> None:
    break_it(checkpoint)
    assert run(checkpoint, out) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert no_traces(out)


@pytest.mark.parametrize("name", [EMBEDDINGS, "thinker.lm_head.weight", "thinker.visual.pos_embed.weight"])
def test_a_nan_in_the_middle_of_a_build_leaves_nothing(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    tensors = random_tensors(config_json())
    tensors[name][3, 5] = ml_dtypes.bfloat16(np.nan)
    assert run(write_checkpoint(tmp_path / "nan", tensors=tensors), out) == 1
    assert f"error: tensor {name}: found a value that is NaN or infinite at [3, 5]" in capsys.readouterr().err
    assert no_traces(out)


def test_a_failed_build_leaves_earlier_versions_and_the_link_alone(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    tensors = random_tensors(config_json())
    tensors["thinker.lm_head.weight"][0, 0] = ml_dtypes.bfloat16(np.inf)
    shutil.rmtree(checkpoint)
    assert run(write_checkpoint(checkpoint, tensors=tensors), out) == 1
    assert engine_folders(out) == ["tiny/1"]
    EngineFolder.open(out / "current").verify()


def test_too_little_room_is_noticed_before_anything_is_written(
    checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    assert run(checkpoint, out) == 1
    error = capsys.readouterr().err
    needed = int(error.partition("the engines need ")[2].partition(" ")[0])
    assert f"1000 are free on this disk; missing: {needed - 1000}" in error
    assert no_traces(out)


def test_the_promised_room_is_enough(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    needed = build_module.needed_bytes(Checkpoint(checkpoint))
    assert needed >= sum(path.stat().st_size for path in (out / "tiny" / "1").iterdir())


def test_a_disk_that_fills_up_ends_with_one_sentence_and_leaves_nothing(
    checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = OutputFile.write

    def full(file: OutputFile, data: bytes | memoryview) -> None:
        if file.path.name == "thinker.onnx.data" and file.bytes > 20_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, data)

    monkeypatch.setattr(OutputFile, "write", full)
    assert run(checkpoint, out) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {out}: the disk is full; nothing was kept of this build"
    assert no_traces(out)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_a_build_and_leaves_nothing(
    checkpoint: Path,
    out: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    before = signal.getsignal(number)
    thinker = build_module.PARTS[-1]

    def interrupted(*_: Any) -> None:
        assert list(out.glob(".building*/audio_encoder.onnx"))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(build_module, "PARTS", (*build_module.PARTS[:-1], replace(thinker, build=interrupted)))
    assert run(checkpoint, out) == status
    assert f"stopped by {number.name}" in capsys.readouterr().err
    assert no_traces(out)
    assert signal.getsignal(number) is before


def test_what_a_killed_build_left_is_removed_by_the_next_one_but_not_a_running_ones(
    checkpoint: Path, out: Path
) -> None:
    killed, running = out / ".building-0000", out / ".building-1111"
    for folder in (killed, running):
        folder.mkdir(parents=True)
        (folder / "thinker.onnx.data").write_bytes(b"half")
        (folder / ".owner").touch()
    with (running / ".owner").open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert run(checkpoint, out) == 0
    assert not killed.exists()
    assert (running / "thinker.onnx.data").exists()


def test_a_folder_where_the_link_should_be_is_not_overwritten(
    checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "current").mkdir(parents=True)
    assert run(checkpoint, out) == 1
    assert "current: is not a link" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be_made_is_named(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert run(checkpoint, blocked / "engines") == 1
    assert f"error: {blocked / 'engines'}: Not a directory" in capsys.readouterr().err
