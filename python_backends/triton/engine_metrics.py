"""The engine's statistics as Prometheus metrics.

Names follow what the ecosystem already reads from TensorRT-LLM's Triton models (`nv_trt_llm_…`); the rest is
`omni_engine_…`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from python_backends.engine.base import Engine, EngineStats
from python_backends.triton.metric_board import Family, MetricBoard, Sample

PERIOD_SECONDS = 0.1

REQUESTS = Family("nv_trt_llm_request_metrics", "Requests in the engine", "request_type")
BLOCKS = Family("nv_trt_llm_kv_cache_block_metrics", "KV cache blocks", "kv_cache_block_type")
SLOTS = Family("omni_engine_slots", "Sequence slots of the KV cache", "state")
KV_TOKENS = Family(
    "omni_engine_kv_tokens", "KV cache entries: those that hold a token, and all in used blocks", "state"
)
STEPS = Family("omni_engine_steps_total", "Engine steps by the number of sequences in the step", "rows", counter=True)
TOKENS = Family("omni_engine_tokens_total", "Tokens computed", "phase", counter=True)
OUTCOMES = Family("omni_engine_requests_total", "Sequences that ended or were set back", "outcome", counter=True)
FAMILIES = (REQUESTS, BLOCKS, SLOTS, KV_TOKENS, STEPS, TOKENS, OUTCOMES)


class EngineMetrics:
    """Publishes an engine's statistics ten times a second."""

    def __init__(self, engine: Engine, model: str, version: str) -> None:
        self._engine = engine
        self._board = MetricBoard(FAMILIES, model, version)
        self._stopped = threading.Event()
        self._board.publish(samples(engine.stats()))
        self._thread = threading.Thread(target=self._run, name="engine-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop publishing."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self._board.publish(samples(self._engine.stats()))


def samples(stats: EngineStats) -> Iterator[Sample]:
    """Everything that is published of an engine."""
    yield Sample(REQUESTS, "waiting", stats.waiting)
    yield Sample(REQUESTS, "scheduled", stats.running)
    yield Sample(REQUESTS, "active", stats.waiting + stats.running)
    yield Sample(REQUESTS, "max", stats.slots_total)
    yield Sample(BLOCKS, "max", stats.blocks_total)
    yield Sample(BLOCKS, "used", stats.blocks_used)
    yield Sample(BLOCKS, "free", stats.blocks_total - stats.blocks_used)
    yield Sample(BLOCKS, "tokens_per", stats.tokens_per_block)
    yield Sample(BLOCKS, "fraction", stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0)
    yield Sample(SLOTS, "used", stats.slots_used)
    yield Sample(SLOTS, "total", stats.slots_total)
    yield Sample(KV_TOKENS, "used", stats.kv_tokens_used)
    yield Sample(KV_TOKENS, "allocated", stats.blocks_used * stats.tokens_per_block)
    for rows, steps in sorted(stats.steps_by_rows.items()):
        yield Sample(STEPS, str(rows), steps)
    yield Sample(TOKENS, "prefill", stats.prefill_tokens)
    yield Sample(TOKENS, "decode", stats.decode_tokens)
    yield Sample(OUTCOMES, "finished", stats.finished)
    yield Sample(OUTCOMES, "cancelled", stats.cancelled)
    yield Sample(OUTCOMES, "preempted", stats.preempted)
