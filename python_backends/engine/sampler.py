"""From logits to tokens: greedy for all rows at once, sampling only for the rows that ask for it.

The order of operations and their meaning are those of transformers' logits processors: repetition penalty over prompt
and generated tokens, temperature, top-k, top-p. The random number of a sequence's n-th token depends on its seed and
n alone (Philox, a counter-based generator), so a result does not depend on neighbours, batches or preemption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.engine.base import TokenLogprob
from python_backends.messages import FloatArray, SamplingParams

TokenIds = NDArray[np.integer[Any]]

# The first guess of how many tokens top-p needs; sorting a vocabulary of 150,000 takes 10 ms.
_NUCLEUS_GUESS = 1024


@dataclass(frozen=True, eq=False)
class SamplingRow:
    """One row of logits to draw from: the tokens of prompt and answer so far, and how many of them are the answer's."""

    params: SamplingParams
    token_ids: TokenIds
    generated: int


@dataclass(frozen=True)
class Drawn:
    """A drawn token. `token_id` is None if the logits were not finite."""

    token_id: int | None
    logprob: TokenLogprob | None = None


def draw(logits: FloatArray, rows: Sequence[SamplingRow]) -> list[Drawn]:
    """One token for each row of `logits` [R, vocabulary]; ties go to the lowest id. `logits` is not changed."""
    best = np.argmax(logits, axis=1)
    # NaN counts as the largest value, so one look at the winner finds it
    finite = np.isfinite(logits[np.arange(len(rows)), best])
    drawn = []
    for scores, row, winner, usable in zip(logits, rows, best.tolist(), finite.tolist(), strict=True):
        if not usable:
            drawn.append(Drawn(None))
            continue
        token = winner if _is_plain(row.params) else _sample(scores, row)
        wanted = row.params.logprobs
        drawn.append(Drawn(token, None if wanted is None else _logprob(scores, token, wanted)))
    return drawn


def uniform(seed: int, index: int) -> float:
    """The random number in [0, 1) for token `index` of a sequence with `seed` (0 <= seed < 2**64)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=index)).random())


def _is_plain(params: SamplingParams) -> bool:
    return params.temperature == 0 and params.repetition_penalty == 1


def _sample(logits: FloatArray, row: SamplingRow) -> int:
    params = row.params
    scores = logits.copy()
    if params.repetition_penalty != 1:
        seen = scores[row.token_ids]
        scores[row.token_ids] = np.where(seen < 0, seen * params.repetition_penalty, seen / params.repetition_penalty)
    temperature = np.float32(params.temperature)
    if temperature == 0:
        return int(np.argmax(scores))
    ids: TokenIds | None = None  # None: all
    if 0 < params.top_k < len(scores):
        # temperature changes no order, so what top-k drops need not be scaled at all
        ids = np.flatnonzero(scores >= np.partition(scores, -params.top_k)[-params.top_k])
        scores = scores[ids]
    weights = _weights(scores, temperature)
    if params.top_p < 1:
        kept = _nucleus(weights, params.top_p)
        ids, weights = kept if ids is None else ids[kept], weights[kept]
    heights = np.cumsum(weights, dtype=np.float64)
    chosen = int(np.searchsorted(heights, uniform(params.seed, row.generated) * heights[-1], side="right"))
    # rounding may point behind the last token that has any weight
    chosen = min(chosen, int(np.flatnonzero(weights)[-1]))
    return chosen if ids is None else int(ids[chosen])


def _weights(scores: FloatArray, temperature: np.float32) -> FloatArray:
    """Probabilities up to a common factor; the best has 1."""
    with np.errstate(over="ignore"):  # far below the best is nothing
        return np.asarray(np.exp((scores - scores.max()) / temperature))


def _nucleus(weights: FloatArray, top_p: float) -> TokenIds:
    """The indices, ascending, of the most likely tokens until those before a token have `top_p` of the mass."""
    target = top_p * weights.sum(dtype=np.float64)
    size = min(_NUCLEUS_GUESS, len(weights))
    while True:
        top = np.argpartition(weights, -size)[-size:]
        order = top[np.lexsort((top, -weights[top]))]
        before = np.cumsum(weights[order], dtype=np.float64) - weights[order]
        kept = order[: max(1, int(np.searchsorted(before, target)))]
        if len(kept) < size or size == len(weights):
            return np.sort(kept)
        size = min(8 * size, len(weights))


def _logprob(logits: FloatArray, token: int, wanted: int) -> TokenLogprob:
    # in fp64 the difference of two finite fp32 values is finite
    total = float(logits.max()) + float(np.log(_weights(logits, np.float32(1)).sum(dtype=np.float64)))
    count = min(wanted, len(logits))
    top: list[tuple[int, float]] = []
    if count:
        ids = np.argpartition(logits, -count)[-count:]
        ids = ids[np.lexsort((ids, -logits[ids]))]
        top = [(int(i), float(logits[i]) - total) for i in ids]
    return TokenLogprob(token, float(logits[token]) - total, tuple(top))
