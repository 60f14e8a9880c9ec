from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from build_engines.build import BuildOptions, build
from build_engines.progress import BuildProgress
from python_backends.engine_folder import EngineFolder
from tests.unit.build_runs import engine_folders, no_traces, run
from tests.unit.tiny_checkpoint import (
    config_json,
    random_tensors,
    write_checkpoint,
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


def test_an_engine_folder_has_every_file_and_the_link_names_it(
    checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkpoint, out) == 0
    assert os.readlink(out / "current") == "tiny/1"  # noqa: PTH115 (as it stands in the link)
    engine = EngineFolder.open(out / "current")
    engine.verify()
    graphs = {f"{part}.onnx{end}" for part in ("vision_encoder", "audio_encoder", "thinker") for end in ("", ".data")}
    small = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert set(engine.manifest.files) == graphs | small | {
        "token_embeddings.npy",
        "chat_template.jinja",
        "processor_config.json",
    }
    assert set(engine.manifest.files) | {"manifest.json"} == {path.name for path in engine.path.iterdir()}
    printed = capsys.readouterr()
    assert printed.out == f"built: {out / 'tiny' / '1'}\n"
    assert [line.partition(":")[0] for line in printed.err.splitlines()] == [
        "token_embeddings",
        "vision_encoder",
        "audio_encoder",
        "thinker",
    ]


def test_the_manifest_describes_the_source_and_every_file(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out, "--max-model-len", "100") == 0
    manifest = json.loads((out / "current" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["schema_version"] == 1
    assert manifest["source"]["architecture"] == "Qwen3OmniMoeForConditionalGeneration"
    assert manifest["source"]["transformers_version"] == "5.24.0"
    assert manifest["source"]["config_sha256"] == hashlib.sha256((checkpoint / "config.json").read_bytes()).hexdigest()
    assert manifest["limits"] == {"max_model_len": 100}
    assert set(manifest["precision"].values()) == {"fp32"}
    assert {"omni_triton", "python", "numpy", "onnx", "onnx_ir"} <= set(manifest["tools"])
    for name, record in manifest["files"].items():
        content = (out / "current" / name).read_bytes()
        assert record == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_token_embeddings_are_the_checkpoints_in_fp32(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    embeddings = np.load(out / "current" / "token_embeddings.npy", mmap_mode="r")
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, random_tensors(config_json())[EMBEDDINGS].astype(np.float32))


def test_all_graphs_load_from_their_final_place(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    for part in ("vision_encoder", "audio_encoder", "thinker"):
        assert ort.InferenceSession(str(out / "current" / f"{part}.onnx")).get_outputs()


def test_shards_and_the_released_layout_give_the_same_engines(tmp_path: Path, out: Path) -> None:
    saved = write_checkpoint(tmp_path / "saved")
    released = write_checkpoint(tmp_path / "released", shards=3, released_layout=True)
    assert run(saved, out) == run(released, out) == 0
    same = ("processor_config.json", "chat_template.jinja", "token_embeddings.npy", "config.json")
    for name in (*same, *(f"{part}.onnx.data" for part in ("vision_encoder", "audio_encoder", "thinker"))):
        assert (out / "saved" / "1" / name).read_bytes() == (out / "released" / "1" / name).read_bytes(), name


def test_a_tied_head_needs_no_tensor_of_its_own(tmp_path: Path, out: Path) -> None:
    config = config_json()
    config["thinker_config"]["text_config"]["tie_word_embeddings"] = True
    assert run(write_checkpoint(tmp_path / "tied", config), out) == 0
    EngineFolder.open(out / "current").verify()


def test_a_layer_without_experts_is_built(tmp_path: Path, out: Path) -> None:
    config = config_json()
    config["thinker_config"]["text_config"]["mlp_only_layers"] = [0]
    assert run(write_checkpoint(tmp_path / "dense", config), out) == 0


@pytest.mark.parametrize(
    ("folder", "talker", "options", "variant"),
    [
        ("omni", True, [], "instruct"),
        ("Qwen3-Omni-Captioner", True, [], "instruct"),
        ("omni", False, [], "thinking"),
        ("Qwen3-Omni-Captioner", False, [], "captioner"),
        ("models--Qwen--Qwen3-Omni-30B-A3B-Captioner/snapshots/a1b2", False, [], "captioner"),
        ("omni", False, ["--variant", "captioner"], "captioner"),
    ],
)
def test_the_variant_follows_from_talker_and_name(
    tmp_path: Path, out: Path, folder: str, talker: bool, options: list[str], variant: str
) -> None:
    assert run(write_checkpoint(tmp_path / folder, config_json(talker)), out, *options) == 0
    assert EngineFolder.open(out / "current").manifest.variant.value == variant


def test_a_checkpoint_in_the_hugging_face_cache_gives_its_models_name(tmp_path: Path, out: Path) -> None:
    assert run(write_checkpoint(tmp_path / "models--Qwen--Qwen3-Omni" / "snapshots" / "a1b2"), out) == 0
    assert engine_folders(out) == ["Qwen3-Omni/1"]


@pytest.mark.parametrize(
    "options",
    [["--name", "current"], ["--name", "../x"], ["--name", ".x"], ["--max-model-len", "0"], ["--precision", "int3"]],
)
def test_a_wrong_command_line_ends_with_status_2(checkpoint: Path, out: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(checkpoint, out, *options)
    assert end.value.code == 2
    assert no_traces(out)


def test_a_longer_model_length_than_the_checkpoints_is_refused(
    checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkpoint, out, "--max-model-len", "513") == 1
    assert "max_model_len: found 513; allowed: 1 to 512" in capsys.readouterr().err


def test_an_equal_build_is_not_done_twice(checkpoint: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checkpoint, out) == 0
    capsys.readouterr()
    assert run(checkpoint, out) == 0
    assert capsys.readouterr().out == f"already built: {out / 'tiny' / '1'}\n"
    assert engine_folders(out) == ["tiny/1"]


def test_force_and_other_options_give_a_new_version(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    assert run(checkpoint, out, "--force") == 0
    assert run(checkpoint, out, "--max-model-len", "64") == 0
    assert run(checkpoint, out, "--variant", "captioner") == 0
    assert engine_folders(out) == ["tiny/1", "tiny/2", "tiny/3", "tiny/4"]
    assert os.readlink(out / "current") == "tiny/4"  # noqa: PTH115
    assert run(checkpoint, out) == 0
    assert os.readlink(out / "current") == "tiny/2"  # noqa: PTH115 (the newest that is equal)


def _other_weights(checkpoint: Path) -> None:
    write = random_tensors(config_json(), seed=1)
    shutil.rmtree(checkpoint)
    write_checkpoint(checkpoint, tensors=write)


def _other_template(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")


def _other_processor_settings(checkpoint: Path) -> None:
    path = checkpoint / "processor_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("4096", "8192"), encoding="utf-8")


def _without_generation_config(checkpoint: Path) -> None:
    (checkpoint / "generation_config.json").unlink()


@pytest.mark.parametrize(
    "change", [_other_weights, _other_template, _other_processor_settings, _without_generation_config]
)
def test_a_changed_checkpoint_gives_a_new_version(checkpoint: Path, out: Path, change: Callable[[Path], None]) -> None:
    assert run(checkpoint, out) == 0
    change(checkpoint)
    assert run(checkpoint, out) == 0
    assert engine_folders(out) == ["tiny/1", "tiny/2"]


def test_a_damaged_version_is_not_used_again(checkpoint: Path, out: Path) -> None:
    assert run(checkpoint, out) == 0
    (out / "tiny" / "1" / "thinker.onnx").unlink()
    assert run(checkpoint, out) == 0
    assert os.readlink(out / "current") == "tiny/2"  # noqa: PTH115


def test_builds_side_by_side_give_whole_versions(checkpoint: Path, out: Path) -> None:
    options = BuildOptions(checkpoint, out, "tiny", force=True)
    other = replace(options, name="other")
    with ThreadPoolExecutor(4) as pool:
        builds = [pool.submit(build, chosen, BuildProgress()) for chosen in (options, other) * 4]
        paths = {result.result().path for result in builds}
    assert len(paths) == 8
    assert engine_folders(out) == [f"{name}/{version}" for name in ("other", "tiny") for version in range(1, 5)]
    for path in [*paths, out / "current"]:
        EngineFolder.open(path).verify()
    assert not list(out.glob(".building*"))
