"""The engine on ONNX Runtime: one thread that plans a step, runs it, draws tokens and hands them out."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Sequence as Several
from dataclasses import dataclass

from python_backends.engine.admission import AdmissionQueue
from python_backends.engine.base import (
    Engine,
    EngineStats,
    FinishReason,
    GenerationRequest,
    TokenEvent,
    TokenLogprob,
    TokenSink,
)
from python_backends.engine.blocks import BlockPool, IntegrityError
from python_backends.engine.graph import ThinkerGraph
from python_backends.engine.kv_cache import KVCache, KVShape
from python_backends.engine.sampler import Drawn, draw
from python_backends.engine.scheduler import Scheduler, StepRow
from python_backends.engine.sequence import Sequence
from python_backends.engine_folder import EngineFolder
from python_backends.errors import InvalidRequest, OmniError, Overloaded

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OnnxEngineConfig:
    """Limits of an engine.

    `kv_blocks` of `block_tokens` tokens each are the memory for keys and values (`OnnxEngine.block_bytes` apiece). A
    step computes at most `max_step_tokens` tokens, of one prompt at most `prefill_chunk`: smaller values let
    generating sequences wait less while prompts are read, larger ones read prompts faster. `threads` 0 lets ONNX
    Runtime choose.

    Raises:
        ValueError: a value is out of range.
    """

    max_model_len: int
    max_slots: int = 16
    block_tokens: int = 32
    kv_blocks: int = 1024
    prefill_chunk: int = 128
    max_step_tokens: int = 160
    max_waiting: int = 256
    threads: int = 0

    def __post_init__(self) -> None:
        lowest = dict.fromkeys(self.__dataclass_fields__, 1) | {"threads": 0, "max_waiting": 0}
        lowest["max_step_tokens"] = self.max_slots
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}; allowed: at least {least}")


class OnnxEngine(Engine):
    """In-flight batching over `thinker.onnx`: requests join and leave between steps."""

    def __init__(self, engine: EngineFolder, config: OnnxEngineConfig) -> None:
        """
        Raises:
            EngineFolderError: the folder lacks the thinker.
            OSError: no address space for the slots.
        """
        text = engine.config.text
        # the attention operator wants room for a whole chunk behind every row
        tokens = config.max_model_len + config.prefill_chunk
        shape = KVShape(text.num_hidden_layers, text.num_key_value_heads, text.head_dim, config.max_slots, tokens)
        self._config = config
        self._model = engine.config
        self._cache = KVCache(shape)
        self._pool = BlockPool(config.kv_blocks, config.block_tokens)
        self._scheduler = Scheduler(
            self._cache, self._pool, AdmissionQueue(config.max_waiting), config.prefill_chunk, config.max_step_tokens
        )
        self._graph = ThinkerGraph(
            engine.file("thinker.onnx"),
            engine.file("token_embeddings.npy"),
            engine.config,
            self._cache,
            config.max_step_tokens,
            config.threads,
        )
        self._orders = itertools.count()
        self._wake = threading.Condition()  # guards everything below, and the scheduler
        self._known: dict[str, Sequence] = {}  # neither ended nor cancelled
        self._cancelled: list[Sequence] = []
        self._closing = False
        self._counts: Counter[str] = Counter()
        self._steps_by_rows: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._loop, name="thinker-engine", daemon=True)
        self._thread.start()

    @property
    def block_bytes(self) -> int:
        """Memory of one block."""
        return self._cache.shape.bytes_per_token * self._config.block_tokens

    def submit(self, request: GenerationRequest, sink: TokenSink) -> None:
        total = len(request.input_ids) + request.sampling.max_tokens
        longest = min(self._config.max_model_len, self._pool.total * self._pool.tokens_per_block)
        if total > longest:
            raise InvalidRequest("max_tokens", f"prompt and max_tokens need {total} tokens", f"{longest} together")
        sequence = Sequence(request, self._model, sink, next(self._orders))
        with self._wake:
            if self._closing:
                raise Overloaded("the engine is shutting down")
            if request.key in self._known:
                raise InvalidRequest("key", f"{request.key} is running already", "a key of its own for each request")
            self._scheduler.queue.push(sequence)
            self._known[request.key] = sequence
            self._wake.notify()

    def cancel(self, key: str) -> bool:
        with self._wake:
            sequence = self._known.pop(key, None)
            if sequence is None:
                return False
            self._cancelled.append(sequence)
            self._wake.notify()
            return True

    def stats(self) -> EngineStats:
        with self._wake:
            running = self._scheduler.running
            return EngineStats(
                waiting=len(self._scheduler.queue),
                running=len(running),
                slots_used=self._cache.used,
                slots_total=self._config.max_slots,
                blocks_used=self._pool.used,
                blocks_total=self._pool.total,
                tokens_per_block=self._pool.tokens_per_block,
                kv_tokens_used=sum(sequence.computed for sequence in running),
                steps=self._counts["steps"],
                prefill_tokens=self._counts["prefill"],
                decode_tokens=self._counts["decode"],
                steps_by_rows=dict(self._steps_by_rows),
                finished=self._counts["finished"],
                cancelled=self._counts["cancelled"],
                preempted=self._scheduler.preempted,
            )

    def check(self) -> None:
        """
        Raises:
            IntegrityError: the books of slots and blocks do not add up.
        """
        with self._wake:
            self._scheduler.check()

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._cancelled += self._known.values()
            self._known.clear()
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _loop(self) -> None:
        running = True
        while running:
            with self._wake:
                while not (self._known or self._cancelled or self._closing):
                    self._wake.wait()
                running = not self._closing
                gone, self._cancelled = self._cancelled, []
                self._counts["cancelled"] += len(gone)
                for sequence in gone:
                    self._scheduler.remove(sequence)
            for sequence in gone:
                self._tell(sequence, _last(sequence, FinishReason.CANCELLED))
            if running:
                self._step()

    def _step(self) -> None:
        rows: list[StepRow] = []
        try:
            with self._wake:
                rows = self._scheduler.plan()
                if not rows and self._known:
                    raise IntegrityError("requests are there, but none can run")
            if not rows:
                return
            logits = self._graph.run(rows)
            drawing = [row.sequence for row in rows if row.draws]
            drawn = draw(logits, [sequence.sampling_row() for sequence in drawing])
        except Exception as error:
            logger.exception("a step failed")
            self._fail([row.sequence for row in rows], error)
            return
        for sequence, event in self._apply(rows, dict(zip(drawing, drawn, strict=True))):
            self._tell(sequence, event)

    def _apply(self, rows: Several[StepRow], drawn: dict[Sequence, Drawn]) -> list[tuple[Sequence, TokenEvent]]:
        """Enter what a step computed into the books; what there is to tell."""
        with self._wake:
            self._counts["steps"] += 1
            self._steps_by_rows[len(rows)] += 1
            for row in rows:
                # tokens of an answer that are computed again count as prefill
                decodes = row.count == 1 and row.sequence.generated > 0
                self._counts["decode" if decodes else "prefill"] += row.count
                row.sequence.computed += row.count
            self._scheduler.drop_spare_media()
            return [
                (sequence, self._advance(sequence, result))
                for sequence, result in drawn.items()
                if self._is_known(sequence)
            ]

    def _advance(self, sequence: Sequence, drawn: Drawn) -> TokenEvent:
        """Append a drawn token; ends the sequence if it was the last one."""
        token = drawn.token_id
        if token is None:
            self._end(sequence)
            return _last(sequence, FinishReason.ERROR, error=OmniError("the model's output is not a finite number"))
        sequence.append(token)
        if token in self._model.tokens.eos and not sequence.sampling.ignore_eos:
            self._end(sequence, "finished")
            return _last(sequence, FinishReason.STOP)
        logprobs = () if drawn.logprob is None else (drawn.logprob,)
        if sequence.generated == sequence.sampling.max_tokens:
            self._end(sequence, "finished")
            return _last(sequence, FinishReason.LENGTH, (token,), logprobs)
        times = sequence.times() if sequence.generated == 1 else None
        return TokenEvent(sequence.key, (token,), logprobs, times=times)

    def _fail(self, sequences: Several[Sequence], error: Exception) -> None:
        """End the sequences of a failed step; all there are, if it failed before it was planned."""
        with self._wake:
            failed = [s for s in sequences or list(self._known.values()) if self._is_known(s)]
            for sequence in failed:
                self._end(sequence)
        for sequence in failed:
            self._tell(sequence, _last(sequence, FinishReason.ERROR, error=error))

    def _tell(self, sequence: Sequence, event: TokenEvent) -> None:
        """Call the sink; a sequence whose sink fails is ended, for nobody reads it."""
        try:
            sequence.sink(event)
        except Exception:
            logger.exception("the receiver of %s failed", sequence.key)
            with self._wake:
                if self._is_known(sequence):
                    self._end(sequence, "cancelled")

    def _is_known(self, sequence: Sequence) -> bool:
        return self._known.get(sequence.key) is sequence

    def _end(self, sequence: Sequence, counter: str | None = None) -> None:
        del self._known[sequence.key]
        self._scheduler.remove(sequence)
        if counter:
            self._counts[counter] += 1


def _last(
    sequence: Sequence,
    reason: FinishReason,
    token_ids: tuple[int, ...] = (),
    logprobs: tuple[TokenLogprob, ...] = (),
    error: Exception | None = None,
) -> TokenEvent:
    return TokenEvent(sequence.key, token_ids, logprobs, reason, sequence.times(), error=error)
