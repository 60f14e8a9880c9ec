"""Images and videos to embeddings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from python_backends.encoders.cache import EmbeddingCache
from python_backends.encoders.positions import PatchPositions, patch_positions
from python_backends.encoders.session import CPU, Provider, open_session
from python_backends.engine_folder import EngineFolder
from python_backends.messages import FloatArray


@dataclass(frozen=True, eq=False)
class VisionItem:
    """An image (t = 1) or a video, as preprocess made it."""

    patches: FloatArray  # [t * h * w, channels * temporal_patch * patch * patch], in the order of merged blocks
    grid: tuple[int, int, int]  # t, h, w in patches
    key: str


@dataclass(frozen=True)
class _Span:
    """Temporal patches `start` to `stop` of one item; each attends within itself, so items can be cut between them."""

    item: int
    start: int
    stop: int


class VisionEncoder:
    """Runs `vision_encoder.onnx`.

    A run takes temporal patches of equal length, so that attention needs no mask, and at most `patches_per_run` patches
    in all (more only if one temporal patch alone has more). Different lengths would gain nothing from a common run on a
    CPU: each is already large enough to be bound by arithmetic. Items differ a lot in size, so the session does not
    keep memory. Thread-safe.
    """

    def __init__(
        self,
        engine: EngineFolder,
        threads: int,
        *,
        providers: Sequence[Provider] = CPU,
        cache_bytes: int = 256 << 20,
        patches_per_run: int = 4096,
    ) -> None:
        self.cache = EmbeddingCache(cache_bytes)
        self._config = engine.config.vision
        self._patches_per_run = patches_per_run
        self._session = open_session(engine.file("vision_encoder.onnx"), threads, providers, keep_memory=False)

    @property
    def width(self) -> int:
        """Width of an embedding row: the hidden size times 1 + L, the embedding and then the L deepstack features."""
        return self._config.out_hidden_size * (1 + len(self._config.deepstack_visual_indexes))

    def encode(self, items: Sequence[VisionItem]) -> list[FloatArray]:
        """Embeddings of each item, in their order: f32 [t * h * w / merge**2, width], read-only.

        Items with the same key are computed once, and not at all if the cache holds them.

        Raises:
            ValueError: an item's patches do not fit its grid, or its key is that of an item of another size.
        """
        for place, item in enumerate(items):
            self._check(place, item)
        arrays = self.cache.resolve([item.key for item in items], lambda places: self._run([items[i] for i in places]))
        for place, (item, array) in enumerate(zip(items, arrays, strict=True)):
            tokens = self._tokens(item)
            if len(array) != tokens:
                raise ValueError(
                    f"vision item {place}: found {tokens} tokens; allowed: {len(array)}, as its key had before"
                )
        return arrays

    def _check(self, place: int, item: VisionItem) -> None:
        time, height, width = item.grid
        merge = self._config.spatial_merge_size
        if time < 1 or height < 1 or width < 1 or height % merge or width % merge:
            raise ValueError(
                f"vision item {place}: found grid {item.grid}; allowed: positive, height and width multiples of {merge}"
            )
        shape = (time * height * width, self._config.patch_dim)
        if item.patches.shape != shape or item.patches.dtype != np.float32:
            raise ValueError(
                f"vision item {place}: found patches {item.patches.dtype} {item.patches.shape}; "
                f"allowed: float32 {shape} for grid {item.grid}"
            )

    def _tokens(self, item: VisionItem) -> int:
        time, height, width = item.grid
        return time * height * width // self._config.spatial_merge_size**2

    def _run(self, items: Sequence[VisionItem]) -> list[FloatArray]:
        results = [np.empty((self._tokens(item), self.width), np.float32) for item in items]
        by_length: dict[int, list[_Span]] = defaultdict(list)
        for number, item in enumerate(items):
            time, height, width = item.grid
            by_length[height * width].append(_Span(number, 0, time))
        for length, spans in by_length.items():
            tokens = length // self._config.spatial_merge_size**2
            for run in _runs(spans, max(1, self._patches_per_run // length)):
                embeddings = self._run_spans(items, run, length)
                at = 0
                for span in run:
                    count = (span.stop - span.start) * tokens
                    results[span.item][span.start * tokens : span.stop * tokens] = embeddings[at : at + count]
                    at += count
        return results

    def _run_spans(self, items: Sequence[VisionItem], spans: Sequence[_Span], length: int) -> FloatArray:
        """One run: f32 [tokens of all spans, width]. Every temporal patch of it has `length` patches."""
        patches = [items[span.item].patches[span.start * length : span.stop * length] for span in spans]
        placed: list[PatchPositions] = []
        for span in spans:
            _, height, width = items[span.item].grid
            placed += [patch_positions(self._config, height, width)] * (span.stop - span.start)
        inputs = {
            "patches": np.concatenate(patches) if len(patches) > 1 else np.ascontiguousarray(patches[0]),
            "position_index": np.concatenate([p.index for p in placed], axis=1),
            "position_weight": np.concatenate([p.weight for p in placed], axis=1),
            "rope_cos": np.stack([p.rope_cos for p in placed]),
            "rope_sin": np.stack([p.rope_sin for p in placed]),
        }
        embeddings: FloatArray = self._session.run(["embeddings"], inputs)[0]
        return embeddings


def _runs(spans: Sequence[_Span], most: int) -> Iterator[list[_Span]]:
    """Cut spans into runs of at most `most` temporal patches."""
    run: list[_Span] = []
    room = most
    for span in spans:
        start = span.start
        while start < span.stop:
            stop = min(span.stop, start + room)
            run.append(_Span(span.item, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield run
                run, room = [], most
    if run:
        yield run
