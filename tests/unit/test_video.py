"""Encoded films become sampled, upright, scaled frames and their sound, or an error that says what was found."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.timeline import Timeline
from python_backends.preprocess.video import DecodedVideo, decode_video
from tests.unit.media_samples import CONFIG, film, index_first, numbered_frames, picture, quarter_turn, tone
from tests.unit.test_image import mutated

LIMITS = Limits(max_video_seconds=20.0, max_frame_pixels=1_000_000)


def decode(data: bytes, limits: Limits = LIMITS, with_sound: bool = False, max_tokens: int = 10_000) -> DecodedVideo:
    return decode_video(data, "video[0]", limits, with_sound, CONFIG.video, max_tokens)


def taken(video: DecodedVideo) -> list[int]:
    """Which of the numbered frames were taken."""
    return [round(float(frame.mean()) / 4) for frame in video.frames]


CONTAINERS = [
    ("mp4", "libx264"),
    ("mov", "libx264"),
    ("matroska", "libx264"),
    ("webm", "libvpx-vp9"),
    ("webm", "libvpx"),
    ("mp4", "libx265"),
]


@pytest.mark.parametrize(("container", "codec"), CONTAINERS)
def test_two_frames_a_second_are_taken(container: str, codec: str) -> None:
    video = decode(film(numbered_frames(40), 10, container=container, codec=codec))
    assert taken(video) == [0, 5, 10, 15, 20, 25, 30, 35]
    assert video.duration == pytest.approx(4.0, abs=0.01)
    assert video.seconds_per_grid == 1.0
    assert video.sound is None
    assert video.frames.dtype == np.uint8
    assert video.frames.shape == (8, 3, *CONFIG.video.scaled_size(64, 96))


@pytest.mark.parametrize(
    ("count", "rate", "expected"),
    [
        (60, 24, [0, 15, 30, 45]),
        (50, 24, [0, 12, 25, 37]),
        (5, 30, [0, 1, 2, 3]),
        (7, 1, [0, 1, 2, 3, 4, 5]),
        (3, 10, [0, 1]),
        (1, 10, [0, 0]),
        (60, Fraction(30000, 1001), [0, 15, 30, 45]),
    ],
)
def test_of_a_constant_rate_frame_floor_i_total_over_n_is_taken(
    count: int, rate: Fraction | int, expected: list[int]
) -> None:
    assert taken(decode(film(numbered_frames(count), rate))) == expected


def test_of_a_variable_rate_the_frame_that_is_shown_is_taken() -> None:
    times = [0, 100, 200, 1900, 2000, 2900, 3000, 3900]
    video = decode(film(numbered_frames(8), 10, container="matroska", times=times))
    moments = [1000 * video.duration * index / 8 for index in range(len(video.frames))]
    assert taken(video) == [max(i for i, time in enumerate(times) if time <= moment) for moment in moments]


def test_a_slide_that_stays_is_taken_again() -> None:
    video = decode(film(numbered_frames(3), 10, container="matroska", times=[0, 5000, 5100]))
    assert taken(video)[:10] == [0] * 10


def test_a_film_with_rotation_is_turned_upright() -> None:
    lying = np.zeros((64, 96, 3), np.uint8)
    lying[:, :48] = 200  # bright on the left, which a clockwise quarter turn puts on top
    video = decode(quarter_turn(film([lying] * 10)))
    frame = video.frames[0]
    assert frame.shape[1:] == CONFIG.video.scaled_size(96, 64)
    assert frame[:, : frame.shape[1] // 3].mean() > 180
    assert frame[:, -frame.shape[1] // 3 :].mean() < 20


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv444p"])
def test_frames_are_those_that_were_encoded(pixels: str) -> None:
    width, height = (322, 242) if pixels == "yuv420p" else (321, 243)
    picked = decode(film([picture(width, height)] * 10, pixels=pixels)).frames[0]
    grown = picked.transpose(1, 2, 0).astype(float)
    rows = np.linspace(0, picked.shape[1] - 1, height).round().astype(int)
    columns = np.linspace(0, picked.shape[2] - 1, width).round().astype(int)
    assert np.abs(grown[rows][:, columns] - picture(width, height)).mean() < 10


@pytest.mark.parametrize("container", ["mp4", "webm", "matroska"])
def test_the_sound_track_is_given_at_16_khz_when_asked_for(container: str) -> None:
    codec = "libvpx" if container == "webm" else "libx264"
    data = film(numbered_frames(20), container=container, codec=codec, sound=tone(2.0, 16000))
    assert decode(data).sound is None
    sound = decode(data, with_sound=True).sound
    assert sound is not None
    assert abs(len(sound) - 32000) < 2100  # encoders pad at the ends
    assert abs(int(np.abs(np.fft.rfft(sound[:16000])).argmax()) - 440) <= 1


def test_a_film_without_a_sound_track_is_simply_a_film() -> None:
    assert decode(film(numbered_frames(10)), with_sound=True).sound is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes"),
        (b"some text that is no film\n" * 40, "cannot be decoded"),
        (film(numbered_frames(10))[:-300], "cannot be decoded|that ends after 0 of 10 frames"),
        (film(numbered_frames(300, 32, 32), 10), r"a video of 30\.0 s; allowed: at most 20 s"),
        (film([np.zeros((2, 402, 3), np.uint8)] * 4), "frames of 402x2 pixels; allowed: sides of at most 200:1"),
        (film([np.zeros((1008, 1008, 3), np.uint8)] * 2, codec="mpeg4"), "frames of 1008x1008 pixels"),
    ],
)
def test_films_that_cannot_be_served_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"video\[0\]: .*({found})"):
        decode(data)


def test_a_film_without_its_index_is_refused() -> None:
    data = film(numbered_frames(20))
    with pytest.raises(InvalidRequest, match=r"video\[0\]: data that cannot be decoded"):
        decode(data[: data.index(b"moov") - 4])


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_film_that_is_cut_off_behind_its_index_is_refused(part: float) -> None:
    data = index_first(film([picture(96, 64, seed) for seed in range(20)]))
    assert len(decode(data).frames) == 4
    with pytest.raises(InvalidRequest, match=r"video\[0\]: a video that ends after \d+ of 20 frames"):
        decode(data[: int(len(data) * part)])


def test_damage_in_the_middle_is_refused() -> None:
    data = film([picture(96, 64, seed) for seed in range(20)])
    start = data.index(b"mdat") + 4
    broken = bytearray(data)
    for place in range(start + 900, len(data) * 3 // 4, 40):
        broken[place] ^= 0x55
    with pytest.raises(InvalidRequest, match=r"video\[0\]"):
        decode(bytes(broken))


def test_a_coding_that_is_not_on_the_list_is_refused() -> None:
    data = film([picture(64, 64)] * 4, container="matroska", codec="ffv1")
    with pytest.raises(InvalidRequest, match=r"video\[0\]: .*(ffv1|cannot be decoded)"):
        decode(data)


def test_a_sound_file_is_no_film() -> None:
    data = film(numbered_frames(2), container="matroska", sound=tone(0.5, 16000))
    assert len(decode(data).frames) == 2
    with pytest.raises(InvalidRequest, match=r"video\[0\]"):
        decode(Path(__file__).read_bytes())


def test_more_tokens_than_there_is_room_for_are_refused_before_decoding() -> None:
    data = film(numbered_frames(40))
    tokens = CONFIG.video.tokens(8, 64, 96)
    assert len(decode(data, max_tokens=tokens).frames) == 8
    with pytest.raises(InvalidRequest, match=rf"video\[0\]: 8 frames, {tokens} tokens; allowed: at most {tokens - 1}"):
        decode(data, max_tokens=tokens - 1)


@pytest.mark.parametrize(
    "text", ["#EXTM3U\n#EXTINF:9,\n/etc/hostname\n", "ffconcat version 1.0\nfile '/etc/hostname'\n"]
)
def test_a_playlist_opens_no_other_file(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be decoded"):
        decode(text.encode())


def test_nothing_is_left_open_after_good_and_bad_films() -> None:
    good = film(numbered_frames(20), sound=tone(2.0, 16000))
    bad = [good[:-300], b"text", good[: len(good) // 2]]
    decode(good, with_sound=True)
    gc.collect()
    process = psutil.Process()
    files, threads = process.num_fds(), threading.active_count()
    for data in [good, *bad] * 5:
        with contextlib.suppress(InvalidRequest):
            decode(data, with_sound=True)
    gc.collect()
    assert process.num_fds() == files
    assert threading.active_count() == threads


def timeline(times: list[int], last: int = 0, nominal: Fraction | None = None) -> Timeline:
    return Timeline.of(times, last, Fraction(1, 1000), nominal)


def test_times_rounded_to_milliseconds_are_still_a_constant_rate() -> None:
    times = [round(index * 1000 / 30) for index in range(90)]
    assert timeline(times, 33, Fraction(30)).rate == 30
    assert timeline(times, 33, Fraction(1, 3)).rate == pytest.approx(30, rel=1e-3)
    assert len(timeline(times, 33, Fraction(30)).sample(CONFIG.video)) == 6


def test_frames_are_sorted_by_the_time_at_which_they_are_shown() -> None:
    assert timeline([0, 300, 100, 200]).times.tolist() == [0, 100, 200, 300]


def test_a_long_film_gives_768_frames_and_a_short_one_four() -> None:
    assert len(timeline(list(range(0, 600_000, 100))).sample(CONFIG.video)) == 768
    assert len(timeline(list(range(0, 800, 100))).sample(CONFIG.video)) == 4


@pytest.mark.parametrize("times", [[], [5, 5, 5]])
def test_a_film_without_times_has_no_timeline(times: list[int]) -> None:
    with pytest.raises(ValueError, match=r"no frames|all shown at once"):
        timeline(times)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=50), st.integers(0, 1000))
def test_sampled_times_are_in_order_even_in_number_and_among_the_frames(times: list[int], last: int) -> None:
    if len(times) > 1 and min(times) == max(times):
        return
    samples = timeline(times, last).sample(CONFIG.video)
    assert samples == sorted(samples)
    assert len(samples) % 2 == 0
    assert 2 <= len(samples) <= 768
    assert set(samples) <= set(times)


SMALL: dict[str, Callable[[], bytes]] = {
    "mp4": lambda: film(numbered_frames(4, 32, 32), sound=tone(0.2, 16000)),
    "webm": lambda: film(numbered_frames(4, 32, 32), container="webm", codec="libvpx"),
    "matroska": lambda: film(numbered_frames(4, 32, 32), container="matroska"),
}
FILMS = {kind: make() for kind, make in SMALL.items()}


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(FILMS)), st.data())
def test_mutated_films_never_raise_anything_else(kind: str, draw: st.DataObject) -> None:
    survives(mutated(FILMS[kind], draw))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", b"\0\0\0\x18ftypmp42", b"\x1a\x45\xdf\xa3"]))
def test_random_bytes_never_raise_anything_else(data: bytes, head: bytes) -> None:
    survives(head + data)


def survives(data: bytes) -> None:
    try:
        video = decode(data, with_sound=True)
    except InvalidRequest as error:
        assert str(error).startswith("video[0]: ")
    else:
        assert len(video.frames) % 2 == 0
