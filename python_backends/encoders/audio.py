"""Sounds to embeddings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from python_backends.config import AudioConfig
from python_backends.encoders.cache import EmbeddingCache
from python_backends.encoders.session import CPU, Provider, open_session
from python_backends.engine_folder import EngineFolder
from python_backends.messages import FloatArray


@dataclass(frozen=True, eq=False)
class AudioItem:
    """A sound, as preprocess made it."""

    features: FloatArray  # [frames, mel bins], unpadded
    key: str


@dataclass(frozen=True)
class _Window:
    """Frames of one item that attend to each other and to nothing else, and where their tokens go."""

    item: int
    frames: slice
    tokens: slice


class AudioEncoder:
    """Runs `audio_encoder.onnx`.

    A sound is cut into chunks of `2 * n_window` frames, each convolved alone, and into attention windows of whole
    chunks that do not see each other. So the window is the unit of a run: a long sound takes several runs, and windows
    of several sounds share one, with at most `frames_per_run` frames in a run (more only if one window alone has more).
    Runs are bounded, so the session keeps their memory. Thread-safe.
    """

    def __init__(
        self,
        engine: EngineFolder,
        threads: int,
        *,
        providers: Sequence[Provider] = CPU,
        cache_bytes: int = 64 << 20,
        frames_per_run: int = 1600,
    ) -> None:
        self.cache = EmbeddingCache(cache_bytes)
        self._config = engine.config.audio
        self._frames_per_run = frames_per_run
        self._session = open_session(engine.file("audio_encoder.onnx"), threads, providers, keep_memory=True)

    def encode(self, items: Sequence[AudioItem]) -> list[FloatArray]:
        """Embeddings of each item, in their order: f32 [tokens, hidden], read-only; each as if it were alone.

        Items with the same key are computed once, and not at all if the cache holds them.

        Raises:
            ValueError: an item's features have a wrong shape, or its key is that of an item of another length.
        """
        for place, item in enumerate(items):
            shape = item.features.shape
            if (
                len(shape) != 2
                or not shape[0]
                or shape[1] != self._config.num_mel_bins
                or item.features.dtype != np.float32
            ):
                raise ValueError(
                    f"audio item {place}: found features {item.features.dtype} {shape}; "
                    f"allowed: float32 [frames, {self._config.num_mel_bins}] with at least one frame"
                )
        arrays = self.cache.resolve([item.key for item in items], lambda places: self._run([items[i] for i in places]))
        for place, (item, array) in enumerate(zip(items, arrays, strict=True)):
            tokens = token_count(self._config, len(item.features))
            if len(array) != tokens:
                raise ValueError(
                    f"audio item {place}: found {tokens} tokens; allowed: {len(array)}, as its key had before"
                )
        return arrays

    def _run(self, items: Sequence[AudioItem]) -> list[FloatArray]:
        frames = [len(item.features) for item in items]
        results = [np.empty((token_count(self._config, n), self._config.output_dim), np.float32) for n in frames]
        # Convolution sees beyond a chunk's last frame: the last chunk of a sound is padded to a whole one, but a sound
        # shorter than one chunk is not padded at all. Only chunks padded alike can share a run.
        by_width: dict[int, list[_Window]] = defaultdict(list)
        for number, length in enumerate(frames):
            by_width[min(length, 2 * self._config.n_window)] += self._windows(number, length)
        for width, windows in by_width.items():
            longest = max(window.frames.stop - window.frames.start for window in windows)
            per_run = max(1, self._frames_per_run // longest)
            for first in range(0, len(windows), per_run):
                run = windows[first : first + per_run]
                embeddings = self._run_windows(items, run, width)
                at = 0
                for window in run:
                    count = window.tokens.stop - window.tokens.start
                    results[window.item][window.tokens] = embeddings[at : at + count]
                    at += count
        return results

    def _windows(self, item: int, frames: int) -> list[_Window]:
        chunk = 2 * self._config.n_window
        step = self._config.n_window_infer // chunk * chunk
        starts = range(0, frames, step)
        ends = [min(start + step, frames) for start in starts]
        bounds = [0, *(token_count(self._config, end) for end in ends)]
        return [
            _Window(item, slice(start, end), slice(bounds[n], bounds[n + 1]))
            for n, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    def _run_windows(self, items: Sequence[AudioItem], windows: Sequence[_Window], width: int) -> FloatArray:
        """One run: f32 [tokens of all windows, hidden]. Every chunk of it is padded to `width` frames."""
        chunks = [-(-(window.frames.stop - window.frames.start) // width) for window in windows]
        counts = np.array([window.tokens.stop - window.tokens.start for window in windows])
        features = np.zeros((sum(chunks), width, self._config.num_mel_bins), np.float32)
        flat = features.reshape(-1, self._config.num_mel_bins)
        per_chunk = _convolved(width)
        token_index = []
        chunk = 0
        for window, number, count in zip(windows, chunks, counts, strict=True):
            flat[chunk * width :][: window.frames.stop - window.frames.start] = items[window.item].features[
                window.frames
            ]
            # all chunks of a window but the last are whole, so its tokens stand one after another
            token_index.append(np.arange(count) + chunk * per_chunk)
            chunk += number
        # token p of window b stands at [b, p] in the padded batch
        longest = int(counts.max())
        place = np.arange(longest)
        real = place < counts[:, None]
        first = np.cumsum(counts) - counts
        inputs = {
            "features": features,
            "token_index": np.concatenate(token_index),
            "window_index": np.where(real, first[:, None] + place, 0),
            "window_lengths": counts.astype(np.int32),
            "unpad_index": np.flatnonzero(real),
        }
        embeddings: FloatArray = self._session.run(["embeddings"], inputs)[0]
        return embeddings


def token_count(config: AudioConfig, frames: int) -> int:
    """Tokens that a sound of `frames` mel frames becomes (transformers `_get_feat_extract_output_lengths`)."""
    whole, rest = divmod(frames, 2 * config.n_window)
    return whole * _convolved(2 * config.n_window) + _convolved(rest)


def _convolved(frames: int) -> int:
    """Frames left after three convolutions of stride 2, each rounding up."""
    return -(-frames // 8)
