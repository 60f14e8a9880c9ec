"""When the tokens of an answer came, and the speeds that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class AnswerTimes:
    """One answer as its receiver saw it; times in seconds on one clock."""

    sent: float
    first: float  # arrival of the first token
    last: float  # arrival of the last one
    tokens: int


class Target(Protocol):
    """Something that answers prompts: the engine alone, or Triton."""

    def answer(self, prompts: Sequence[str], tokens: int) -> list[AnswerTimes]:
        """Answer all prompts at once with `tokens` tokens each, and wait for the ends."""


def first_token_ms(answer: AnswerTimes) -> float:
    """Time to first token."""
    return (answer.first - answer.sent) * 1e3


def decode_rate(answers: Sequence[AnswerTimes]) -> float:
    """Tokens a second of all answers together in steady state: each from its first to its last token."""
    return sum((answer.tokens - 1) / (answer.last - answer.first) for answer in answers)


def whole_rate(answers: Sequence[AnswerTimes]) -> float:
    """Tokens a second from the first request sent to the last token received, prompts included."""
    wall = max(answer.last for answer in answers) - min(answer.sent for answer in answers)
    return sum(answer.tokens for answer in answers) / wall
