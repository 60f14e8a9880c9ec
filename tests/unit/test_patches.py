"""Pictures become the patches of the Qwen2-VL processors: their size, order and values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.preprocess.patches import PatchMaker
from python_backends.preprocess.processor_config import ProcessorConfig, ProcessorConfigError
from python_backends.preprocess.resize import fit_size, scaled_planes
from tests.unit.media_samples import CONFIG, picture

MAKER = PatchMaker(CONFIG, threads=2)


def cubic_weights(size: int, scaled: int) -> NDArray[np.float64]:
    """[scaled, size]: the antialiased bicubic filter (a = -0.5), written down without any trick."""
    stretch = max(size / scaled, 1.0)
    centres = (np.arange(scaled) + 0.5) * size / scaled
    x = np.abs((np.arange(size) + 0.5 - centres[:, None]) / stretch)
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("size", "scaled"),
    [
        ((1024, 1024), (1024, 1024)),
        ((1080, 1920), (1088, 1920)),
        ((600, 800), (608, 800)),
        ((48, 80), (64, 64)),  # a tie goes to the even multiple: 48 / 32 = 1.5 -> 2, 80 / 32 = 2.5 -> 2
        ((3, 5), (64, 96)),
        ((8000, 6000), (4128, 3072)),
        ((1, 200), (32, 800)),
    ],
)
def test_images_are_scaled_to_multiples_of_a_merged_patch_within_the_pixel_bounds(
    size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    height, width = CONFIG.image.scaled_size(*size)
    assert height % 32 == 0
    assert width % 32 == 0
    assert 3136 <= height * width <= 12845056
    assert (height, width) == scaled


def test_videos_have_the_pixel_bounds_of_the_processor_class() -> None:
    for size in ((90, 160), (360, 640), (720, 1280), (2160, 3840)):
        height, width = CONFIG.video.scaled_size(*size)
        assert 128 * 32 * 32 <= height * width <= 768 * 32 * 32


def test_a_scaled_size_is_scaled_to_itself() -> None:
    random = np.random.default_rng(0)
    for height, width in random.integers(1, 5000, (500, 2)):
        if max(height, width) <= 100 * min(height, width):
            scaled = fit_size(int(height), int(width), 32, 128 * 32 * 32, 768 * 32 * 32)
            assert fit_size(*scaled, 32, 128 * 32 * 32, 768 * 32 * 32) == scaled


@pytest.mark.parametrize("size", [(50, 70), (333, 517), (64, 40)])
def test_scaling_is_bicubic_with_antialiasing_first_across_then_down(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    across = np.einsum("xw,hwc->hxc", cubic_weights(size[1], 96), pixels)
    across = np.clip(np.floor(across + 0.5), 0, 255)
    down = np.einsum("yh,hxc->yxc", cubic_weights(size[0], 64), across)
    expected = np.clip(np.floor(down + 0.5), 0, 255)
    difference = np.abs(scaled_planes(pixels, 64, 96).transpose(1, 2, 0) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.001


def test_an_image_that_fits_keeps_its_values_and_fills_both_temporal_planes() -> None:
    pixels = picture(96, 64)
    patches = MAKER.image(pixels)
    assert patches.grid == (1, 4, 6)
    assert patches.pixel_values.shape == (24, 3 * 2 * 16 * 16)
    assert patches.pixel_values.dtype == np.float32
    cubes = patches.pixel_values.reshape(24, 3, 2, 16, 16)
    assert np.array_equal(cubes[:, :, 0], cubes[:, :, 1])
    expected = (pixels[:16, :16].transpose(2, 0, 1).astype(np.float32) - 127.5) / 127.5
    np.testing.assert_allclose(cubes[0, :, 0], expected, atol=1e-6)


def test_the_four_patches_of_a_token_follow_each_other() -> None:
    places = np.zeros((64, 96, 3), np.uint8)
    for row in range(4):
        for column in range(6):
            places[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = 10 * row + column
    first = MAKER.image(places).pixel_values[:, 0] * 127.5 + 127.5
    tokens = [(0, 0), (0, 2), (0, 4), (2, 0), (2, 2), (2, 4)]
    expected = [10 * (r + i) + c + j for r, c in tokens for i in (0, 1) for j in (0, 1)]
    assert np.round(first).astype(int).tolist() == expected


def test_two_frames_of_a_video_share_a_patch_and_an_odd_last_one_is_repeated() -> None:
    frames = np.stack([np.full((3, 32, 64), value, np.uint8) for value in (10, 20, 30)])
    patches = MAKER.video(frames)
    assert patches.grid == (2, 2, 4)
    values = np.round(patches.pixel_values.reshape(2, 8, 3, 2, 256) * 127.5 + 127.5)
    assert (values[0, :, :, 0] == 10).all()
    assert (values[0, :, :, 1] == 20).all()
    assert (values[1] == 30).all()


def test_mean_and_deviation_are_taken_a_colour() -> None:
    content = {
        "image_processor": {
            "patch_size": 16,
            "size": {"shortest_edge": 3136, "longest_edge": 12845056},
            "image_mean": [0.1, 0.2, 0.3],
            "image_std": [0.4, 0.5, 0.6],
        },
        "video_processor": {"patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
        "feature_extractor": {"feature_size": 128},
    }
    maker = PatchMaker(ProcessorConfig.from_json(content), threads=1)
    pixels = np.full((64, 64, 3), 51, np.uint8)  # 0.2
    colours = maker.image(pixels).pixel_values.reshape(16, 3, 512)
    np.testing.assert_allclose(colours[0, :, 0], [0.25, 0.0, -1 / 6], atol=1e-6)


def test_the_number_of_threads_does_not_change_the_patches() -> None:
    pixels = picture(1024, 1056)
    one, four = (PatchMaker(CONFIG, threads).image(pixels) for threads in (1, 4))
    assert np.array_equal(one.pixel_values, four.pixel_values)


def test_tokens_are_counted_before_anything_is_decoded() -> None:
    assert CONFIG.image.tokens(1, 64, 96) == MAKER.image(picture(96, 64)).grid[1] * 6 // 4
    assert CONFIG.video.tokens(6, 360, 640) == 3 * 11 * 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resample": 2}, r"image_processor.resample: found 2; allowed: 3 \(bicubic\)"),
        ({"do_rescale": False}, "image_processor.do_rescale: found False; allowed: true"),
        ({"patch_size": None}, "image_processor.patch_size: found None"),
        ({"image_mean": [0.5]}, "image_processor.image_mean: found"),
        ({"size": {"shortest_edge": 9, "longest_edge": 4}}, "in order"),
    ],
)
def test_settings_that_ask_for_something_else_are_refused(change: dict[str, object], message: str) -> None:
    image = {
        "patch_size": 16,
        "size": {"shortest_edge": 1, "longest_edge": 9999},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    with pytest.raises(ProcessorConfigError, match=message):
        ProcessorConfig.from_json(
            {"image_processor": image | change, "video_processor": image, "feature_extractor": {"feature_size": 128}}
        )


def test_pixel_bounds_are_read_under_their_older_names_too() -> None:
    image = {"patch_size": 16, "min_pixels": 5000, "max_pixels": 90000, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
    content = {"image_processor": image, "video_processor": image, "feature_extractor": {"feature_size": 80}}
    settings = ProcessorConfig.from_json(content)
    assert (settings.image.min_pixels, settings.image.max_pixels) == (5000, 90000)
    assert settings.mel.mel_bins == 80
