"""One answer on its way: the thinker's tokens in, text pieces out."""

from __future__ import annotations

from dataclasses import dataclass

from python_backends.engine.base import TokenLogprob
from python_backends.errors import OmniError
from python_backends.messages import ResponseSpec, ThinkerUsage
from python_backends.postprocess.detokenizer import Detokenizer, Vocabulary
from python_backends.postprocess.logprobs import LogprobLedger
from python_backends.postprocess.stop_strings import StopFilter
from python_backends.postprocess.tool_calls import has_tool_call
from python_backends.postprocess.usage import Usage


class ChunkError(OmniError):
    """The thinker's chunks contradict each other: a fault of ours, not the client's."""


@dataclass(frozen=True)
class ThinkerChunk:
    """What the thinker sends at once. Chunks of a key are numbered from 0; a heartbeat is a chunk without tokens.

    Chunk 0 carries `spec`, and only the last one has a `finish_reason`: `stop`, `length` or `cancelled`. `logprobs` has
    one entry a token if the request asked for them.
    """

    key: str
    index: int
    spec: ResponseSpec | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None
    usage: ThinkerUsage | None = None


@dataclass(frozen=True)
class Piece:
    """One response to the client. The last one, and only that, has a finish reason and usage.

    `logprobs_json` covers the tokens whose text ends in this piece; None if there are none or they were not asked for.
    """

    text: str
    finish_reason: str | None = None
    usage: Usage | None = None
    logprobs_json: str | None = None


class TextStream:
    """The state of one answer. Time is linear in the number of tokens; not thread-safe."""

    def __init__(self, spec: ResponseSpec, vocabulary: Vocabulary) -> None:
        self._spec = spec
        self._detokenizer = Detokenizer(vocabulary)
        self._stops = StopFilter(spec.stop)
        self._ledger = None if spec.logprobs is None else LogprobLedger(vocabulary, spec.logprobs)
        self._thinker: ThinkerUsage | None = None
        self._tokens = 0
        self._decoded = 0  # characters that the tokens spell so far
        self._released = 0  # characters that passed the stop filter
        self._kept: list[str] = []  # released text that is still needed: all of it, or none
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether the last piece was made."""
        return self._finished

    def push(self, chunk: ThinkerChunk) -> Piece | None:
        """Take the next chunk, in order. None if there is nothing to send yet.

        Raises:
            ChunkError: log-probabilities were asked for and do not match the tokens, or the finish reason is unknown.
        """
        if chunk.finish_reason not in (None, "stop", "length"):
            raise ChunkError(f"finish_reason: found {chunk.finish_reason!r}; allowed: stop or length")
        if self._ledger is not None and len(chunk.logprobs) != len(chunk.token_ids):
            raise ChunkError(
                f"logprobs: found {len(chunk.logprobs)}; allowed: one for each of {len(chunk.token_ids)} tokens"
            )
        if chunk.usage is not None:
            self._thinker = chunk.usage
        text = self._release(chunk)
        self._released += len(text)
        if not self._spec.streaming or self._spec.tools:
            self._kept.append(text)
        if chunk.finish_reason is not None or self._stops.matched:
            return self._last(text, chunk.finish_reason)
        if not text or not self._spec.streaming:
            return None
        return Piece(text, logprobs_json=self._ledger.take_sent(self._released) if self._ledger else None)

    def _release(self, chunk: ThinkerChunk) -> str:
        """The new text that may be shown."""
        parts = []
        for position, token_id in enumerate(chunk.token_ids):
            start = self._decoded
            text = self._detokenizer.push(token_id)
            self._tokens += 1
            self._decoded += len(text)
            if self._ledger is not None:
                # a token that begins a character also covers the character, which a later token completes
                self._ledger.add(chunk.logprobs[position], start, self._decoded + self._detokenizer.unfinished)
            parts.append(self._stops.push(text))
            if self._stops.matched:
                return "".join(parts)
        if chunk.finish_reason is not None:
            parts.append(self._stops.push(self._detokenizer.flush()))
            parts.append(self._stops.flush())
        return "".join(parts)

    def _last(self, text: str, thinker_reason: str | None) -> Piece:
        self._finished = True
        cut = self._stops.matched
        reason = "stop" if cut else thinker_reason
        kept = "".join(self._kept)
        if reason == "stop" and self._spec.tools and has_tool_call(kept):
            reason = "tool_calls"
        # the thinker may count what postprocess cannot see, but only postprocess knows where a stop string ended
        tokens = self._tokens if cut or self._thinker is None else self._thinker.completion_tokens
        return Piece(
            text=text if self._spec.streaming else kept,
            finish_reason=reason,
            usage=Usage.of(self._spec, self._thinker, tokens),
            logprobs_json=self._ledger.take_last(self._released, cut) if self._ledger else None,
        )
