"""Encoded sounds to samples: WAV, FLAC, MP3, OGG (Opus, Vorbis), M4A and AAC, and the sound in WebM and MKV."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import av
import numpy as np
import soundfile
import soxr
from av.audio.stream import AudioStream
from av.error import FFmpegError

from python_backends.errors import InvalidRequest
from python_backends.messages import FloatArray
from python_backends.preprocess.container import AUDIO_CODECS, check_coding, open_container
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.wav import find_wav, mix

SAMPLE_RATE = 16000
MIN_SAMPLES = 201  # the first mel window is mirrored at the sound's start, which takes more than half a window
ALLOWED = "a WAV, FLAC, MP3, OGG (Opus or Vorbis), M4A or AAC sound"
DEMUXERS = ("wav", "flac", "mp3", "ogg", "mov", "matroska", "aac")

_RATES = range(2000, 384001)
_LOUDEST = 8.0  # float samples may leave full scale a little; what is far outside was never meant as -1..1
_BLOCK = 1 << 16

# FFmpeg's sample formats, planar ("p") or not: the type of a sample, the factor to full scale and what is then added.
_SAMPLES: dict[str, tuple[str, float, float]] = {
    "u8": ("u1", 1.0 / 2**7, -1.0),
    "s16": ("i2", 1.0 / 2**15, 0.0),
    "s32": ("i4", 1.0 / 2**31, 0.0),
    "flt": ("f4", 1.0, 0.0),
    "dbl": ("f8", 1.0, 0.0),
}


def decode_audio(data: bytes, field: str, limits: Limits) -> FloatArray:
    """Samples of an encoded sound, float32 [samples], 16 kHz, mono (mean of the channels), full scale -1..1.

    A file that is cut off is taken as far as it goes.

    Raises:
        InvalidRequest: no such sound, damaged, no samples, too long, or a sampling rate out of all reason.
    """
    sound = SoundBuilder(field, limits)
    wav = find_wav(data)
    if wav is not None:
        sound.expect(wav.frames / max(wav.rate, 1))
        for block in wav.mono_blocks(data):
            sound.add(block, wav.rate)
    elif data[:4] == b"OggS" and b"\x01vorbis" in data[:64]:
        _decode_vorbis(data, field, sound)
    else:
        _decode_with_ffmpeg(data, field, sound)
    samples = sound.finish()
    if len(samples) < MIN_SAMPLES:
        found = f"a sound of {1000 * len(samples) / SAMPLE_RATE:.1f} ms"
        raise InvalidRequest(field, found, f"at least {1000 * MIN_SAMPLES / SAMPLE_RATE:.1f} ms")
    return samples


def _decode_vorbis(data: bytes, field: str, sound: SoundBuilder) -> None:
    """With libsndfile: FFmpeg cuts the end of short Ogg Vorbis files at the wrong place."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
                sound.add(mix(list(block.T), 1.0, 0.0), file.samplerate)
    except soundfile.LibsndfileError as error:
        raise InvalidRequest(field, f"data that cannot be decoded ({error.error_string})", ALLOWED) from error


def _decode_with_ffmpeg(data: bytes, field: str, sound: SoundBuilder) -> None:
    with open_container(data, field, DEMUXERS, ALLOWED) as media:
        if not media.streams.audio:
            raise InvalidRequest(field, f"a {media.format.name} file without a sound track", ALLOWED)
        stream = media.streams.audio[0]
        check_coding(stream, AUDIO_CODECS, field)
        if stream.duration and stream.time_base and media.format.name not in ("mp3", "aac"):  # those are estimates
            sound.expect(float(stream.duration * stream.time_base))
        sound.add_packets(media.demux(stream))


class SoundBuilder:
    """Collects a sound block by block, resampling on the way, so that memory is bounded by the length limit."""

    def __init__(self, field: str, limits: Limits) -> None:
        self._field = field
        self._max_seconds = limits.max_audio_seconds
        self._rate = 0
        self._resampler: soxr.ResampleStream | None = None
        self._waiting: list[FloatArray] = []
        self._waiting_samples = 0
        self._samples = 0
        self._done: list[FloatArray] = []

    def expect(self, seconds: float) -> None:
        """Say how long the sound will be, if a header tells.

        Raises:
            InvalidRequest: too long.
        """
        if seconds > self._max_seconds:
            raise InvalidRequest(self._field, f"a sound of {seconds:.1f} s", f"at most {self._max_seconds:g} s")

    def add_packets(self, packets: Iterable[av.Packet[AudioStream]]) -> None:
        """Decode packets of one sound track and add them. An error at the very end is taken as the end.

        Raises:
            InvalidRequest: damage before the end, or as `add`.
        """
        error: Exception | None = None
        for packet in packets:
            try:
                frames = packet.decode()
            except FFmpegError as found:
                error = found
                continue
            for frame in frames:
                if error is not None:
                    raise InvalidRequest(self._field, f"damage after {self._seconds():.1f} s ({error})", ALLOWED)
                self.add(_mono(frame), frame.sample_rate)

    def add(self, mono: FloatArray, rate: int) -> None:
        """Add samples at `rate` Hz.

        Raises:
            InvalidRequest: too long, an absurd or changing rate, or samples that are no numbers near -1..1.
        """
        if rate != self._rate:
            self._start(rate)
        self._samples += len(mono)
        self.expect(self._seconds())
        self._waiting.append(mono)
        self._waiting_samples += len(mono)
        if self._waiting_samples >= _BLOCK:
            self._flush(last=False)

    def finish(self) -> FloatArray:
        """The whole sound, float32 [samples]; empty if there was none."""
        self._flush(last=True)
        return np.concatenate(self._done)

    def _seconds(self) -> float:
        return self._samples / max(self._rate, 1)

    def _start(self, rate: int) -> None:
        if self._rate:
            raise InvalidRequest(self._field, f"a sampling rate that changes to {rate} Hz", "one rate")
        if rate not in _RATES:
            raise InvalidRequest(self._field, f"a sampling rate of {rate} Hz", f"{_RATES[0]} to {_RATES[-1]} Hz")
        self._rate = rate
        if rate != SAMPLE_RATE:
            self._resampler = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")

    def _flush(self, last: bool) -> None:
        block = np.concatenate(self._waiting) if self._waiting else np.empty(0, np.float32)
        self._waiting, self._waiting_samples = [], 0
        if len(block):
            loudest = float(np.abs(block).max())
            if not loudest <= _LOUDEST:  # also true of NaN
                raise InvalidRequest(self._field, f"samples as large as {loudest:g}", "finite samples around -1..1")
        if self._resampler is not None:
            block = self._resampler.resample_chunk(block, last=last)
        self._done.append(block)


def _mono(frame: av.AudioFrame) -> FloatArray:
    kind, scale, shift = _SAMPLES[frame.format.name.removesuffix("p")]
    channels = frame.layout.nb_channels
    planes: tuple[Any, ...] = frame.planes  # buffers, which PyAV's types do not tell
    if frame.format.is_planar:
        return mix([np.frombuffer(plane, kind, frame.samples) for plane in planes], scale, shift)
    values = np.frombuffer(planes[0], kind, frame.samples * channels)
    return mix(list(values.reshape(frame.samples, channels).T), scale, shift)
