"""Incremental detokenising equals the tokenizer's own decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from python_backends.postprocess.detokenizer import Detokenizer, Vocabulary, VocabularyError
from tests.unit.byte_tokenizer import TOKENIZER, VOCABULARY, id_of, ids_of

ANY_TOKENS = st.lists(st.integers(0, TOKENIZER.get_vocab_size() + 20), max_size=60)


def decode(token_ids: list[int] | tuple[int, ...]) -> str:
    detokenizer = Detokenizer(VOCABULARY)
    return "".join([*(detokenizer.push(i) for i in token_ids), detokenizer.flush()])


@given(ANY_TOKENS)
def test_any_tokens_read_as_the_tokenizer_reads_them(token_ids: list[int]) -> None:
    assert decode(token_ids) == TOKENIZER.decode(token_ids, skip_special_tokens=True)


@given(st.text(max_size=60))
def test_any_text_comes_back(text: str) -> None:
    token_ids = ids_of(text)
    assert decode(token_ids) == TOKENIZER.decode(list(token_ids), skip_special_tokens=True)


@given(st.text(max_size=40))
def test_no_piece_of_valid_text_holds_a_broken_character(text: str) -> None:
    clean = text.replace("\ufffd", "")
    detokenizer = Detokenizer(VOCABULARY)
    assert not any("\ufffd" in detokenizer.push(i) for i in ids_of(clean))


def test_an_emoji_of_four_byte_tokens_comes_with_the_last_of_them() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    one_byte_each = [VOCABULARY_IDS[bytes([byte])] for byte in "🦜".encode()]
    assert [detokenizer.push(i) for i in one_byte_each] == ["", "", "", "🦜"]
    assert not detokenizer.unfinished


VOCABULARY_IDS = {VOCABULARY.spelling(i): i for i in range(TOKENIZER.get_vocab_size())}


def test_a_character_that_never_gets_complete_becomes_a_replacement_at_the_end() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    assert detokenizer.push(VOCABULARY_IDS["👍".encode()[:2]]) == ""
    assert detokenizer.unfinished
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_special_tokens_are_skipped_and_other_added_tokens_stay() -> None:
    token_ids = [id_of("<think>"), *ids_of("hello"), id_of("<|image_pad|>"), id_of("日 本"), id_of("<|im_end|>")]
    assert decode(token_ids) == "<think>hello日 本"


def test_ids_outside_the_vocabulary_are_skipped() -> None:
    assert decode([*ids_of("he"), 10**6, -1, *ids_of("llo")]) == "hello"
    assert VOCABULARY.spelling(10**6) is None


def test_a_tokenizer_that_is_not_byte_level_is_refused() -> None:
    other = Tokenizer(models.BPE())
    other.decoder = decoders.Metaspace()
    with pytest.raises(VocabularyError, match=r"decoder: found .*Metaspace.*allowed: ByteLevel"):
        Vocabulary(other)


def test_a_vocabulary_is_read_from_a_file(tmp_path: Path) -> None:
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    assert Vocabulary.from_file(tmp_path / "tokenizer.json").visible(id_of("<think>")) == b"<think>"


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError, match=r"tokenizer\.json"):
        Vocabulary.from_file(tmp_path / "tokenizer.json")
