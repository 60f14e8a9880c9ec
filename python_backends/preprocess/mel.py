"""Log-mel features of sounds (the Whisper feature extractor of transformers, as the Qwen3-Omni processor drives it)."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from python_backends.messages import FloatArray
from python_backends.preprocess.parallel import in_slices
from python_backends.preprocess.processor_config import MelSettings

Float64Array = NDArray[np.float64]

MAX_FREQUENCY = 8000.0
_BLOCK = 256  # frames that are transformed at a time, so that they stay in the cache


class MelExtractor:
    """Makes log-mel features. Thread-safe; `threads` share the work of one call."""

    def __init__(self, settings: MelSettings, threads: int) -> None:
        self._hop = settings.hop_length
        self._window = np.hanning(settings.n_fft + 1)[:-1]  # periodic
        self._filters = mel_filters(settings).astype(np.float32)
        self._threads = threads

    def features(self, samples: FloatArray) -> FloatArray:
        """Features [samples // hop_length, mel bins] of a sound, float32 [samples] at the settings' rate.

        Each sound is taken alone: the loudest value, from which the floor is counted, is its own.

        Raises:
            ValueError: fewer than n_fft / 2 + 1 samples; `decode_audio` refuses such sounds.
        """
        half = len(self._window) // 2
        if len(samples) <= half:
            raise ValueError(f"{len(samples)} samples; at least {half + 1} are needed")
        padded = np.pad(samples, half, mode="reflect")
        frames = sliding_window_view(padded, len(self._window))[:: self._hop][: len(samples) // self._hop]
        power = np.empty((len(frames), len(self._filters)), np.float32)

        def transform(start: int, stop: int) -> None:
            windowed = np.empty((_BLOCK, len(self._window)))
            for first in range(start, stop, _BLOCK):
                last = min(first + _BLOCK, stop)
                block = windowed[: last - first]
                np.multiply(frames[first:last], self._window, out=block)
                spectrum = np.fft.rfft(block).view(np.float64)  # real and imaginary parts in turn
                spectrum *= spectrum
                np.add(spectrum[:, ::2], spectrum[:, 1::2], out=power[first:last], casting="same_kind")

        in_slices(len(frames), 2 * _BLOCK, self._threads, transform)
        features: FloatArray = power @ self._filters  # not in the threads above: this has threads of its own
        np.maximum(features, np.float32(1e-10), out=features)
        np.log10(features, out=features)
        np.maximum(features, features.max() - np.float32(8.0), out=features)
        features += np.float32(4.0)
        features *= np.float32(0.25)
        return features


def mel_filters(settings: MelSettings) -> Float64Array:
    """Triangular filters [n_fft / 2 + 1, mel bins] on Slaney's mel scale, each with area 2 (librosa's defaults)."""
    edges = _slaney_to_hertz(np.linspace(0.0, _hertz_to_slaney(MAX_FREQUENCY), settings.mel_bins + 2))
    bins = np.linspace(0.0, settings.sampling_rate / 2, settings.n_fft // 2 + 1)
    distance = edges[np.newaxis, :] - bins[:, np.newaxis]
    widths = np.diff(edges)
    rising = -distance[:, :-2] / widths[:-1]
    falling = distance[:, 2:] / widths[1:]
    triangles: Float64Array = np.maximum(0.0, np.minimum(rising, falling))
    return triangles * (2.0 / (edges[2:] - edges[:-2]))


# Slaney's scale is linear up to 1000 Hz, which is mel 15, and logarithmic above: 27 mels for a factor of 6.4.
_KNEE_HERTZ = 1000.0
_KNEE_MEL = 15.0
_LOG_STEP = 27.0 / np.log(6.4)


def _hertz_to_slaney(frequency: float) -> float:
    if frequency < _KNEE_HERTZ:
        return frequency * _KNEE_MEL / _KNEE_HERTZ
    return float(_KNEE_MEL + np.log(frequency / _KNEE_HERTZ) * _LOG_STEP)


def _slaney_to_hertz(mels: Float64Array) -> Float64Array:
    linear = mels * (_KNEE_HERTZ / _KNEE_MEL)
    logarithmic = _KNEE_HERTZ * np.exp((mels - _KNEE_MEL) / _LOG_STEP)
    frequencies: Float64Array = np.where(mels < _KNEE_MEL, linear, logarithmic)
    return frequencies
