from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from build_engines.checkpoint import Checkpoint
from build_engines.processor_files import small_files
from tests.unit.tiny_checkpoint import (
    PLAIN,
    SPECIAL,
    TEMPLATE,
    token_id,
    tokenizer,
    write_checkpoint,
    write_json,
)


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user\nhi there, it's 2024<|im_end|>\n",
        "cafe\u0301 caf\u00e9  \r\n\t<think>x</think>",
        "\u4e16\u754c \U0001f44d <|audio_start|><|audio_pad|><|audio_end|>",
    ],
)
def test_a_tokenizer_made_of_vocabulary_and_merges_equals_the_saved_one(tmp_path: Path, text: str) -> None:
    files = small_files(Checkpoint(write_checkpoint(tmp_path / "released", released_layout=True)))
    made, saved = Tokenizer.from_buffer(files["tokenizer.json"]), tokenizer()
    ids = saved.encode(text).ids
    assert made.encode(text).ids == ids
    for skip in (True, False):
        assert made.decode(ids, skip_special_tokens=skip) == saved.decode(ids, skip_special_tokens=skip)


def test_added_tokens_keep_their_ids_when_there_are_gaps(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "released", released_layout=True)
    path = checkpoint / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["added_tokens_decoder"]["287"] = {"content": "<tts_pad>", "special": True}
    write_json(path, config)
    files = small_files(Checkpoint(checkpoint))
    made = Tokenizer.from_buffer(files["tokenizer.json"])
    assert made.encode("a<tts_pad>").ids[1:] == [287]
    assert {made.token_to_id(token) for token in SPECIAL + PLAIN} == {token_id(token) for token in SPECIAL + PLAIN}


def test_tokens_that_the_settings_name_are_special(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "released", released_layout=True)
    path = checkpoint / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, config | {"additional_special_tokens": ["<think>"]})
    files = small_files(Checkpoint(checkpoint))
    made = Tokenizer.from_buffer(files["tokenizer.json"])
    assert made.decode(made.encode("<think>hi</think>").ids) == "hi</think>"


def test_processor_settings_are_one_file_with_the_classes_defaults(tmp_path: Path) -> None:
    files = small_files(Checkpoint(write_checkpoint(tmp_path / "released", released_layout=True)))
    settings = json.loads(files["processor_config.json"])
    assert settings["processor_class"] == "Qwen3OmniMoeProcessor"
    assert settings["image_processor"]["size"] == {"shortest_edge": 64, "longest_edge": 4096}
    assert settings["image_processor"]["patch_size"] == settings["video_processor"]["patch_size"] == 4
    assert settings["image_processor"]["resample"] == 3
    assert settings["video_processor"]["max_frames"] == 768
    assert settings["feature_extractor"]["feature_size"] == 16
    assert settings["feature_extractor"]["hop_length"] == 160


def test_a_video_file_of_its_own_wins_over_the_common_one(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "released", released_layout=True)
    video = json.loads((checkpoint / "preprocessor_config.json").read_text(encoding="utf-8")) | {"max_frames": 32}
    write_json(checkpoint / "video_preprocessor_config.json", video)
    files = small_files(Checkpoint(checkpoint))
    settings = json.loads(files["processor_config.json"])
    assert settings["video_processor"]["max_frames"] == 32


def test_a_template_in_the_tokenizers_settings_is_found(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    (checkpoint / "chat_template.jinja").unlink()
    templates = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    write_json(checkpoint / "tokenizer_config.json", {"chat_template": templates})
    files = small_files(Checkpoint(checkpoint))
    assert files["chat_template.jinja"].decode() == TEMPLATE
