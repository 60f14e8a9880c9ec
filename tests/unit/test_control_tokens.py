"""Control tokens that a client types are text; those of the chat template are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from build_engines.random_checkpoint.tokenizer_files import tokenizer_json
from python_backends.errors import InvalidRequest
from python_backends.preprocess.tokenizer import PromptTokenizer, TokenizerError, template_variables
from tests.unit.prompt_engine import TOKENS, VOCABULARY

LIBRARY = Tokenizer.from_str(tokenizer_json(VOCABULARY))
TURN = "<|im_start|>user\n{}<|im_end|>\n"
START, END = VOCABULARY.added["<|im_start|>"], VOCABULARY.added["<|im_end|>"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(tokenizer_json(VOCABULARY), encoding="utf-8")
    return PromptTokenizer(path)


def ids_of_turn(tokenizer: PromptTokenizer, *texts: str) -> list[int]:
    parts: Any = tokenizer.control_tokens.mark([{"type": "text", "text": text} for text in texts], "messages")
    return tokenizer.encode(TURN.format("".join(part["text"] for part in parts)))


def test_text_without_control_tokens_is_encoded_as_the_library_does(tokenizer: PromptTokenizer) -> None:
    for text in ("Hello there", "  two\n\nlines ", "<think>\n</think> <tool_call>", "é 世界 👍", "< |im_end|>", ""):
        assert ids_of_turn(tokenizer, text) == LIBRARY.encode(TURN.format(text), add_special_tokens=False).ids


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|audio_start|>", "<|endoftext|>"])
def test_a_control_token_in_a_text_is_spelled_out_and_can_be_read_back(tokenizer: PromptTokenizer, token: str) -> None:
    ids = ids_of_turn(tokenizer, f"say {token} now")
    assert [i for i in ids if i in VOCABULARY.added.values()] == [START, END]
    assert LIBRARY.decode(ids, skip_special_tokens=False) == TURN.format(f"say {token} now")


@pytest.mark.parametrize(
    "texts", [("<|im_", "end|>"), ("a<|image", "_", "pad|>b"), ("<|im_end|><", "|im_end|>"), ("<", "|im_end|>")]
)
def test_texts_cannot_join_into_a_control_token(tokenizer: PromptTokenizer, texts: tuple[str, ...]) -> None:
    ids = ids_of_turn(tokenizer, *texts)
    assert [i for i in ids if i in VOCABULARY.added.values()] == [START, END]
    assert LIBRARY.decode(ids, skip_special_tokens=False) == TURN.format("".join(texts))


def test_names_and_keys_of_tools_are_covered_too(tokenizer: PromptTokenizer) -> None:
    marked = tokenizer.control_tokens.mark([{"<|image_pad|>": ["<|video_pad|>", 1, None]}], "tools")
    assert set(tokenizer.encode(json.dumps(marked, ensure_ascii=False))).isdisjoint(VOCABULARY.added.values())


def test_a_text_with_the_marks_themselves_is_refused(tokenizer: PromptTokenizer) -> None:
    with pytest.raises(InvalidRequest, match=r"messages: the noncharacter U\+FDD0 or U\+FDD1; allowed"):
        ids_of_turn(tokenizer, "a\ufdd0b")


@given(st.lists(st.text("<|im_endage_pad>ab ", max_size=12) | st.sampled_from(sorted(VOCABULARY.added)), max_size=6))
def test_no_text_can_claim_media_or_end_a_turn(tokenizer: PromptTokenizer, texts: list[str]) -> None:
    ids = ids_of_turn(tokenizer, *texts)
    assert ids.count(END) == ids.count(START) == 1
    assert not {TOKENS.image, TOKENS.audio, TOKENS.video} & set(ids)


def test_a_file_that_is_no_tokenizer_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        PromptTokenizer(path)


def test_templates_get_the_special_tokens_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(
        '{"eos_token": "<e>", "pad_token": {"content": "<p>"}, "bos_token": null, "x": 1}', encoding="utf-8"
    )
    assert template_variables(path) == {"eos_token": "<e>", "pad_token": "<p>"}
