"""Encoded sounds become 16 kHz mono samples, or an error that says what was found."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from python_backends.errors import InvalidRequest
from python_backends.preprocess.audio import decode_audio
from python_backends.preprocess.limits import Limits
from tests.unit.media_samples import film, numbered_frames, pcm16, tone, wav, written
from tests.unit.test_image import mutated

LIMITS = Limits(max_audio_seconds=30.0)
STEREO = np.stack([tone(0.5, 44100), tone(0.5, 44100, pitch=700.0) * 0.3], axis=1)


def decode(data: bytes, limits: Limits = LIMITS) -> NDArray[np.float32]:
    return decode_audio(data, "audio[0]", limits)


def reference(data: bytes) -> NDArray[np.float32]:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return np.asarray(soxr.resample(samples.mean(axis=1), rate, 16000), np.float32)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW"])
@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64"])
def test_a_wav_of_any_sample_width_gives_its_samples(kind: str, subtype: str) -> None:
    data = written(STEREO, 44100, kind, subtype)
    samples = decode(data)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, reference(data), atol=1e-6)


@pytest.mark.parametrize("subtype", ["IMA_ADPCM", "MS_ADPCM"])
def test_a_wav_with_compressed_samples_is_decoded(subtype: str) -> None:
    data = written(STEREO[:, 0], 44100, "WAV", subtype)
    assert np.abs(decode(data)[:7000] - reference(data)[:7000]).max() < 1e-3


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 32000, 48000, 96000, 192000])
def test_any_rate_becomes_16_khz(rate: int) -> None:
    data = written(tone(0.3, rate), rate, "WAV")
    np.testing.assert_allclose(decode(data), reference(data), atol=1e-6)
    assert abs(len(decode(data)) - 4800) <= 1


@pytest.mark.parametrize(
    ("kind", "subtype"), [("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("MP3", None), ("OGG", "VORBIS")]
)
def test_compressed_sounds_equal_what_libsndfile_decodes(kind: str, subtype: str | None) -> None:
    data = written(STEREO, 44100, kind, subtype)
    np.testing.assert_allclose(decode(data), reference(data), atol=1e-5)


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_sound_of_any_length_ends_where_it_was_ended(subtype: str, seconds: float) -> None:
    rate = 48000 if subtype == "OPUS" else 44100
    samples = decode(written(tone(seconds, rate), rate, "OGG", subtype))
    assert abs(len(samples) - 16000 * seconds) <= 1


def test_opus_in_ogg_and_aac_in_m4a_sound_like_the_original() -> None:
    for data in (written(tone(1.0, 48000), 48000, "OGG", "OPUS"), film(numbered_frames(10), sound=tone(1.0, 16000))):
        samples = decode(data)
        pitch = np.abs(np.fft.rfft(samples[:16000] * np.hanning(16000))).argmax()
        assert abs(pitch - 440) <= 1
        assert np.abs(samples).max() == pytest.approx(0.5, abs=0.05)


def test_channels_are_averaged() -> None:
    left, right = tone(0.2, 16000), np.zeros(3200, np.float32)
    data = written(np.stack([left, right, right], axis=1), 16000, "WAV", "FLOAT")
    np.testing.assert_allclose(decode(data), left / 3, atol=1e-6)


def test_full_scale_is_one() -> None:
    loud = np.array([-32768, 32767] * 500, "<i2")
    samples = decode(wav(loud.tobytes()))
    assert samples.min() == -1.0
    assert samples.max() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("claimed", [0, 7, 10**6, 0xFFFFFFFF])
def test_a_wav_is_taken_as_far_as_it_goes(claimed: int) -> None:
    samples = decode(wav(pcm16(tone(0.1, 16000)) * 3 + b"\0", claimed=claimed)) if claimed != 7 else None
    if samples is None:  # a header that claims less is believed
        with pytest.raises(InvalidRequest, match=r"a sound of 0\.2 ms; allowed: at least 12\.6 ms"):
            decode(wav(pcm16(tone(0.1, 16000)), claimed=claimed))
    else:
        assert len(samples) == 4800


def test_other_chunks_of_a_wav_are_passed_over() -> None:
    plain = wav(pcm16(tone(0.1, 16000)))
    listed = plain[:12] + struct.pack("<4sI", b"LIST", 5) + b"abcde\0" + plain[12:]
    assert np.array_equal(decode(listed), decode(plain))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes"),
        (b"some text that is no sound\n" * 40, "cannot be decoded"),
        (b"RIFF\x24\0\0\0WAVE", "cannot be decoded"),
        (wav(b""), r"a sound of 0\.0 ms"),
        (wav(pcm16(tone(0.012, 16000))), r"a sound of 12\.0 ms; allowed: at least 12\.6 ms"),
        (wav(bytes(4000), rate=1), "a sound of 2000.0 s; allowed: at most 30 s"),
        (wav(bytes(400_000), rate=0xFFFFFFFF), "a sampling rate of 4294967295 Hz; allowed: 2000 to 384000 Hz"),
        (wav(bytes(4000), rate=0), "a sampling rate of 0 Hz|cannot be decoded|a sound of 2000"),
        (wav(bytes(4000), channels=0), r"a sound of 0\.0 ms|cannot be decoded"),
        (wav(bytes(4000), coding=0x1234), r"a sound of 0\.0 ms|in the coding|cannot be decoded"),
        (wav(np.full(4000, np.nan, "<f4").tobytes(), coding=3, bits=32), "samples as large as nan"),
        (wav(np.full(4000, np.inf, "<f8").tobytes(), coding=3, bits=64), "samples as large as inf"),
        (wav(np.full(4000, 1e300, "<f8").tobytes(), coding=3, bits=64), "samples as large as inf"),
        (wav(np.full(4000, 30000, "<f4").tobytes(), coding=3, bits=32), "samples as large as 30000"),
    ],
)
def test_sounds_that_make_no_sense_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^audio\[0\]: .*({found})"):
        decode(data)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3", "OGG"])
def test_a_long_silence_is_refused(kind: str) -> None:
    data = written(np.zeros(31 * 16000, np.float32), 16000, kind)
    with pytest.raises(InvalidRequest, match=r"audio\[0\]: a sound of 3[01]\.\d s; allowed: at most 30 s"):
        decode(data)


def test_a_header_that_claims_a_short_sound_does_not_get_a_long_one_through() -> None:
    data = bytearray(written(np.zeros(31 * 16000, np.float32), 16000, "FLAC"))
    assert data[4] & 0x7F == 0  # the stream information comes first: its total of samples is 36 bits
    data[8 + 13] &= 0xF0
    data[8 + 14 : 8 + 18] = struct.pack(">I", 1000)
    with pytest.raises(InvalidRequest, match="at most 30 s"):
        decode(bytes(data))


def test_a_film_without_a_sound_track_is_no_sound() -> None:
    with pytest.raises(InvalidRequest, match=r"audio\[0\]: a .*mp4.* file without a sound track"):
        decode(film(numbered_frames(5)))


@pytest.mark.parametrize("kind", ["FLAC", "MP3", "OGG"])
def test_a_compressed_sound_that_is_cut_off_is_taken_as_far_as_it_goes(kind: str) -> None:
    noise = np.random.default_rng(0).standard_normal(32000).astype(np.float32) * 0.1
    data = written(noise, 16000, kind)
    samples = decode(data[: len(data) * 3 // 4])
    assert 4000 < len(samples) < 32000
    assert np.abs(samples).max() < 1.1


@pytest.mark.parametrize("name", ["/etc/hostname", "http://127.0.0.1:9/x.mp3"])
def test_a_playlist_opens_no_other_file(name: str) -> None:
    playlists = (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{name}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{name}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        f'<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><BaseURL>{name}</BaseURL></Period></MPD>',
    )
    for playlist in playlists:
        with pytest.raises(InvalidRequest, match="cannot be decoded"):
            decode(playlist.encode())


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"RIFF\xff\0\0\0WAVEfmt ", b"fLaC", b"OggS", b"ID3", b"\xff\xfb\x90", b"\xff\xf1"]),
)
def test_random_bytes_never_raise_anything_else(data: bytes, head: bytes) -> None:
    survives(head + data)


SOUNDS = {kind: written(tone(0.2, 16000), 16000, kind) for kind in ("WAV", "FLAC", "MP3", "OGG")}
SOUNDS["M4A"] = film(numbered_frames(2), sound=tone(0.2, 16000))


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(sorted(SOUNDS)), st.data())
def test_mutated_sounds_never_raise_anything_else(kind: str, draw: st.DataObject) -> None:
    survives(mutated(SOUNDS[kind], draw))


def survives(data: bytes) -> None:
    try:
        samples = decode(data)
    except InvalidRequest as error:
        assert str(error).startswith("audio[0]: ")
    else:
        assert samples.dtype == np.float32
        assert np.isfinite(samples).all()
