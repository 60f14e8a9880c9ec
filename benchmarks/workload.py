"""Prompts of exact length, the same ones for the engine alone and for Triton."""

from __future__ import annotations

import random

from tokenizers import Tokenizer

from python_backends.engine_folder import EngineFolder
from python_backends.messages import OmniRequest, PreparedRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.preprocessor import Preprocessor

_SPACE = "\u0120"  # how byte-level BPE writes a leading space


class Workload:
    """Writes prompts of words that are one token each, so that their length is known."""

    def __init__(self, engine: EngineFolder) -> None:
        self._preprocessor = Preprocessor(engine, Limits())
        self._tokenizer = Tokenizer.from_file(str(engine.file("tokenizer.json")))
        vocabulary = self._tokenizer.get_vocab()
        self._words = sorted(word[1:] for word in vocabulary if word.startswith(_SPACE) and word[1:].isalpha())
        self._frame = len(self.prepare("x", 1).input_ids) - 1

    def prompt(self, tokens: int, seed: int) -> str:
        """A user turn that makes a prompt of `tokens` tokens, chat template included; every seed gives another."""
        words = random.Random(seed).choices(self._words, k=tokens - self._frame - 1)
        text = " ".join(["x", *words])
        found = len(self.prepare(text, 1).input_ids)
        if found != tokens:
            raise ValueError(f"prompt {seed}: found {found} tokens; allowed: {tokens}")
        return text

    def prepare(self, text: str, max_tokens: int) -> PreparedRequest:
        """The engine's view of a prompt that is answered greedily with exactly `max_tokens` tokens."""
        request = OmniRequest(text_input=text.encode(), max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        return self._preprocessor.prepare(request)

    def is_text(self, token: int) -> bool:
        """Whether a token alone is at least one whole character."""
        text: str = self._tokenizer.decode([token])
        return bool(text) and "\ufffd" not in text
