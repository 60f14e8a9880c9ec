"""The way from the engine's token events to Triton responses.

One thread sends for all sequences. A chunk carries every token since the last one: streams get at most one chunk in
20 ms, and a chunk without tokens every 200 ms while a sequence waits, so that postprocess can notice a client that
left.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from python_backends.engine.base import SequenceTimes, TokenEvent, TokenLogprob
from python_backends.errors import InvalidRequest
from python_backends.messages import ResponseSpec, ThinkerUsage
from python_backends.triton.responses import error_sentence, send, send_last
from python_backends.triton.tensors import scalar_tensor, string_tensor, tensor
from python_backends.wire import response_spec_to_json, thinker_usage_to_json, token_logprobs_to_json

STREAM_SECONDS = 0.02
HEARTBEAT_SECONDS = 0.2
# A chunk costs about 1 ms of processor time on its way through postprocess to the client. Nothing tells the thinker
# when postprocess falls behind, so all streams together stay below what one busy core can carry.
CHUNKS_PER_SECOND = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Chunk:
    """One response of the thinker. `tokens_sent` counts the sequence's tokens up to and with this chunk."""

    key: str
    sender: Any
    index: int
    spec: ResponseSpec
    token_ids: list[int]
    logprobs: list[TokenLogprob]
    last: TokenEvent | None
    times: SequenceTimes | None  # news of them
    tokens_sent: int


@dataclass(eq=False)
class ChunkStream:
    """What one sequence still has to send."""

    key: str
    sender: Any
    spec: ResponseSpec
    sent_at: float  # on the monotonic clock
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    last: TokenEvent | None = None
    times: SequenceTimes | None = None
    index: int = 0
    tokens_sent: int = 0

    def due(self, fair_share: float) -> float:
        """When the next chunk is to be sent, on the monotonic clock. The first token and the end never wait.

        `fair_share` is the least time between two chunks that leaves room for the other streams.
        """
        if self.last is not None:
            return 0.0
        if self.token_ids and self.spec.streaming:
            return self.sent_at + max(STREAM_SECONDS, fair_share) if self.tokens_sent else 0.0
        return self.sent_at + max(HEARTBEAT_SECONDS, fair_share)

    def pop(self, now: float) -> Chunk:
        """Everything since the last chunk."""
        self.tokens_sent += len(self.token_ids)
        chunk = Chunk(
            self.key,
            self.sender,
            self.index,
            self.spec,
            self.token_ids,
            self.logprobs,
            self.last,
            self.times,
            self.tokens_sent,
        )
        self.token_ids, self.logprobs, self.times = [], [], None
        self.index += 1
        self.sent_at = now
        return chunk


class ChunkSender:
    """Sends chunks of all open streams from one thread."""

    def __init__(self, cancel: Callable[[str], bool]) -> None:
        self._cancel = cancel
        self._streams: dict[str, ChunkStream] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="chunk-sender", daemon=True)
        self._thread.start()

    def open(self, key: str, sender: Any, spec: ResponseSpec) -> None:
        """Register a sequence before it is submitted to the engine.

        Raises:
            InvalidRequest: a sequence of this key is running.
        """
        with self._changed:
            if key in self._streams:
                raise InvalidRequest("request_key", f"{key} is running already", "a key of its own for each request")
            self._streams[key] = ChunkStream(key, sender, spec, sent_at=time.monotonic())
            self._changed.notify()

    def forget(self, key: str) -> None:
        """Undo `open` for a sequence that the engine refused."""
        with self._changed:
            self._streams.pop(key, None)

    def take(self, event: TokenEvent) -> None:
        """The engine's sink."""
        with self._changed:
            stream = self._streams.get(event.key)
            if stream is None:
                return
            stream.token_ids += event.token_ids
            stream.logprobs += event.logprobs
            stream.times = event.times or stream.times
            if event.finish_reason is not None:
                stream.last = event
            self._changed.notify()

    def close(self) -> None:
        """Send what is there and stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                fair_share = len(self._streams) / CHUNKS_PER_SECOND
                dues = [(stream.due(fair_share), stream) for stream in self._streams.values()]
                chunks = [stream.pop(now) for due, stream in dues if due <= now]
                for chunk in chunks:
                    if chunk.last is not None:
                        del self._streams[chunk.key]
                if not chunks:
                    if self._closed:
                        return
                    self._changed.wait(min(due for due, _ in dues) - now if dues else None)
                    continue
            for chunk in chunks:
                self._send(chunk)

    def _send(self, chunk: Chunk) -> None:
        try:
            if chunk.last is not None:
                send_last(chunk.sender, _last_tensors(chunk, chunk.last))
            elif not chunk.token_ids and chunk.sender.is_cancelled():
                self._cancel(chunk.key)  # only a client that calls the thinker itself is seen here
            else:
                send(chunk.sender, _tensors(chunk))
        except Exception:
            logger.exception("chunk %d of %s could not be sent", chunk.index, chunk.key)
            self._cancel(chunk.key)


def _last_tensors(chunk: Chunk, event: TokenEvent) -> list[Any]:
    assert event.finish_reason is not None
    tensors = _tensors(chunk)
    tensors.append(string_tensor("finish_reason", event.finish_reason.value))
    if event.error is not None:
        # An error response would skip postprocess, which has to forget the sequence: it answers with the error.
        tensors.append(string_tensor("error", error_sentence(event.error)))
    return tensors


def _tensors(chunk: Chunk) -> list[Any]:
    tensors = [
        string_tensor("request_key", chunk.key),
        scalar_tensor("chunk_index", chunk.index, np.int32),
        scalar_tensor("sent_at", time.monotonic(), np.float64),
    ]
    if chunk.index == 0:
        tensors.append(string_tensor("response_spec", response_spec_to_json(chunk.spec)))
    if chunk.token_ids:
        tensors.append(tensor("output_ids", np.array(chunk.token_ids, dtype=np.int32)))
    if chunk.logprobs:
        tensors.append(string_tensor("output_logprobs", token_logprobs_to_json(chunk.logprobs)))
    if chunk.times is not None:  # also with the first token, for an answer that postprocess ends at a stop string
        usage = ThinkerUsage(
            completion_tokens=chunk.tokens_sent,
            cached_tokens=chunk.last.cached_tokens if chunk.last else 0,
            times_ms={name: round(value, 3) for name, value in dataclasses.asdict(chunk.times).items()},
        )
        tensors.append(string_tensor("thinker_usage", thinker_usage_to_json(usage)))
    return tensors
