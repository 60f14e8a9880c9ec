"""Encoded files to measure preprocessing with, made from seeds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from tests.parity.make_media import film, melody, picture, write_av

VIDEO_SECONDS, VIDEO_RATE = 8, 24


@dataclass(frozen=True)
class MediaCase:
    """A file of a kind (`image`, `audio`, `video`) that holds so many of the units that times are given for."""

    kind: str
    path: Path
    units: int = 1


def make_media(folder: Path) -> dict[str, MediaCase]:
    """The cases by name: two JPEG images, a minute of sound as 16 kHz mono WAV and as 44.1 kHz stereo MP3, and
    seconds of H.264 in MP4, taken from a film of eight."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = {
        "image, 1024x1024 JPEG": MediaCase("image", folder / "large.jpg"),
        "image, 640x480 JPEG": MediaCase("image", folder / "small.jpg"),
        "audio minute, 16 kHz WAV": MediaCase("audio", folder / "minute.wav"),
        "audio minute, 44.1 kHz stereo MP3": MediaCase("audio", folder / "minute.mp3"),
        "video second, 640x360 H.264": MediaCase("video", folder / "video.mp4", units=VIDEO_SECONDS),
    }
    large, small, wav, mp3, video = (case.path for case in cases.values())
    if all(case.path.exists() for case in cases.values()):
        return cases
    Image.fromarray(picture(1024, 1024, 1)).save(large, quality=90)
    Image.fromarray(picture(640, 480, 2)).save(small, quality=90)
    soundfile.write(wav, np.tile(melody(4.0, 16000, 3), (15, 1)), 16000, "PCM_16")
    soundfile.write(mp3, np.tile(melody(4.0, 44100, 4, 2), (15, 1)), 44100)
    frames = film(640, 360, VIDEO_SECONDS * VIDEO_RATE, 5)
    write_av(video, Fraction(VIDEO_RATE), frames, options={"crf": "23"})
    return cases
