"""All running answers, found by their key."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from python_backends.errors import OmniError, Overloaded
from python_backends.postprocess.detokenizer import Vocabulary
from python_backends.postprocess.stream import ChunkError, Piece, TextStream, ThinkerChunk


@dataclass(frozen=True)
class Outcome:
    """What a chunk led to: at most one piece to send now, and whether the thinker must be told to stop the key."""

    pieces: tuple[Piece, ...] = ()
    stop_thinker: bool = False


@dataclass
class _Entry:
    """A running answer. `stream` is None until chunk 0 is there; `early` holds chunks that overtook others."""

    touched: float
    stream: TextStream | None = None
    next_index: int = 0
    early: dict[int, ThinkerChunk] = field(default_factory=dict)


class StreamTable:
    """Sorts the chunks of many requests into their answers.

    Bounded: a running answer that saw no chunk for `idle_seconds` is forgotten (the thinker sends heartbeats, so
    nothing follows any more), and so is a key whose late chunks are swallowed; there are at most `max_streams` of
    either. Thread-safe.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        max_streams: int = 4096,
        max_early_chunks: int = 64,
        idle_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vocabulary = vocabulary
        self._max_streams = max_streams
        self._max_early_chunks = max_early_chunks
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._running: OrderedDict[str, _Entry] = OrderedDict()  # the one that waits longest first
        self._over: OrderedDict[str, float] = OrderedDict()  # keys whose further chunks mean nothing, and since when

    def __len__(self) -> int:
        """How many answers are running."""
        return len(self._running)

    def push(self, chunk: ThinkerChunk) -> Outcome:
        """Take a chunk. One that overtook an earlier chunk waits for it.

        Raises:
            ChunkError: a number that was there already, too many chunks without the one that is next, or contents that
                contradict each other. The key is forgotten: the request has to end with this error.
            Overloaded: the table is full.
        """
        with self._lock:
            now = self._clock()
            self._expire(now)
            if chunk.key in self._over:
                if chunk.finish_reason is not None:
                    del self._over[chunk.key]
                return Outcome()
            try:
                return self._advance(self._entry(chunk.key, now), chunk, now)
            except OmniError:
                self._close(chunk.key, now, expect_more=chunk.finish_reason is None)
                raise

    def drop(self, key: str) -> None:
        """Forget a cancelled request; chunks that still come are swallowed."""
        with self._lock:
            self._close(key, self._clock(), expect_more=True)

    def _entry(self, key: str, now: float) -> _Entry:
        entry = self._running.get(key)
        if entry is None:
            if len(self._running) >= self._max_streams:
                raise Overloaded(f"postprocess: {len(self._running)} answers are running; allowed: {self._max_streams}")
            entry = self._running[key] = _Entry(touched=now)
        entry.touched = now
        self._running.move_to_end(key)
        return entry

    def _advance(self, entry: _Entry, chunk: ThinkerChunk, now: float) -> Outcome:
        if chunk.index < entry.next_index or chunk.index in entry.early:
            raise ChunkError(f"chunk {chunk.index} of {chunk.key}: came twice")
        entry.early[chunk.index] = chunk
        ready = []
        while entry.next_index in entry.early:
            ready.append(entry.early.pop(entry.next_index))
            entry.next_index += 1
        if not ready:
            if len(entry.early) > self._max_early_chunks:
                raise ChunkError(f"chunk {entry.next_index} of {chunk.key}: missing, but {len(entry.early)} later came")
            return Outcome()
        merged = _merged(ready)
        thinker_runs = merged.finish_reason is None
        if merged.finish_reason == "cancelled":
            self._close(chunk.key, now, expect_more=False)
            return Outcome()
        if entry.stream is None:
            if merged.spec is None:
                raise ChunkError(f"chunk 0 of {chunk.key}: found no response_spec")
            entry.stream = TextStream(merged.spec, self._vocabulary)
        piece = entry.stream.push(merged)
        if entry.stream.finished:
            self._close(chunk.key, now, expect_more=thinker_runs)
        return Outcome((piece,) if piece else (), stop_thinker=entry.stream.finished and thinker_runs)

    def _close(self, key: str, now: float, expect_more: bool) -> None:
        self._running.pop(key, None)
        if expect_more:
            self._over[key] = now
            self._over.move_to_end(key)
            if len(self._over) > self._max_streams:
                self._over.popitem(last=False)

    def _expire(self, now: float) -> None:
        oldest = now - self._idle_seconds
        while self._over and next(iter(self._over.values())) < oldest:
            self._over.popitem(last=False)
        while self._running and next(iter(self._running.values())).touched < oldest:
            key, _ = self._running.popitem(last=False)
            self._close(key, now, expect_more=True)


def _merged(chunks: Sequence[ThinkerChunk]) -> ThinkerChunk:
    """Chunks in a row as one, so that they give one piece."""
    first, last = chunks[0], chunks[-1]
    if first is last:
        return first
    return ThinkerChunk(
        key=first.key,
        index=first.index,
        spec=first.spec,
        token_ids=tuple(token for chunk in chunks for token in chunk.token_ids),
        logprobs=tuple(token for chunk in chunks for token in chunk.logprobs),
        finish_reason=last.finish_reason,
        usage=next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None),
    )
