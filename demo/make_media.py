"""Makes the demo's media: python -m demo.make_media. The files are in the repository; this is how they came to be."""

from __future__ import annotations

import io
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

MEDIA = Path(__file__).parent / "media"
SAMPLE_RATE = 16_000


def picture(ball_x: int = 96) -> Image.Image:
    """A red ball and a blue square on a light ground, 256 x 192."""
    image = Image.new("RGB", (256, 192), (236, 233, 225))
    draw = ImageDraw.Draw(image)
    draw.rectangle((168, 104, 232, 168), fill=(40, 80, 200))
    draw.ellipse((ball_x - 40, 24, ball_x + 40, 104), fill=(210, 40, 40))
    return image


def beeps(seconds: float = 2.0) -> NDArray[np.int16]:
    """A low beep, then a high one, int16 mono at 16 kHz."""
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    low = np.sin(2 * np.pi * 440 * time) * ((time > 0.2) & (time < 0.7))
    high = np.sin(2 * np.pi * 880 * time) * ((time > 1.1) & (time < 1.6))
    return np.asarray((low + high) * 0.4 * 32767, dtype=np.int16)


def wav(samples: NDArray[np.int16]) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def video(seconds: float = 2.0, fps: int = 12) -> bytes:
    """The ball rolls from left to right while the beeps sound; H.264 and AAC in MP4."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 256, 192, "yuv420p"
        sound = container.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
        for index in range(int(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture(48 + 7 * index)), format="rgb24")
            container.mux(stream.encode(frame))
        samples = av.AudioFrame.from_ndarray(beeps(seconds)[None], format="s16", layout="mono")
        samples.sample_rate, samples.time_base, samples.pts = SAMPLE_RATE, Fraction(1, SAMPLE_RATE), 0
        container.mux(sound.encode(samples))
        container.mux(stream.encode(None))
        container.mux(sound.encode(None))
    return buffer.getvalue()


def main() -> None:
    MEDIA.mkdir(exist_ok=True)
    picture().save(MEDIA / "shapes.jpg", quality=90)
    (MEDIA / "beeps.wav").write_bytes(wav(beeps()))
    (MEDIA / "rolling_ball.mp4").write_bytes(video())


if __name__ == "__main__":
    main()
