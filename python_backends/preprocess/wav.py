"""WAV files read directly: their headers are often wrong about the length, and their samples need no decoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.messages import FloatArray

_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_BLOCK = 1 << 16  # frames that are converted at a time


@dataclass(frozen=True)
class WavLayout:
    """Where the samples of a WAV file lie. `frames` (samples per channel) counts what is there, not what is claimed."""

    rate: int
    channels: int
    coding: int
    width: int  # bytes a sample
    start: int
    frames: int

    def mono_blocks(self, data: bytes) -> Iterator[FloatArray]:
        """The mean of the channels, block after block, float32; full scale is -1..1."""
        for first in range(0, self.frames, _BLOCK):
            count = min(_BLOCK, self.frames - first)
            offset = self.start + first * self.channels * self.width
            values, scale, shift = self._values(data, offset, count * self.channels)
            yield mix(list(values.reshape(count, self.channels).T), scale, shift)

    def _values(self, data: bytes, offset: int, count: int) -> tuple[NDArray[np.generic], float, float]:
        if self.coding == _FLOAT:
            return np.frombuffer(data, f"<f{self.width}", count, offset), 1.0, 0.0
        if self.coding in _COMPANDED:
            return _COMPANDED[self.coding][np.frombuffer(data, np.uint8, count, offset)], 1.0, 0.0
        if self.width == 1:
            return np.frombuffer(data, np.uint8, count, offset), 1.0 / 128, -1.0
        if self.width == 3:
            padded = np.zeros((count, 4), np.uint8)
            padded[:, 1:] = np.frombuffer(data, np.uint8, 3 * count, offset).reshape(count, 3)
            return padded.reshape(-1).view("<i4"), 1.0 / 2**31, 0.0
        return np.frombuffer(data, f"<i{self.width}", count, offset), 1.0 / 2 ** (8 * self.width - 1), 0.0


def mix(channels: list[NDArray[np.generic]], scale: float, shift: float) -> FloatArray:
    """The mean of equally long channels times `scale` plus `shift`, float32; what is too large becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mono = channels[0].astype(np.float32)
        for channel in channels[1:]:
            mono += channel.astype(np.float32)
        mono *= np.float32(scale / len(channels))
        if shift:
            mono += np.float32(shift)
    return mono


def find_wav(data: bytes) -> WavLayout | None:
    """The layout of a WAV file with plain or companded samples; None for everything else.

    A data chunk that claims more than is there ends with the file; one that claims nothing but is followed by samples,
    as programs write that cannot seek back, does so too.
    """
    if data[:4] not in (b"RIFF", b"RF64", b"BW64") or data[8:12] != b"WAVE":
        return None
    position = 12
    layout: tuple[int, int, int, int] | None = None
    while position + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, position)
        position += 8
        if kind == b"data":
            if layout is None:
                return None
            coding, channels, rate, width = layout
            there = len(data) - position
            return WavLayout(rate, channels, coding, width, position, min(size or there, there) // (channels * width))
        if kind == b"fmt ":
            layout = _read_format(data[position : position + size])
            if layout is None:
                return None
        position += size + size % 2
    return None


def _read_format(chunk: bytes) -> tuple[int, int, int, int] | None:
    if len(chunk) < 16:
        return None
    coding, channels, rate, _, align, _ = struct.unpack_from("<HHIIHH", chunk)
    if coding == _EXTENSIBLE and len(chunk) >= 26:
        (coding,) = struct.unpack_from("<H", chunk, 24)  # the first field of the sub-format's GUID
    if channels == 0 or align % channels:
        return None
    width = align // channels
    if width not in {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8), _A_LAW: (1,), _MU_LAW: (1,)}.get(coding, ()):
        return None
    return coding, channels, rate, width


def _mu_law() -> FloatArray:
    """G.711 mu-law codes to amplitudes."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 0x84) << ((code & 0x70) >> 4)) - 0x84
    return (np.where(code & 0x80, -magnitude, magnitude) / 32768).astype(np.float32)


def _a_law() -> FloatArray:
    """G.711 A-law codes to amplitudes."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent = (code & 0x70) >> 4
    mantissa = ((code & 0x0F) << 4) + 8
    magnitude = np.where(exponent > 0, (mantissa + 0x100) << np.maximum(exponent - 1, 0), mantissa)
    return (np.where(code & 0x80, magnitude, -magnitude) / 32768).astype(np.float32)


_COMPANDED = {_A_LAW: _a_law(), _MU_LAW: _mu_law()}
