"""The server's Prometheus endpoint, as a monitoring system reads it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx

SAMPLE = re.compile(r"^(\w+)\{(.*)\} ([\d.eE+-]+)$")


class Metrics:
    """Samples by family and by the value of one label."""

    def __init__(self, url: str) -> None:
        self._url = url

    def family(self, name: str, label: str, model: str | None = None) -> dict[str, float]:
        """Label value → number, for every sample of one family (of one model)."""
        found = {}
        for line in httpx.get(self._url).text.splitlines():
            match = SAMPLE.match(line)
            if match and match[1] == name:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
                if model in (None, labels["model"]):
                    found[labels[label]] = float(match[3])
        return found

    def encoder_lookups(self, model: str) -> dict[str, float]:
        """`hit`, `miss` and `eviction` of one encoder's cache."""
        return self.family("omni_encoder_cache_total", "outcome", model)

    def executions(self, model: str) -> float:
        """How many times Triton called a model, a batch counting once."""
        return self.family("nv_inference_exec_count", "model", model)[model]

    def inferences(self, model: str) -> float:
        """How many requests a model has served."""
        return self.family("nv_inference_count", "model", model)[model]

    def slots_used(self) -> float:
        return self.family("omni_engine_slots", "state").get("used", 0.0)

    def blocks_used(self) -> float:
        return self.family("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type").get("used", 0.0)

    def requests(self) -> dict[str, float]:
        return self.family("nv_trt_llm_request_metrics", "request_type")

    def tokens(self) -> dict[str, float]:
        return self.family("omni_engine_tokens_total", "phase")

    def steps_by_rows(self) -> dict[int, float]:
        return {int(rows): count for rows, count in self.family("omni_engine_steps_total", "rows").items()}

    def idle(self) -> bool:
        """Nothing runs, nothing waits, nothing is held."""
        return self.requests().get("active", 0) == 0 and self.slots_used() == 0 and self.blocks_used() == 0


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true within the time; looks a hundred times a second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
