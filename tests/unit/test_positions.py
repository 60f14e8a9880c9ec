"""Rope positions of text, sounds, images and videos, by the rules of the model's reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.preprocess.positions import VisionGrid, sound_tokens
from python_backends.preprocess.prompt import Prompt, PromptBuilder
from tests.unit.prompt_engine import TOKENS

STRIDE = 13  # positions a temporal patch of one second
GRIDS = st.builds(VisionGrid, st.integers(1, 5), st.integers(1, 9), st.integers(1, 40), st.just(STRIDE))
IMAGES = st.builds(VisionGrid, st.just(1), st.integers(1, 9), st.integers(1, 40), st.just(STRIDE))
SOUNDS = st.integers(1, 80)
PIECES = st.lists(
    st.tuples(st.just("text"), st.integers(1, 6))
    | st.tuples(st.just("sound"), SOUNDS)
    | st.tuples(st.just("image"), IMAGES)
    | st.tuples(st.just("video"), GRIDS)
    | st.tuples(st.just("video with sound"), st.tuples(GRIDS, SOUNDS)),
    max_size=6,
)


def columns(prompt: Prompt) -> list[tuple[int, ...]]:
    return [tuple(int(v) for v in column) for column in prompt.position_ids.T]


def test_text_counts_up_alike_on_all_axes() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_text([5, 6, 7])
    prompt = builder.build()
    assert columns(prompt) == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
    assert prompt.rope_delta == 0


def test_an_image_spreads_over_rows_and_columns_and_text_goes_on_after_the_furthest() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_text([5])
    builder.add_image(VisionGrid(1, 2, 3, STRIDE))
    builder.add_text([6])
    prompt = builder.build()
    assert columns(prompt) == [(0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (1, 2, 2), (1, 2, 3), (4, 4, 4)]
    assert prompt.rope_delta == 5 - 8
    assert prompt.input_ids.tolist() == [5, *[TOKENS.image] * 6, 6]


def test_a_video_moves_in_time_by_thirteen_positions_a_second() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_video(VisionGrid(3, 1, 2, STRIDE))
    builder.add_text([6])
    prompt = builder.build()
    assert prompt.position_ids[0].tolist() == [0, 0, 13, 13, 26, 26, 27]
    assert prompt.position_ids[2].tolist() == [0, 1, 0, 1, 0, 1, 27]


def test_a_sound_counts_up_like_text() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_sound(3)
    builder.add_text([6])
    assert columns(builder.build()) == [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_a_video_and_its_sound_are_merged_by_time_and_pictures_come_first() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_video_with_sound(VisionGrid(2, 1, 1, STRIDE), 15)
    prompt = builder.build()
    video, audio = TOKENS.video, TOKENS.audio
    assert prompt.input_ids.tolist() == [
        TOKENS.audio_start,
        video,
        *[audio] * 13,
        video,
        *[audio] * 2,
        TOKENS.audio_end,
    ]
    assert prompt.position_ids[0].tolist() == [0, 1, *range(1, 14), 14, 14, 15, 16]


def test_after_a_wide_video_with_a_short_sound_text_goes_on_from_the_sound() -> None:
    builder = PromptBuilder(TOKENS)
    builder.add_video_with_sound(VisionGrid(1, 1, 30, STRIDE), 4)
    builder.add_text([6])
    prompt = builder.build()
    assert prompt.position_ids[2].max() == 30
    assert columns(prompt)[-2:] == [(5, 5, 5), (6, 6, 6)]
    assert prompt.rope_delta == 7 - len(prompt.input_ids)


@pytest.mark.parametrize(("frames", "tokens"), [(1, 1), (8, 1), (9, 2), (99, 13), (100, 13), (101, 14), (250, 33)])
def test_mel_frames_become_tokens_as_the_audio_encoder_makes_them(frames: int, tokens: int) -> None:
    assert sound_tokens(frames) == tokens


@given(PIECES)
def test_every_token_has_a_position_and_text_always_moves_on(pieces: list[tuple[str, object]]) -> None:
    builder = PromptBuilder(TOKENS)
    for kind, size in pieces:
        match kind, size:
            case "text", int(count):
                builder.add_text([9] * count)
            case "sound", int(count):
                builder.add_sound(count)
            case "image", VisionGrid() as grid:
                builder.add_image(grid)
            case "video", VisionGrid() as grid:
                builder.add_video(grid)
            case _, (VisionGrid() as grid, int(count)):
                builder.add_video_with_sound(grid, count)
    builder.add_text([9])
    prompt = builder.build()
    assert prompt.position_ids.shape == (3, len(prompt.input_ids))
    assert prompt.position_ids.dtype == prompt.input_ids.dtype == np.int32
    assert prompt.position_ids.min() == 0
    text = np.isin(prompt.input_ids, [9, TOKENS.audio_start, TOKENS.audio_end])
    line = prompt.position_ids[:, text]
    assert (line == line[0]).all()
    assert (np.diff(line[0]) > 0).all()
    assert len(prompt.input_ids) + prompt.rope_delta == line[0, -1] + 1
