"""The checkpoint's tokenizer as one `tokenizer.json`, whichever of the two layouts it comes in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from build_engines.checkpoint import Checkpoint, read_json, read_text
from build_engines.errors import CheckpointError

# How Qwen2's tokenizer cuts text before merging bytes (`tokenization_qwen2.py` in transformers).
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")


def tokenizer_json(checkpoint: Checkpoint) -> bytes:
    """`tokenizer.json` as it is, or made from `vocab.json`, `merges.txt` and `tokenizer_config.json`.

    Raises:
        CheckpointError: there is no tokenizer, it cannot be read, or it does not fit the configuration.
    """
    path = checkpoint.path / "tokenizer.json"
    if path.exists():
        content = path.read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path}: cannot be read as a tokenizer ({error})") from error
    else:
        tokenizer = _from_vocabulary(checkpoint.path)
        content = tokenizer.to_str().encode()
    _check(checkpoint, tokenizer)
    return content


def _from_vocabulary(folder: Path) -> Tokenizer:
    vocab_path, merges_path = folder / "vocab.json", folder / "merges.txt"
    if not (vocab_path.exists() and merges_path.exists()):
        raise CheckpointError(f"{folder}: found neither tokenizer.json nor vocab.json with merges.txt")
    vocab, merges = dict(read_json(vocab_path)), _merges(merges_path)
    config_path = folder / "tokenizer_config.json"
    added = _added_tokens(read_json(config_path)) if config_path.exists() else {}
    # An added token takes the id that it has in the vocabulary, and otherwise the next free one. Its own id may be
    # neither if there are gaps, so all of them are put into the vocabulary; no merge leads to them.
    vocab.update({token.content: number for number, token in added.items()})
    if len(set(vocab.values())) != len(vocab):
        raise CheckpointError(f"{config_path}: an added token has the id of another token")
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{vocab_path} and {merges_path.name} do not fit together ({error})") from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([added[number] for number in sorted(added)])
    return tokenizer


def _merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2:
            raise CheckpointError(f"{path}: line {number} is not two pieces with a space between them")
        merges.append((pair[0], pair[1]))
    return merges


def _added_tokens(config: Mapping[str, Any]) -> dict[int, AddedToken]:
    """`added_tokens_decoder`; as in transformers, the tokens that the settings name elsewhere are special as well."""
    special = {_content(config.get(key)) for key in _NAMED_TOKENS}
    for key in _TOKEN_LISTS:
        listed = config.get(key) or []
        special |= {_content(token) for token in (listed.values() if isinstance(listed, dict) else listed)}
    try:
        return {
            int(number): AddedToken(
                entry["content"],
                single_word=bool(entry.get("single_word", False)),
                lstrip=bool(entry.get("lstrip", False)),
                rstrip=bool(entry.get("rstrip", False)),
                normalized=bool(entry.get("normalized", False)),
                special=bool(entry.get("special", False)) or entry["content"] in special,
            )
            for number, entry in config.get("added_tokens_decoder", {}).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"tokenizer_config.json: added_tokens_decoder is malformed ({error})") from error


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _check(checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    tokens, rows = checkpoint.config.tokens, checkpoint.config.text.vocab_size
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= rows:
        raise CheckpointError(f"tokenizer: largest token id is {largest}; text_config.vocab_size is {rows}")
    needed = {
        "image_token_id": tokens.image,
        "video_token_id": tokens.video,
        "audio_token_id": tokens.audio,
        "vision_start_token_id": tokens.vision_start,
        "vision_end_token_id": tokens.vision_end,
        "audio_start_token_id": tokens.audio_start,
        "audio_end_token_id": tokens.audio_end,
    }
    for key, number in needed.items():
        token = tokenizer.id_to_token(number)
        if token is None or tokenizer.encode(token, add_special_tokens=False).ids != [number]:
            raise CheckpointError(
                f"tokenizer: {key} is {number}, which is {json.dumps(token)} and not a token of its own"
            )
