"""Makes the media files of the parity tests: python tests/parity/make_media.py [FOLDER]

The files are committed; this script documents what is in them. Pictures, sounds and films are drawn from seeds, but
encoders may change from version to version, and the references hold for the committed files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

Rgb = NDArray[np.uint8]
Samples = NDArray[np.float32]

MEDIA = Path(__file__).parent / "media"


def picture(width: int, height: int, seed: int, phase: float = 0.0) -> Rgb:
    """[height, width, 3]: smooth colours, shapes with sharp edges, a little noise and a red corner at the top left."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = random.uniform(2, 9, size=(3, 3))
    channels = [np.sin(a * x + phase) + np.cos(b * y - phase) * np.sin(c * (x + y)) for a, b, c in waves]
    image = 128 + 60 * np.stack(channels, axis=-1)
    for _ in range(6):
        cx, cy, radius = random.uniform(0, 1), random.uniform(0, height / width), random.uniform(0.04, 0.2)
        inside = (x - (cx + 0.2 * np.sin(phase)) % 1) ** 2 + (y - cy) ** 2 < radius**2
        image[inside] = random.uniform(0, 255, 3)
    image += random.normal(0, 4, image.shape)
    image[: height // 8, : width // 8] = (230, 20, 30)
    return np.clip(image, 0, 255).astype(np.uint8)


def melody(seconds: float, rate: int, seed: int, channels: int = 1) -> Samples:
    """[samples, channels]: notes with overtones and vibrato over a hiss that keeps mel bins well above rounding."""
    random = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    sound = np.zeros((len(time), channels))
    for note in range(int(seconds * 4) + 1):
        start, pitch = note / 4, 110 * 2 ** (random.integers(0, 30) / 12)
        envelope = np.where(time >= start, np.exp(-4 * np.maximum(time - start, 0)), 0)
        for overtone in range(1, 6):
            if overtone * pitch < rate * 0.45:
                wave = np.sin(2 * np.pi * overtone * pitch * time + 2 * np.sin(2 * np.pi * 5 * time))
                sound += (envelope * wave * 0.25 / overtone)[:, None] * random.uniform(0.3, 1, channels)
    sound += random.normal(0, 0.01, sound.shape)
    return (0.7 * sound / np.abs(sound).max()).astype(np.float32)


def make_images(folder: Path) -> None:
    def image(width: int, height: int, seed: int) -> Image.Image:
        return Image.fromarray(picture(width, height, seed))

    image(160, 120, 1).save(folder / "photo.jpg", quality=90)
    turned = image(150, 100, 2).transpose(Image.Transpose.ROTATE_90)  # orientation 6 turns it back
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(folder / "turned.jpg", quality=88, exif=exif)
    image(77, 53, 3).convert("L").save(folder / "grey.jpg", quality=85)
    image(110, 110, 4).convert("CMYK").save(folder / "print.jpg", quality=85)
    image(800, 600, 5).save(folder / "large.jpg", quality=55)
    image(96, 96, 6).quantize(32).save(folder / "palette.png", optimize=True)
    alpha = image(120, 90, 7).convert("RGBA")
    alpha.putalpha(Image.fromarray(np.tile(np.linspace(0, 255, 120).astype(np.uint8), (90, 1))))
    alpha.save(folder / "alpha.png", optimize=True)
    depth = (picture(128, 80, 8)[..., 1].astype(np.uint16) << 8) + picture(128, 80, 9)[..., 0]
    Image.fromarray(depth).save(folder / "depth16.png")
    image(640, 40, 10).save(folder / "banner.webp", quality=80)
    image(200, 130, 11).save(folder / "picture.webp", lossless=False, quality=75)
    frames = [image(90, 70, 12).quantize(24), image(90, 70, 13).quantize(24)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:], duration=200)
    image(64, 48, 14).save(folder / "bitmap.bmp")
    image(100, 140, 15).quantize(48).convert("RGB").save(folder / "scan.tiff", compression="tiff_lzw")


def make_sounds(folder: Path) -> None:
    soundfile.write(folder / "second.wav", melody(1.0, 16000, 20), 16000, "PCM_16")
    soundfile.write(folder / "blip.wav", melody(0.05, 16000, 21), 16000, "PCM_16")
    soundfile.write(folder / "phone8.wav", melody(1.337, 8000, 22), 8000, "PCM_U8")
    soundfile.write(folder / "studio24.wav", melody(0.413, 48000, 23, 2), 48000, "PCM_24")
    soundfile.write(folder / "float.wav", melody(0.7037, 22050, 24), 22050, "FLOAT")
    soundfile.write(folder / "disc.wav", melody(0.6, 44100, 25, 2), 44100, "PCM_16")
    soundfile.write(folder / "window.wav", melody(8.0, 8000, 26), 8000, "PCM_U8")
    soundfile.write(folder / "stereo.flac", melody(1.2571, 24000, 27, 2), 24000, "PCM_16")
    soundfile.write(folder / "talk.mp3", melody(3.37, 24000, 28), 24000)
    soundfile.write(folder / "note.ogg", melody(2.213, 32000, 29, 2), 32000, "VORBIS")
    write_av(folder / "long.opus", 0, [], ("libopus", 48000, 24000, melody(17.346, 48000, 30)))
    write_av(folder / "memo.m4a", 0, [], ("aac", 44100, 48000, melody(5.1, 44100, 31, 2)))


Audio = tuple[str, int, int, Samples]  # codec, rate, bits a second, samples


def write_av(
    path: Path,
    rate: Fraction | int,
    frames: Sequence[Rgb],
    sound: Audio | None = None,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    times: Sequence[float] | None = None,
    options: dict[str, str] | None = None,
) -> None:
    """Write a film; `times` (seconds of each frame, and the end) makes the frame rate variable."""
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        streams = []
        if frames:
            video = container.add_stream(codec, rate=rate, options={"threads": "1", **(options or {})})
            video.height, video.width = frames[0].shape[:2]
            video.pix_fmt = pixels
            if times:
                video.codec_context.time_base = Fraction(1, 1000)
            streams.append((video, _video_frames(frames, rate, times)))
        if sound:
            audio_codec, samples_rate, bits, samples = sound
            audio = container.add_stream(audio_codec, rate=samples_rate)
            audio.bit_rate = bits
            audio.layout = "stereo" if samples.shape[1] == 2 else "mono"
            streams.append((audio, _audio_frames(samples, samples_rate, audio.layout.name)))
        for stream, source in streams:
            for frame in source:
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


def _video_frames(
    frames: Sequence[Rgb], rate: Fraction | int, times: Sequence[float] | None
) -> Iterator[av.VideoFrame]:
    for index, pixels in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
        if times:
            frame.pts, frame.time_base = round(times[index] * 1000), Fraction(1, 1000)
            frame.duration = round((times[index + 1] - times[index]) * 1000)
        else:
            frame.pts, frame.time_base = index, 1 / Fraction(rate)
        yield frame


def _audio_frames(samples: Samples, rate: int, layout: str) -> Iterator[av.AudioFrame]:
    for start in range(0, len(samples), 960):
        piece = np.ascontiguousarray(samples[start : start + 960].reshape(1, -1))
        frame = av.AudioFrame.from_ndarray(piece, format="flt", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        yield frame


def film(width: int, height: int, count: int, seed: int) -> list[Rgb]:
    """Frames in which the shapes and colours move."""
    return [picture(width, height, seed, phase=index * 2.2 / count) for index in range(count)]


def turn_film(path: Path) -> None:
    """Write a quarter turn clockwise into the track header of an MP4 file, as telephones do."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    quarter = (0, 0x10000, 0, 0xFFFF0000, 0, 0, 0, 0, 0x40000000)
    data[at : at + 36] = b"".join(value.to_bytes(4, "big") for value in quarter)
    path.write_bytes(data)


def make_films(folder: Path) -> None:
    crisp = {"crf": "30"}
    vp9 = {"crf": "40", "b": "0", "cpu-used": "4"}
    write_av(folder / "clip.mp4", 24, film(128, 96, 72, 40), options=crisp)
    write_av(
        folder / "talking.mp4",
        20,
        film(160, 112, 84, 41),
        ("aac", 44100, 64000, melody(4.2, 44100, 42, 2)),
        options=crisp,
    )
    write_av(
        folder / "web.webm",
        25,
        film(112, 80, 64, 43),
        ("libopus", 48000, 32000, melody(2.55, 48000, 44)),
        codec="libvpx-vp9",
        options=vp9,
    )
    write_av(folder / "odd.mkv", 15, film(101, 77, 45, 45), codec="libx264", pixels="yuv444p", options=crisp)
    write_av(
        folder / "camera.mov",
        30,
        film(96, 144, 63, 46),
        ("pcm_s16le", 16000, 256000, melody(2.1, 16000, 47)),
        options=crisp,
    )
    write_av(folder / "odd.webm", Fraction(30000, 1001), film(99, 63, 50, 48), codec="libvpx-vp9", options=vp9)
    write_av(folder / "short.mp4", 24, film(96, 96, 12, 49), options=crisp)
    write_av(
        folder / "lecture.mkv",
        5,
        film(64, 64, 55, 50),
        ("libmp3lame", 22050, 32000, melody(11.0, 22050, 51)),
        options=crisp,
    )
    times = [0, 0.2, 0.3, 0.5, 0.9, 1.0, 1.4, 1.5, 2.0, 2.05, 2.1, 2.6, 2.65, 3.3, 3.7]
    write_av(folder / "variable.mp4", 30, film(120, 88, len(times) - 1, 52), times=times, options=crisp | {"bf": "0"})
    write_av(folder / "turned.mp4", 24, film(144, 96, 60, 53), options=crisp)
    turn_film(folder / "turned.mp4")


def main() -> None:
    """Make every file and say how large the folder is."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else MEDIA
    folder.mkdir(parents=True, exist_ok=True)
    for part in (make_images, make_sounds, make_films):
        part(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:8d} {path.name}")
    print(f"{sum(path.stat().st_size for path in folder.iterdir()):8d} in all")


if __name__ == "__main__":
    main()
