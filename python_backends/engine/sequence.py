"""One request inside the engine, from submit to its last token."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.config import OmniConfig
from python_backends.engine.base import GenerationRequest, SequenceTimes, TokenSink
from python_backends.engine.sampler import SamplingRow
from python_backends.errors import InvalidRequest
from python_backends.messages import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class MediaRows:
    """Embedding rows and the prompt indices of the placeholder tokens that they fill, both in prompt order."""

    places: NDArray[np.intp]  # [n]
    rows: FloatArray  # [n, width]

    def between(self, start: int, stop: int) -> tuple[NDArray[np.intp], FloatArray]:
        """The part that falls into prompt tokens start..stop-1."""
        first, last = np.searchsorted(self.places, (start, stop))
        return self.places[first:last], self.rows[first:last]


class Sequence:
    """Tokens, progress and place of one request.

    Of `length` known tokens the first `computed` have their keys and values in the cache; the others are pending. A
    generating sequence has one pending token, one whose prompt is being read has many, and so has one that lost its
    slot and is computed anew: the three differ in nothing else. Once nothing is pending, the next token can be drawn.
    """

    def __init__(self, request: GenerationRequest, config: OmniConfig, sink: TokenSink, order: int) -> None:
        """`order` is the age: smaller is older.

        Raises:
            InvalidRequest: ids outside the vocabulary, wrong shapes, or media rows and placeholders that disagree.
        """
        ids = _prompt(request, config)
        self.key = request.key
        self.sampling = request.sampling
        self.sink = sink
        self.order = order
        self.rope_delta = request.rope_delta
        self.prompt_length = len(ids)
        self.length = len(ids)
        self.computed = 0
        self.slot: int | None = None
        tokens, hidden = config.tokens, config.text.hidden_size
        wide = hidden * (1 + len(config.vision.deepstack_visual_indexes))
        vision_places = np.flatnonzero((ids == tokens.image) | (ids == tokens.video))
        self.vision = _media("vision_embeddings", vision_places, request.vision_embeddings, wide)
        self.audio = _media("audio_embeddings", np.flatnonzero(ids == tokens.audio), request.audio_embeddings, hidden)
        self._needs_media = self.vision is not None or self.audio is not None
        self._tokens: IntArray = np.empty(len(ids) + request.sampling.max_tokens, np.int32)
        self._tokens[: len(ids)] = ids
        self._positions = request.position_ids
        self._submitted = time.monotonic()
        self._admitted: float | None = None
        self._first_token: float | None = None

    @property
    def token_ids(self) -> IntArray:
        """Prompt and generated tokens so far; a view."""
        return self._tokens[: self.length]

    @property
    def generated(self) -> int:
        return self.length - self.prompt_length

    @property
    def pending(self) -> int:
        return self.length - self.computed

    @property
    def longest(self) -> int:
        """The most tokens that the sequence can come to."""
        return len(self._tokens)

    @property
    def holds_media(self) -> bool:
        return self.vision is not None or self.audio is not None

    @property
    def recomputable(self) -> bool:
        """Whether the sequence could be computed again from its first token."""
        return self.holds_media or not self._needs_media

    def drop_media(self) -> None:
        self.vision = self.audio = None

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Position ids [3, stop - start] of tokens start..stop-1; generated ones count on from the prompt's delta."""
        if stop <= self.prompt_length:
            return self._positions[:, start:stop].astype(np.int64)
        following = np.arange(max(start, self.prompt_length), stop) + self.rope_delta
        generated = np.broadcast_to(following, (3, len(following)))
        return np.concatenate([self._positions[:, start : self.prompt_length].astype(np.int64), generated], axis=1)

    def append(self, token: int) -> None:
        if self._first_token is None:
            self._first_token = time.monotonic()
        self._tokens[self.length] = token
        self.length += 1

    def sampling_row(self) -> SamplingRow:
        return SamplingRow(self.sampling, self.token_ids, self.generated)

    def enter(self, slot: int) -> None:
        if self._admitted is None:
            self._admitted = time.monotonic()
        self.slot = slot

    def leave(self) -> None:
        """Lose the slot, and with it all that was computed."""
        self.slot = None
        self.computed = 0

    def times(self) -> SequenceTimes:
        """Milliseconds until now; parts that were not reached are 0."""
        now = time.monotonic()
        admitted = now if self._admitted is None else self._admitted
        first = now if self._first_token is None else self._first_token
        return SequenceTimes(
            queue=1e3 * (admitted - self._submitted), prefill=1e3 * (first - admitted), decode=1e3 * (now - first)
        )


def _prompt(request: GenerationRequest, config: OmniConfig) -> IntArray:
    ids = request.input_ids
    if ids.ndim != 1 or len(ids) == 0:
        raise InvalidRequest("input_ids", f"shape {list(ids.shape)}", "one dimension, at least one token")
    if ids.min() < 0 or ids.max() >= config.text.vocab_size:
        raise InvalidRequest("input_ids", f"ids {ids.min()} to {ids.max()}", f"0 to {config.text.vocab_size - 1}")
    if request.position_ids.shape != (3, len(ids)):
        raise InvalidRequest("position_ids", f"shape {list(request.position_ids.shape)}", f"[3, {len(ids)}]")
    if request.sampling.max_tokens < 1:
        raise InvalidRequest("max_tokens", str(request.sampling.max_tokens), "at least 1")
    return ids


def _media(field: str, places: NDArray[np.intp], rows: FloatArray | None, width: int) -> MediaRows | None:
    found = (0, width) if rows is None else rows.shape
    if found != (len(places), width):
        raise InvalidRequest(field, f"shape {list(found)}", f"[{len(places)}, {width}], a row for each placeholder")
    return None if rows is None or len(places) == 0 else MediaRows(places, rows)
