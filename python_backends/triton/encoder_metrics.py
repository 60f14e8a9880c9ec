"""What an encoder's cache did, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from python_backends.encoders.cache import CacheStats
from python_backends.triton.metric_board import Family, Sample

LOOKUPS = Family("omni_encoder_cache_total", "Media looked up in the embedding cache, and evictions", "outcome", True)
BYTES = Family("omni_encoder_cache_bytes", "Size of the embedding cache", "state")
FAMILIES = (LOOKUPS, BYTES)


def samples(stats: CacheStats) -> Iterator[Sample]:
    """Everything that is published of a cache."""
    yield Sample(LOOKUPS, "hit", stats.hits)
    yield Sample(LOOKUPS, "miss", stats.misses)
    yield Sample(LOOKUPS, "eviction", stats.evictions)
    yield Sample(BYTES, "used", stats.bytes_used)
    yield Sample(BYTES, "limit", stats.bytes_limit)
