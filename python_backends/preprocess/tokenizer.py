"""The checkpoint's tokenizer, as transformers uses it: text of a rendered prompt → token ids."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from python_backends.preprocess.control_tokens import ControlTokens


class TokenizerError(ValueError):
    """The checkpoint's tokenizer cannot be used."""


class PromptTokenizer:
    """Encodes rendered prompts. Thread-safe.

    `control_tokens` are the tokens that are never ordinary text: `special` in `tokenizer.json`.
    """

    def __init__(self, path: Path) -> None:
        """Load `tokenizer.json`.

        Raises:
            TokenizerError: it is not there, or not readable.
        """
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"{path}: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        special = [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        self.control_tokens = ControlTokens(special)
        self._tokenizer.encode_special_tokens = True
        self._spelled = {text: self._encode(text) for text in special}
        self._tokenizer.encode_special_tokens = False

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a rendered prompt; control tokens between marks become the ids of their spelling."""
        ids: list[int] = []
        for piece, marked in self.control_tokens.split(prompt):
            ids += self._spelled[piece] if marked else self._encode(piece)
        return ids

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def template_variables(path: Path) -> dict[str, str]:
    """The special tokens by name (`eos_token`, `image_token`, …) that transformers hands to chat templates.

    Args:
        path: `tokenizer_config.json`.

    Raises:
        TokenizerError: it is no JSON object.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: {error}") from None
    if not isinstance(settings, dict):
        raise TokenizerError(f"{path}: no JSON object")
    # A token is a string, or in older files an object that describes it.
    named = {name: value for name, value in settings.items() if name.endswith("_token")}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
