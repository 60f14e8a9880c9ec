"""Encoded videos to frames: MP4, MOV, WebM and MKV, sampled twice a second, and their sound track."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from python_backends.errors import InvalidRequest
from python_backends.messages import FloatArray
from python_backends.preprocess.audio import MIN_SAMPLES, SoundBuilder
from python_backends.preprocess.container import AUDIO_CODECS, VIDEO_CODECS, check_coding, open_container
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.parallel import while_reading
from python_backends.preprocess.processor_config import VideoSettings
from python_backends.preprocess.resize import MAX_ASPECT_RATIO, UInt8Array, scaled_planes
from python_backends.preprocess.timeline import Timeline

ALLOWED = "a complete MP4, MOV, WebM or MKV video"
DEMUXERS = ("mov", "matroska")

PicturePacket: TypeAlias = "av.Packet[VideoStream]"
SoundPacket: TypeAlias = "av.Packet[AudioStream]"


@dataclass(frozen=True, eq=False)
class DecodedVideo:
    """Sampled frames of a video, upright and scaled for the vision encoder, and its sound track if it was asked for."""

    frames: UInt8Array  # [n, 3, h, w]: RGB planes
    seconds_per_grid: float
    duration: float  # of the whole video, in seconds
    sound: FloatArray | None  # [samples] 16 kHz mono; None: not asked for, or there is none


def decode_video(
    data: bytes, field: str, limits: Limits, with_sound: bool, settings: VideoSettings, max_tokens: int
) -> DecodedVideo:
    """Frames of an encoded video, twice a second, and its sound.

    The number n of frames is even and within the settings' bounds. At a constant frame rate, frame
    `floor(i * total / n)` is taken for the i-th; at a variable rate the one that is shown at `i * duration / n`.
    Only sampled frames are kept, each scaled as soon as it is decoded.

    Raises:
        InvalidRequest: no such video, damaged, cut off, too long, too large, or more than `max_tokens` vision tokens.
    """
    with open_container(data, field, DEMUXERS, ALLOWED) as media:
        stream = _picture_track(media, field, limits)
        packets, sound_packets = _read(media, stream, _sound_track(media, field) if with_sound else None)
        timeline = _timeline(stream, packets, field)
        if timeline.duration > limits.max_video_seconds:
            raise InvalidRequest(
                field, f"a video of {timeline.duration:.1f} s", f"at most {limits.max_video_seconds:g} s"
            )
        samples = timeline.sample(settings)
        tokens = settings.tokens(len(samples), stream.height, stream.width)
        if tokens > max_tokens:
            raise InvalidRequest(field, f"{len(samples)} frames, {tokens} tokens", f"at most {max_tokens} tokens")
        shelf = _FrameShelf(samples, field, limits, settings)
        while_reading(_wanted_frames(stream, packets, set(samples)), 1, shelf.put)
        sound = SoundBuilder(field, limits)
        sound.add_packets(sound_packets)
        samples_of_sound = sound.finish()
        return DecodedVideo(
            frames=shelf.filled(),
            seconds_per_grid=settings.seconds_per_grid,
            duration=timeline.duration,
            sound=samples_of_sound if len(samples_of_sound) >= MIN_SAMPLES else None,
        )


def _picture_track(media: InputContainer, field: str, limits: Limits) -> VideoStream:
    if not media.streams.video:
        raise InvalidRequest(field, f"a {media.format.name} file without a picture track", ALLOWED)
    stream = media.streams.video[0]
    check_coding(stream, VIDEO_CODECS, field)
    width, height = stream.width, stream.height
    _check_size(width, height, field, limits)
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise InvalidRequest(field, f"frames of {width}x{height} pixels", f"sides of at most {MAX_ASPECT_RATIO}:1")
    decoder = stream.codec_context
    decoder.thread_count = limits.media_threads
    # The decoder itself keeps to the limit, should the size change on the way, and reports damage instead of hiding it.
    decoder.options = {"max_pixels": str(limits.max_frame_pixels), "err_detect": "explode"}
    return stream


def _check_size(width: int, height: int, field: str, limits: Limits) -> None:
    if not 0 < width * height <= limits.max_frame_pixels:
        raise InvalidRequest(field, f"frames of {width}x{height} pixels", f"1 to {limits.max_frame_pixels} pixels")


def _sound_track(media: InputContainer, field: str) -> AudioStream | None:
    stream = next(iter(media.streams.audio), None)
    if stream is not None:
        check_coding(stream, AUDIO_CODECS, field)
    return stream


def _read(
    media: InputContainer, pictures: VideoStream, sound: AudioStream | None
) -> tuple[list[PicturePacket], list[SoundPacket]]:
    """All packets of the two tracks, still encoded."""
    picture_packets: list[PicturePacket] = []
    sound_packets: list[SoundPacket] = []
    for packet in media.demux(*(track for track in (pictures, sound) if track is not None)):
        if packet.stream_index != pictures.index:
            sound_packets.append(cast(SoundPacket, packet))
        elif packet.size and not packet.is_corrupt:  # the last one of a file that is cut off
            picture_packets.append(cast(PicturePacket, packet))
    return picture_packets, sound_packets


def _timeline(stream: VideoStream, packets: Sequence[PicturePacket], field: str) -> Timeline:
    if len(packets) < stream.frames:
        raise InvalidRequest(field, f"a video that ends after {len(packets)} of {stream.frames} frames", ALLOWED)
    shown = [packet for packet in packets if not _is_hidden(stream, packet)]
    times = [packet.pts for packet in shown if packet.pts is not None]
    if len(times) < len(shown) or stream.time_base is None:
        raise InvalidRequest(field, "a video whose frames have no times", ALLOWED)
    last = max(shown, key=lambda packet: packet.pts or 0, default=None)
    try:
        return Timeline.of(times, (last.duration or 0) if last else 0, stream.time_base, stream.average_rate)
    except ValueError as error:
        raise InvalidRequest(field, f"a video with {error}", ALLOWED) from None


def _is_hidden(stream: VideoStream, packet: PicturePacket) -> bool:
    """Whether a packet is decoded only because others need it: cut by an edit list, or a hidden VP8 reference."""
    return packet.is_discard or (stream.codec_context.name == "vp8" and not bytes(packet)[0] & 0x10)


def _wanted_frames(stream: VideoStream, packets: Sequence[PicturePacket], wanted: set[int]) -> Iterator[av.VideoFrame]:
    """Decode up to the last wanted frame, leaving out what neither is wanted nor refers to by others."""
    decoder = stream.codec_context
    last = max((i for i, packet in enumerate(packets) if packet.pts in wanted), default=-1)
    for packet in packets[: last + 1]:
        if decoder.name == "h264":  # its decoder leaves out non-reference pictures without touching the rest
            decoder.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
        for frame in decoder.decode(packet):
            if frame.pts in wanted:
                yield frame
    for frame in decoder.decode(None):
        if frame.pts in wanted:
            yield frame


class _FrameShelf:
    """Takes decoded frames in any order and puts them, upright and scaled, where they belong."""

    def __init__(self, samples: Sequence[int], field: str, limits: Limits, settings: VideoSettings) -> None:
        self._missing = set(samples)
        self._samples = samples
        self._field = field
        self._limits = limits
        self._settings = settings
        self._reformatter = VideoReformatter()
        self._planes: UInt8Array | None = None

    def put(self, frame: av.VideoFrame) -> None:
        """Scale a frame; frames of a time that was served already are ignored.

        Raises:
            InvalidRequest: the decoder calls the frame damaged, or it is too large.
        """
        if frame.pts not in self._missing:
            return
        if frame.is_corrupt:
            raise InvalidRequest(self._field, f"a damaged frame at {frame.time:.2f} s", ALLOWED)
        _check_size(frame.width, frame.height, self._field, self._limits)
        rgb: UInt8Array = self._reformatter.reformat(frame, format="rgb24").to_ndarray().astype(np.uint8, copy=False)
        quarter_turns = round(frame.rotation / 90) % 4
        if quarter_turns:
            rgb = np.ascontiguousarray(np.rot90(rgb, quarter_turns))
        if self._planes is None:
            size = self._settings.scaled_size(*rgb.shape[:2])
            self._planes = np.empty((len(self._samples), 3, *size), np.uint8)
        planes = scaled_planes(rgb, *self._planes.shape[2:])
        for position, time in enumerate(self._samples):
            if time == frame.pts:
                self._planes[position] = planes
        self._missing.discard(frame.pts)

    def filled(self) -> UInt8Array:
        """The frames [n, 3, h, w].

        Raises:
            InvalidRequest: the decoder gave none for some of them.
        """
        if self._planes is None or self._missing:
            found = f"{len(self._missing)} of {len(set(self._samples))} frames that cannot be decoded"
            raise InvalidRequest(self._field, found, ALLOWED)
        return self._planes
