"""The tokenizer of a random checkpoint, as the files that the tokenizers library and transformers read."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from build_engines.random_checkpoint.bpe import PLAIN_TOKENS, SPECIAL_TOKENS, Pair, byte_alphabet, learn_merges

# How Qwen2 cuts text before merging (transformers, `tokenization_qwen2.py`).
_CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NAMED_TOKENS = {
    "image_token": "<|image_pad|>",
    "audio_token": "<|audio_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}


@dataclass(frozen=True)
class Vocabulary:
    """Bytes first, then the merges in order, then the added tokens."""

    ids: dict[str, int]
    merges: list[Pair]

    @classmethod
    def learn(cls, merges: int) -> Vocabulary:
        pairs = learn_merges(merges)
        tokens = dict.fromkeys([*byte_alphabet().values(), *(left + right for left, right in pairs)])
        return cls({token: index for index, token in enumerate(tokens)}, pairs)

    @property
    def added(self) -> dict[str, int]:
        """Ids of the added tokens."""
        return {token: len(self.ids) + index for index, token in enumerate(SPECIAL_TOKENS)}

    def row_gains(self, rows: int, end_of_turn: float) -> NDArray[np.float32]:
        """Factors for the output rows [rows], so that answers are text: markers and unused ids never win, stray bytes
        (halves of characters) seldom do, and the end of a turn comes up as often as `end_of_turn` makes it.
        """
        gains = np.ones(rows, np.float32)
        for byte, character in byte_alphabet().items():
            if byte < 0x20 or byte > 0x7E:
                gains[self.ids[character]] = 0.75
        gains[len(self.ids) :] = 0.01
        gains[self.added["<|im_end|>"]] = end_of_turn
        return gains


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """The text of `tokenizer.json`."""
    added = [_added_token(token) | {"id": index} for token, index in vocabulary.added.items()]
    return _dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": _CUT}, "behavior": "Isolated", "invert": False},
                    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                ],
            },
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": vocabulary.ids,
                "merges": [list(pair) for pair in vocabulary.merges],
            },
        }
    )


def vocab_json(vocabulary: Vocabulary) -> str:
    """The text of `vocab.json`, for the layout without `tokenizer.json`."""
    return _dump(vocabulary.ids)


def merges_txt(vocabulary: Vocabulary) -> str:
    """The text of `merges.txt`, for the layout without `tokenizer.json`."""
    return "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in vocabulary.merges)


def tokenizer_config_json(vocabulary: Vocabulary) -> str:
    """The text of `tokenizer_config.json`; it lists the added tokens, so that it serves both layouts."""
    special = [token for token in SPECIAL_TOKENS if token not in PLAIN_TOKENS]
    return _dump(
        {
            "add_prefix_space": False,
            "added_tokens_decoder": {str(index): _added_token(token) for token, index in vocabulary.added.items()},
            "additional_special_tokens": special,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "extra_special_tokens": _NAMED_TOKENS,
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "processor_class": "Qwen3OmniMoeProcessor",
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        }
        | _NAMED_TOKENS
    )


def _added_token(token: str) -> dict[str, object]:
    return {
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": token not in PLAIN_TOKENS,
    }


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
