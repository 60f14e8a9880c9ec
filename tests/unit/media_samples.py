"""Small pictures, sounds and films made on the spot, for the tests of the decoders."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

from python_backends.preprocess.processor_config import ProcessorConfig

CONFIG = ProcessorConfig.from_json(
    {
        "image_processor": {
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "size": {"shortest_edge": 3136, "longest_edge": 12845056},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
        "video_processor": {"patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
        "feature_extractor": {"feature_size": 128},
    }
)


def picture(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth colours, [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width]
    phase = np.arange(3) + seed
    values = 127.5 + 120 * np.sin(x[..., None] / 17 + y[..., None] / 11 * (phase + 1) + phase)
    return values.astype(np.uint8)


def encoded(image: Image.Image | NDArray[np.uint8], kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def tone(seconds: float, rate: int, pitch: float = 440.0) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def written(samples: NDArray[np.float32], rate: int, kind: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def wav(
    data: bytes, *, coding: int = 1, channels: int = 1, rate: int = 16000, bits: int = 16, claimed: int | None = None
) -> bytes:
    """A WAV file with any header; `claimed` is the length that the data chunk states."""
    align = channels * bits // 8
    header = struct.pack("<4sIHHIIHH", b"fmt ", 16, coding, channels, rate, rate * align & 0xFFFFFFFF, align, bits)
    size = len(data) if claimed is None else claimed
    body = b"WAVE" + header + struct.pack("<4sI", b"data", size) + data
    return struct.pack("<4sI", b"RIFF", len(body) & 0xFFFFFFFF) + body


def pcm16(samples: NDArray[np.float32]) -> bytes:
    return np.round(samples * 32767).astype("<i2").tobytes()


def film(
    frames: Sequence[NDArray[np.uint8]],
    rate: Fraction | int = 10,
    *,
    container: str = "mp4",
    codec: str = "libx264",
    pixels: str = "yuv420p",
    sound: NDArray[np.float32] | None = None,
    times: Sequence[int] | None = None,
) -> bytes:
    """A film; `sound` is 16 kHz mono, `times` (in ms) makes the frame rate variable."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as media:
        video = media.add_stream(codec, rate=rate, options={"threads": "1", "crf": "12"})
        video.height, video.width = frames[0].shape[:2]
        video.pix_fmt = pixels
        if times is not None:
            video.codec_context.time_base = Fraction(1, 1000)
        audio = None
        if sound is not None:
            audio = media.add_stream("libopus" if container == "webm" else "aac", rate=16000, layout="mono")
        for index, pixel_values in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixel_values, format="rgb24")
            frame.pts, frame.time_base = (
                (index, 1 / Fraction(rate)) if times is None else (times[index], Fraction(1, 1000))
            )
            media.mux(video.encode(frame))
        media.mux(video.encode(None))
        if audio is not None and sound is not None:
            for start in range(0, len(sound), 320):
                piece = av.AudioFrame.from_ndarray(sound[np.newaxis, start : start + 320], format="flt", layout="mono")
                piece.sample_rate, piece.pts, piece.time_base = 16000, start, Fraction(1, 16000)
                media.mux(audio.encode(piece))
            media.mux(audio.encode(None))
    return file.getvalue()


def numbered_frames(count: int, width: int = 96, height: int = 64) -> list[NDArray[np.uint8]]:
    """Plain grey frames; frame i is 4 * i bright, so that it can be told which ones were taken."""
    return [np.full((height, width, 3), 4 * index, np.uint8) for index in range(count)]


def quarter_turn(data: bytes) -> bytes:
    """An MP4 whose track header says that it is to be shown a quarter turn clockwise."""
    matrix = (0, 0x10000, 0, 0xFFFF0000, 0, 0, 0, 0, 0x40000000)
    at = data.index(b"tkhd") + 4 + 40
    return data[:at] + struct.pack(">9I", *matrix) + data[at + 36 :]


def index_first(data: bytes) -> bytes:
    """An MP4 whose index (moov) stands before the samples, as for streaming."""
    boxes, position = {}, 0
    while position < len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        boxes[kind] = data[position : position + size]
        position += size
    moov = bytearray(boxes[b"moov"])
    at = moov.index(b"stco") + 4
    (entries,) = struct.unpack_from(">I", moov, at + 4)
    for entry in range(entries):
        (offset,) = struct.unpack_from(">I", moov, at + 8 + 4 * entry)
        struct.pack_into(">I", moov, at + 8 + 4 * entry, offset + len(moov))
    return b"".join(bytes(moov) if kind == b"moov" else box for kind, box in _moov_before_mdat(boxes))


def _moov_before_mdat(boxes: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    order = sorted(boxes, key=lambda kind: {b"ftyp": 0, b"moov": 1}.get(kind, 2))
    return [(kind, boxes[kind]) for kind in order]
