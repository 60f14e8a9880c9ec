from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engines.build import BuildOptions, build
from build_engines.progress import BuildProgress
from python_backends.engine_folder import SCHEMA_VERSION, EngineFolder, EngineFolderError, Manifest, Variant
from tests.unit.tiny_checkpoint import config_json, write_checkpoint


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(BuildOptions(write_checkpoint(folder / "tiny"), folder / "engines", "tiny"), BuildProgress())
    return folder / "engines"


@pytest.fixture
def out(built: Path, tmp_path: Path) -> Path:
    """A folder with engines `tiny/1` and the link to them, for one test alone."""
    shutil.copytree(built, tmp_path / "engines", symlinks=True)
    return tmp_path / "engines"


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_a_built_folder_opens_with_its_configuration_and_manifest(out: Path) -> None:
    engine = EngineFolder.open(out / "tiny" / "1")
    assert engine.config.text.hidden_size == 32
    assert engine.manifest.name == "tiny"
    assert engine.manifest.variant is Variant.INSTRUCT
    assert engine.manifest.limits.max_model_len == 512
    assert engine.manifest.precision["thinker"] == "fp32"
    assert engine.file("thinker.onnx").is_file()
    engine.verify()


def test_the_environment_names_the_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_ENGINES", str(out / "tiny" / "1"))
    assert EngineFolder.open().path == (out / "tiny" / "1").resolve()


def test_without_environment_the_link_below_the_current_directory_is_opened(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNI_ENGINES", raising=False)
    monkeypatch.chdir(out.parent)
    assert EngineFolder.open().path == (out / "tiny" / "1").resolve()


def test_an_open_folder_stays_with_its_version_when_the_link_moves(out: Path) -> None:
    engine = EngineFolder.open(out / "current")
    (out / "current").unlink()
    engine.verify()


def test_a_folder_without_manifest_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(
        EngineFolderError, match=r"no manifest\.json there; build engines with `python -m build_engines`"
    ):
        EngineFolder.open(tmp_path)


def test_a_missing_file_is_named(out: Path) -> None:
    (out / "tiny" / "1" / "thinker.onnx.data").unlink()
    with pytest.raises(EngineFolderError, match=r"thinker\.onnx\.data: listed in manifest\.json, but cannot be read"):
        EngineFolder.open(out / "current")


def test_a_file_of_another_size_is_named_with_both_sizes(out: Path) -> None:
    path = out / "tiny" / "1" / "chat_template.jinja"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(EngineFolderError, match=rf"jinja: found {size + 1} bytes; the manifest has {size}"):
        EngineFolder.open(out / "current")


def test_verify_notices_a_changed_byte(out: Path) -> None:
    path = out / "tiny" / "1" / "token_embeddings.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    engine = EngineFolder.open(out / "current")
    with pytest.raises(EngineFolderError, match=r"token_embeddings\.npy: SHA-256 is"):
        engine.verify()


def test_a_file_that_is_not_listed_is_refused_with_what_there_is(out: Path) -> None:
    engine = EngineFolder.open(out / "current")
    with pytest.raises(EngineFolderError, match=r"has no talker\.onnx; found: audio_encoder\.onnx, "):
        engine.file("talker.onnx")


def test_another_schema_version_is_refused(out: Path) -> None:
    edit_manifest(out / "tiny" / "1", lambda content: content.update(schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(
        EngineFolderError, match=rf"schema_version: found {SCHEMA_VERSION + 1}; allowed: {SCHEMA_VERSION}"
    ):
        EngineFolder.open(out / "current")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("variant"),
        lambda content: content.update(variant="poet"),
        lambda content: content["limits"].clear(),
        lambda content: content.update(files=[]),
        lambda content: content["files"]["config.json"].pop("sha256"),
        lambda content: content["source"].update(colour="blue"),
        lambda content: content.update(precision=None),
    ],
)
def test_a_malformed_manifest_is_refused(out: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit_manifest(out / "tiny" / "1", change)
    with pytest.raises(EngineFolderError, match=r"manifest\.json: missing or malformed entry"):
        EngineFolder.open(out / "current")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{"])
def test_a_manifest_that_is_no_json_object_is_refused(out: Path, content: bytes) -> None:
    (out / "tiny" / "1" / "manifest.json").write_bytes(content)
    with pytest.raises(EngineFolderError, match=r"manifest\.json: "):
        EngineFolder.open(out / "current")


def test_a_configuration_that_contradicts_itself_is_refused(out: Path) -> None:
    folder = out / "tiny" / "1"
    config = config_json()
    config["thinker_config"]["audio_config"]["output_dim"] = 64
    content = json.dumps(config)
    (folder / "config.json").write_text(content, encoding="utf-8")
    edit_manifest(folder, lambda manifest: manifest["files"]["config.json"].update(bytes=len(content)))
    with pytest.raises(EngineFolderError, match=r"config\.json: audio_config\.output_dim must equal"):
        EngineFolder.open(out / "current")


def test_a_manifest_survives_json(out: Path) -> None:
    manifest = EngineFolder.open(out / "current").manifest
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
