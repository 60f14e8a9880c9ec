"""Media parts of a request → patches and mel features, several parts at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from python_backends.errors import RequestCancelled
from python_backends.messages import FloatArray
from python_backends.preprocess.audio import decode_audio
from python_backends.preprocess.chat import MediaKind, MediaPart
from python_backends.preprocess.image import decode_image
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.mel import MelExtractor
from python_backends.preprocess.patches import PatchMaker
from python_backends.preprocess.processor_config import ProcessorConfig
from python_backends.preprocess.video import decode_video

_POLL_SECONDS = 0.05  # how often a waiting request looks whether it was cancelled


@dataclass(frozen=True, eq=False)
class Vision:
    """An image or a video for the vision encoder."""

    pixel_values: FloatArray  # [t*h*w, patch values]
    grid: tuple[int, int, int]  # t, h, w in patches
    key: str


@dataclass(frozen=True, eq=False)
class Sound:
    """A sound for the audio encoder."""

    features: FloatArray  # [frames, mel bins]
    key: str


@dataclass(frozen=True, eq=False)
class Medium:
    """What a media part became. A video with a sound track has both; `times_ms` are decoding and features."""

    kind: MediaKind
    vision: Vision | None
    sound: Sound | None
    times_ms: tuple[float, float]


class MediaReader:
    """Decodes media and makes the encoders' inputs of them. Thread-safe."""

    def __init__(self, config: ProcessorConfig, limits: Limits) -> None:
        self._config = config
        self._limits = limits
        self._patches = PatchMaker(config, limits.media_threads)
        self._mel = MelExtractor(config.mel, limits.media_threads)
        self._pool = ThreadPoolExecutor(limits.media_threads, thread_name_prefix="preprocess")

    def read(
        self, parts: Sequence[MediaPart], with_sound: bool, room: int, is_cancelled: Callable[[], bool]
    ) -> list[Medium]:
        """One `Medium` for each part, in order. The same bytes mentioned twice are read once.

        Args:
            parts: the media of one request.
            with_sound: read the sound tracks of videos too.
            room: a video of more tokens is refused before it is decoded.
            is_cancelled: asked until all is read.

        Raises:
            InvalidRequest: a part cannot be decoded, or is over a limit.
            RequestCancelled: `is_cancelled` said so. Parts that have not begun are dropped.
        """
        jobs: dict[tuple[MediaKind, str], Future[Medium]] = {}
        order = []
        for part in parts:
            content = hashlib.sha256(part.data).hexdigest()
            identity = (part.kind, content)
            order.append(identity)
            if identity not in jobs:
                jobs[identity] = self._pool.submit(self._read, part, content, with_sound, room)
        try:
            waiting = list(jobs.values())
            while waiting:
                if is_cancelled():
                    raise RequestCancelled("cancelled while its media were read")
                if wait(waiting[:1], _POLL_SECONDS).done:
                    waiting.pop(0).result()
            return [jobs[identity].result() for identity in order]
        finally:
            for job in jobs.values():
                job.cancel()

    def close(self) -> None:
        """End the threads; what they are reading is finished first."""
        self._pool.shutdown(cancel_futures=True)

    def _read(self, part: MediaPart, content: str, with_sound: bool, room: int) -> Medium:
        started = time.perf_counter()
        if part.kind is MediaKind.IMAGE:
            rgb = decode_image(part.data, part.field, self._limits)
            decoded = time.perf_counter()
            patches = self._patches.image(rgb)
            vision = Vision(patches.pixel_values, patches.grid, _key(part.kind, content, self._config.image))
            return Medium(part.kind, vision, None, _milliseconds(started, decoded))
        if part.kind is MediaKind.AUDIO:
            samples = decode_audio(part.data, part.field, self._limits)
            decoded = time.perf_counter()
            sound = Sound(self._mel.features(samples), _key(part.kind, content, self._config.mel))
            return Medium(part.kind, None, sound, _milliseconds(started, decoded))
        video = decode_video(part.data, part.field, self._limits, with_sound, self._config.video, room)
        decoded = time.perf_counter()
        patches = self._patches.video(video.frames)
        vision = Vision(patches.pixel_values, patches.grid, _key(part.kind, content, self._config.video))
        track = None
        if video.sound is not None:
            track = Sound(self._mel.features(video.sound), _key(part.kind, content, self._config.mel))
        return Medium(part.kind, vision, track, _milliseconds(started, decoded))


def _key(kind: MediaKind, content: str, options: object) -> str:
    """Names what an encoder makes of a part: a video's sound track has another key than its pictures."""
    return hashlib.sha256(f"{kind.value} {content} {options!r}".encode()).hexdigest()


def _milliseconds(started: float, decoded: float) -> tuple[float, float]:
    return (decoded - started) * 1e3, (time.perf_counter() - decoded) * 1e3
