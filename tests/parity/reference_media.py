"""Decodes media for the references, apart from the project's own code and by the shortest way that is right.

Pictures with Pillow. Sounds with libsndfile where it can, as transformers loads them (librosa), else with PyAV; Opus
with PyAV too, because decoders of Opus need not agree and libsndfile's is not FFmpeg's. Channels are averaged, then
resampled by soxr HQ. Films with PyAV, all frames, then picked as transformers picks them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from PIL import Image, ImageOps

RATE = 16000
FRAMES_A_SECOND = 2
LEAST_FRAMES, MOST_FRAMES = 4, 768


@dataclass(frozen=True, eq=False)
class Film:
    """Chosen frames [n, h, w, 3] and the sound track [samples] at 16 kHz, if there is one."""

    frames: NDArray[np.uint8]
    sound: NDArray[np.float32] | None


def load_image(path: Path) -> Image.Image:
    """Upright RGB; alpha lies on white, 16 bits become 8 by scaling."""
    image: Image.Image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.float64)
        image = Image.fromarray(np.rint(wide / 257).astype(np.uint8))
    if image.has_transparency_data:
        rgba = np.asarray(image.convert("RGBA")).astype(np.float64)
        alpha = rgba[..., 3:] / 255
        return Image.fromarray(np.rint(rgba[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8))
    return image.convert("RGB")


def load_sound(path: Path) -> NDArray[np.float32]:
    """[samples] fp32 at 16 kHz."""
    data = path.read_bytes()
    if path.suffix == ".opus":
        return _sound_track(data)
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        return _sound_track(data)
    return _resample(samples.mean(axis=1), rate)


def _resample(mono: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    if rate == RATE:
        return mono
    return np.asarray(soxr.resample(mono, rate, RATE, quality="HQ"), dtype=np.float32)


def _sound_track(data: bytes) -> NDArray[np.float32] | None:
    with av.open(io.BytesIO(data)) as container:
        if not container.streams.audio:
            return None
        pieces = []
        rate = container.streams.audio[0].rate
        to_float = av.AudioResampler(format="fltp")
        for frame in container.decode(audio=0):
            pieces += [piece.to_ndarray() for piece in to_float.resample(frame)]
    return _resample(np.concatenate(pieces, axis=1).mean(axis=0), rate)


def load_film(path: Path) -> Film:
    """Two frames a second, an even number of at least four (Qwen2VLVideoProcessor.sample_frames).

    At a constant rate frame floor(i * total / n); at a variable rate the frame that is shown at i / n of the duration.
    """
    data = path.read_bytes()
    frames, starts, end = [], [], Fraction(0)
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        for frame in container.decode(stream):
            pixels = frame.to_ndarray(format="rgb24")
            frames.append(np.rot90(pixels, k=round(frame.rotation / 90)))  # counter-clockwise, as np.rot90 turns
            starts.append(frame.pts * frame.time_base)
            end = starts[-1] + (frame.duration or 0) * frame.time_base
        rate = stream.average_rate
    total = len(frames)
    steps = np.diff([float(start) for start in starts])
    variable = steps.max() - steps.min() > 0.5 * np.median(steps)
    seconds = float(end - starts[0]) if variable else float(total / rate)
    most = min(MOST_FRAMES, total) // 2 * 2
    count = int(min(max(seconds * FRAMES_A_SECOND, LEAST_FRAMES), most)) // 2 * 2
    if variable:
        times = [float(starts[0]) + seconds * i / count for i in range(count)]
        chosen = [int(np.searchsorted([float(s) for s in starts], time, side="right")) - 1 for time in times]
    else:
        chosen = [i * total // count for i in range(count)]
    return Film(np.stack([frames[index] for index in chosen]), _sound_track(data))
