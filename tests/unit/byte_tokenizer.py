"""A small byte-level tokenizer for tests: all bytes, longer tokens that may end within a character, added tokens."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from python_backends.engine.base import TokenLogprob
from python_backends.messages import ResponseSpec
from python_backends.postprocess.detokenizer import Vocabulary

_LONGER = ("hello", " wo", "STOP", "é", "世", "👍", "界", "。")


def small_tokenizer() -> Tokenizer:
    """256 bytes, words, halves of emoji and CJK characters, special and non-special added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: i for i, character in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for word in _LONGER:
        spelled = spell.pre_tokenize_str(word)[0][0]
        for end in range(2, len(spelled) + 1):
            pair = (spelled[: end - 1], spelled[end - 1])
            if pair[0] in vocab and spelled[:end] not in vocab:
                merges.append(pair)
                vocab[spelled[:end]] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = spell
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>", "<|image_pad|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "<tool_call>", "</tool_call>", "日 本")])
    return tokenizer


TOKENIZER = small_tokenizer()
VOCABULARY = Vocabulary(TOKENIZER)


def ids_of(text: str) -> tuple[int, ...]:
    """The token ids of a text."""
    return tuple(TOKENIZER.encode(text).ids)


def id_of(token: str) -> int:
    """The id of an added token."""
    token_id = TOKENIZER.token_to_id(token)
    assert token_id is not None
    return token_id


def spec(
    *, streaming: bool = True, stop: tuple[str, ...] = (), tools: bool = False, logprobs: int | None = None
) -> ResponseSpec:
    """A response to a prompt of 10 text, 20 image, 30 audio and 40 video tokens."""
    return ResponseSpec(
        streaming=streaming,
        stop=stop,
        tools=tools,
        logprobs=logprobs,
        text_tokens=10,
        image_tokens=20,
        audio_tokens=30,
        video_tokens=40,
        times_ms={"preprocess": 1.5},
    )


def logprobs_of(token_ids: tuple[int, ...]) -> tuple[TokenLogprob, ...]:
    """Log-probabilities that tell the tokens apart: -0.5 for each, with the token itself as the most likely one."""
    return tuple(TokenLogprob(token_id, -0.5, ((token_id, -0.5), (0, -3.0))) for token_id in token_ids)
