"""Token ids to text, one token at a time, without ever splitting a character.

A byte-level BPE vocabulary spells every byte as one printable character (GPT-2's table), so a token is a run of bytes
and decoding is concatenation followed by UTF-8. That makes incremental decoding exact: only an
unfinished character waits.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from tokenizers import Tokenizer, decoders


class VocabularyError(ValueError):
    """The tokenizer cannot be decoded one token at a time."""


def _byte_of_character() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for.

    Bytes that print stand for themselves; the other 68 are numbered upwards from U+0100.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + rank): byte for rank, byte in enumerate(hidden)})
    return table


_BYTES = _byte_of_character()


class Vocabulary:
    """The bytes behind each token id. Thread-safe; what was looked up once is kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """
        Raises:
            VocabularyError: the tokenizer's decoder is not byte-level.
        """
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            raise VocabularyError(f"decoder: found {tokenizer.decoder!r}; allowed: ByteLevel")
        self._tokenizer = tokenizer
        self._special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._spellings: dict[int, bytes | None] = {}

    @classmethod
    def from_file(cls, path: Path) -> Vocabulary:
        """Read a `tokenizer.json`.

        Raises:
            VocabularyError: the file cannot be read, or its decoder is not byte-level.
        """
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for everything
            raise VocabularyError(f"{path}: {error}") from error
        return cls(tokenizer)

    def spelling(self, token_id: int) -> bytes | None:
        """The token's bytes, special tokens included; None for an id that is not in the vocabulary."""
        try:
            return self._spellings[token_id]
        except KeyError:
            spelling = self._spellings[token_id] = self._spell(token_id)
            return spelling

    def visible(self, token_id: int) -> bytes:
        """The token's bytes in the answer: none for special tokens and ids that are not in the vocabulary."""
        if token_id in self._special:
            return b""
        return self.spelling(token_id) or b""

    def _spell(self, token_id: int) -> bytes | None:
        token = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return None
        try:
            return bytes([_BYTES[character] for character in token])
        except KeyError:
            return token.encode()  # an added token that is written as it reads


class Detokenizer:
    """The text of one growing token sequence.

    All pieces joined equal the tokenizer's `decode(ids, skip_special_tokens=True)` of the whole sequence.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._unfinished = b""

    @property
    def unfinished(self) -> bool:
        """Whether bytes of an incomplete character wait for the next token."""
        return bool(self._unfinished)

    def push(self, token_id: int) -> str:
        """The characters that this token completes; invalid bytes become U+FFFD."""
        data = self._unfinished + self._vocabulary.visible(token_id)
        text, used = codecs.utf_8_decode(data, "replace", False)
        self._unfinished = data[used:]
        return text

    def flush(self) -> str:
        """What is left at the end: U+FFFD if a character never got complete."""
        text = self._unfinished.decode(errors="replace")
        self._unfinished = b""
        return text
