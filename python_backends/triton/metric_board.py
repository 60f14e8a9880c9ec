"""Prometheus metrics of a model on Triton's own endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import triton_python_backend_utils as pb_utils


@dataclass(frozen=True)
class Family:
    """One metric name; its samples differ in the value of one label (besides `model` and `version`)."""

    name: str
    help: str
    label: str
    counter: bool = False


class Sample(NamedTuple):
    """The present value of one metric; of a counter, the sum since the start."""

    family: Family
    label: str
    value: float


class MetricBoard:
    """Publishes what changed since the last time: a publication costs a call to Triton for each metric."""

    def __init__(self, families: Sequence[Family], model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        self._families = {
            family: pb_utils.MetricFamily(
                name=family.name,
                description=family.help,
                kind=pb_utils.MetricFamily.COUNTER if family.counter else pb_utils.MetricFamily.GAUGE,
            )
            for family in families
        }
        self._metrics: dict[tuple[Family, str], Any] = {}
        self._published: dict[tuple[Family, str], float] = {}

    def publish(self, samples: Iterable[Sample]) -> None:
        """Not thread-safe."""
        for family, label, value in samples:
            before = self._published.get((family, label))
            if before == value:
                continue
            metric = self._metrics.get((family, label))
            if metric is None:
                metric = self._families[family].Metric(labels={**self._labels, family.label: label})
                self._metrics[family, label] = metric
            if family.counter:
                metric.increment(value - (before or 0.0))
            else:
                metric.set(value)
            self._published[family, label] = value
