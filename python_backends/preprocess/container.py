"""Opening media containers from memory with FFmpeg, so that nothing but the given bytes can be read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import av
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Stream

from python_backends.errors import InvalidRequest

# Decoders by FFmpeg's names. What is not here cannot be reached by a file that claims to need it.
AUDIO_CODECS = (
    *("aac", "alac", "flac", "mp3", "mp3float", "opus", "libopus", "vorbis", "ac3", "eac3"),
    *("pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be"),
    *("pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be"),
    *("adpcm_ms", "adpcm_ima_wav", "adpcm_ima_qt", "gsm_ms"),
)
VIDEO_CODECS = ("h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "mpeg4", "mjpeg", "prores")


@contextmanager
def open_container(data: bytes, field: str, demuxers: Sequence[str], allowed: str) -> Iterator[InputContainer]:
    """An open container, closed when the block ends. FFmpeg's errors inside the block become `InvalidRequest`.

    Only the named demuxers may run (playlists and the like would open other files), and a second file is never opened.

    Raises:
        InvalidRequest: empty or unknown data, or damage that FFmpeg reports; `allowed` says what may be sent.
    """
    if not data:
        raise InvalidRequest(field, "0 bytes", allowed)
    options = {
        "format_whitelist": ",".join(demuxers),
        "codec_whitelist": ",".join(AUDIO_CODECS + VIDEO_CODECS),
        "protocol_whitelist": "",
    }
    try:
        with av.open(io.BytesIO(data), mode="r", options=options, io_open=_refuse, metadata_errors="replace") as media:
            yield media
    except (FFmpegError, ValueError) as error:  # PyAV's own checks raise plain ValueErrors
        raise InvalidRequest(field, f"data that cannot be decoded ({_reason(error)})", allowed) from error


def check_coding(stream: Stream, codecs: Sequence[str], field: str) -> None:
    """Refuse a track that none of `codecs` decodes.

    Raises:
        InvalidRequest: it names the coding, if that is known at all.
    """
    name = stream.codec_context.name if stream.codec_context is not None else "unknown"
    if name not in codecs:
        raise InvalidRequest(field, f"a {stream.type} track in the coding {name}", f"one of {', '.join(codecs)}")


def _refuse(*_: Any) -> NoReturn:
    raise PermissionError("a media file must not name other files")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0][:120]
