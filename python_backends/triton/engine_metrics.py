"""The engine's statistics as Prometheus metrics on Triton's own endpoint.

Names follow what the ecosystem already reads from TensorRT-LLM's Triton models (`nv_trt_llm_…`); the rest is
`omni_engine_…`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import triton_python_backend_utils as pb_utils

from python_backends.engine.base import Engine, EngineStats

PERIOD_SECONDS = 0.1

# family -> (help, label, is a counter)
FAMILIES = {
    "nv_trt_llm_request_metrics": ("Requests in the engine", "request_type", False),
    "nv_trt_llm_kv_cache_block_metrics": ("KV cache blocks", "kv_cache_block_type", False),
    "omni_engine_slots": ("Sequence slots of the KV cache", "state", False),
    "omni_engine_kv_tokens": ("KV cache entries that hold a token", "state", False),
    "omni_engine_steps_total": ("Engine steps by the number of sequences in the step", "rows", True),
    "omni_engine_tokens_total": ("Tokens computed", "phase", True),
    "omni_engine_requests_total": ("Sequences that ended or were set back", "outcome", True),
}


class EngineMetrics:
    """Publishes what changed, ten times a second."""

    def __init__(self, engine: Engine, model: str, version: str) -> None:
        self._engine = engine
        self._labels = {"model": model, "version": version}
        self._families = {
            name: pb_utils.MetricFamily(
                name=name,
                description=text,
                kind=pb_utils.MetricFamily.COUNTER if counter else pb_utils.MetricFamily.GAUGE,
            )
            for name, (text, _, counter) in FAMILIES.items()
        }
        self._metrics: dict[tuple[str, str], Any] = {}
        self._published: dict[tuple[str, str], float] = {}
        self._stopped = threading.Event()
        self._publish()
        self._thread = threading.Thread(target=self._run, name="engine-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop publishing."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self._publish()

    def _publish(self) -> None:
        for family, label, value in samples(self._engine.stats()):
            before = self._published.get((family, label))
            if before == value:
                continue
            metric = self._metrics.get((family, label))
            if metric is None:
                name = FAMILIES[family][1]
                metric = self._families[family].Metric(labels={**self._labels, name: label})
                self._metrics[family, label] = metric
            if FAMILIES[family][2]:
                metric.increment(value - (before or 0.0))
            else:
                metric.set(value)
            self._published[family, label] = value


def samples(stats: EngineStats) -> Iterator[tuple[str, str, float]]:
    """(family, label value, value) of everything that is published."""
    requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
    yield requests, "waiting", stats.waiting
    yield requests, "scheduled", stats.running
    yield requests, "active", stats.waiting + stats.running
    yield requests, "max", stats.slots_total
    yield blocks, "max", stats.blocks_total
    yield blocks, "used", stats.blocks_used
    yield blocks, "free", stats.blocks_total - stats.blocks_used
    yield blocks, "tokens_per", stats.tokens_per_block
    yield blocks, "fraction", stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0
    yield "omni_engine_slots", "used", stats.slots_used
    yield "omni_engine_slots", "total", stats.slots_total
    yield "omni_engine_kv_tokens", "used", stats.kv_tokens_used
    yield "omni_engine_kv_tokens", "allocated", stats.blocks_used * stats.tokens_per_block
    for rows, steps in sorted(stats.steps_by_rows.items()):
        yield "omni_engine_steps_total", str(rows), steps
    yield "omni_engine_tokens_total", "prefill", stats.prefill_tokens
    yield "omni_engine_tokens_total", "decode", stats.decode_tokens
    yield "omni_engine_requests_total", "finished", stats.finished
    yield "omni_engine_requests_total", "cancelled", stats.cancelled
    yield "omni_engine_requests_total", "preempted", stats.preempted
