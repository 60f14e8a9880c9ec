"""A small byte-level BPE tokenizer of Qwen2's kind, learnt from `words.txt` with integer counts: the same everywhere.

A word's count falls with its rank in the list, as in natural text (Zipf).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)
# Part of the text, not markers: detokenising keeps them.
PLAIN_TOKENS = frozenset(
    {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"},
)
_ROLES = ("system", "user", "assistant")  # the model needs each to be one token
_PUNCTUATION = (
    ".",
    ",",
    "?",
    "!",
    ":",
    ";",
    "-",
    "(",
    ")",
    '"',
    "'",
    "/",
    "{",
    "}",
    "[",
    "]",
    '{"',
    '":',
    '",',
    '"}',
    '"}}',
    ".\n",
    "\n\n",
    "?\n",
    ":\n",
    ' "',
    " (",
    "...",
    "--",
    "#",
    "##",
    "*",
    "```",
    "=",
    "==",
)

Pair = tuple[str, str]


def byte_alphabet() -> dict[int, str]:
    """Byte -> the printable character that stands for it (GPT-2's table: printable Latin-1 stands for itself)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def learn_merges(count: int) -> list[Pair]:
    """The first `count` merges; a shorter list is a prefix of a longer one."""
    alphabet = byte_alphabet()
    counts = dict(_weighted_words())
    words = [[alphabet[byte] for byte in word.encode()] for word in counts]
    weights = list(counts.values())
    pairs: dict[Pair, int] = defaultdict(int)
    where: dict[Pair, set[int]] = defaultdict(set)
    for index, symbols in enumerate(words):
        for pair in _add(symbols, weights[index], pairs):
            where[pair].add(index)
    queue = [(-count_now, pair) for pair, count_now in pairs.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while len(merges) < count:
        negative, best = heapq.heappop(queue)
        if -negative != pairs.get(best):
            continue  # the count changed since this entry was queued; a newer entry is there
        merges.append(best)
        touched: set[Pair] = set()
        for index in where.pop(best):
            touched.update(_add(words[index], -weights[index], pairs))
            words[index] = _merge(words[index], best)
            for pair in _add(words[index], weights[index], pairs):
                where[pair].add(index)
                touched.add(pair)
        del pairs[best]
        for pair in touched - {best}:
            heapq.heappush(queue, (-pairs[pair], pair))
    return merges


def _weighted_words() -> Iterator[tuple[str, int]]:
    lines = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split()
    words = list(dict.fromkeys(lines))
    for role in _ROLES:
        yield role, 100_000_000
    for mark in _PUNCTUATION:
        yield mark, 3_000_000
    for rank, word in enumerate(words, 10):
        weight = 400_000_000 // rank
        if word.isascii():
            yield " " + word, weight
            if word not in _ROLES and word.isalpha():
                yield word.capitalize(), weight // 6
                yield word.lower(), weight // 4 + 1
        else:
            yield word, weight


def _add(symbols: list[str], weight: int, pairs: dict[Pair, int]) -> list[Pair]:
    neighbours = list(pairwise(symbols))
    for pair in neighbours:
        pairs[pair] += weight
    return neighbours


def _merge(symbols: list[str], pair: Pair) -> list[str]:
    merged: list[str] = []
    at = 0
    while at < len(symbols):
        if at + 1 < len(symbols) and (symbols[at], symbols[at + 1]) == pair:
            merged.append(symbols[at] + symbols[at + 1])
            at += 2
        else:
            merged.append(symbols[at])
            at += 1
    return merged
