"""The encoders compute what transformers' encoders compute, deepstack features included."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.encoders.audio import AudioItem
from python_backends.encoders.vision import VisionItem
from tests.parity.conftest import Checkpoint
from tests.parity.prompts import PROMPTS, Prompt
from tests.parity.references import GRIDS, LENGTHS, drawn_mel, drawn_patches, sampled, sums

MEDIA_PROMPTS = [prompt for prompt in PROMPTS if prompt.kind != "text"]
every_media_prompt = pytest.mark.parametrize("prompt", MEDIA_PROMPTS, ids=lambda prompt: prompt.name)


def relative_error(found: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Largest difference in units of the root mean square."""
    return float(np.abs(found - expected).max() / np.sqrt(np.mean(expected.astype(np.float64) ** 2)))


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: "x".join(map(str, grid)))
def test_vision_embeddings_of_equal_pixels_are_within_1e_4(checkpoint: Checkpoint, grid: tuple[int, int, int]) -> None:
    name = f"drawn/vision/{'x'.join(map(str, grid))}"
    expected = checkpoint.stored(name)
    (rows,) = checkpoint.vision_encoder.encode([VisionItem(drawn_patches(grid), grid, name)])
    assert relative_error(sampled(name, rows, len(expected)), expected) <= 1e-4


@pytest.mark.parametrize("length", LENGTHS)
def test_audio_embeddings_of_equal_features_are_within_1e_4(checkpoint: Checkpoint, length: int) -> None:
    name = f"drawn/audio/{length}"
    expected = checkpoint.stored(name)
    (rows,) = checkpoint.audio_encoder.encode([AudioItem(drawn_mel(length), name)])
    assert relative_error(sampled(name, rows, len(expected)), expected) <= 1e-4


def test_drawn_inputs_encoded_together_are_as_if_alone(checkpoint: Checkpoint) -> None:
    pictures = [VisionItem(drawn_patches(grid), grid, f"together {grid}") for grid in GRIDS]
    for grid, rows in zip(GRIDS, checkpoint.vision_encoder.encode(pictures), strict=True):
        name = f"drawn/vision/{'x'.join(map(str, grid))}"
        expected = checkpoint.stored(name)
        assert relative_error(sampled(name, rows, len(expected)), expected) <= 1e-4
    sounds = [AudioItem(drawn_mel(length), f"together {length}") for length in LENGTHS]
    for length, rows in zip(LENGTHS, checkpoint.audio_encoder.encode(sounds), strict=True):
        expected = checkpoint.stored(f"drawn/audio/{length}")
        assert relative_error(sampled(f"drawn/audio/{length}", rows, len(expected)), expected) <= 1e-4


@every_media_prompt
def test_media_become_the_embeddings_that_transformers_makes_of_them(checkpoint: Checkpoint, prompt: Prompt) -> None:
    media = checkpoint.media(prompt)
    hidden = checkpoint.folder.config.text.hidden_size
    rows = checkpoint.vision_encoder.encode([item for _, item in media.vision])
    for (name, _), found in zip(media.vision, rows, strict=True):
        for index in range(found.shape[1] // hidden):
            part = "embedding" if index == 0 else f"tap{index - 1}"
            check(checkpoint, f"vision/{name}/{part}", found[:, index * hidden : (index + 1) * hidden])
    rows = checkpoint.audio_encoder.encode([item for _, item in media.audio])
    for (name, _), found in zip(media.audio, rows, strict=True):
        check(checkpoint, f"audio/{name}/embedding", found)


def check(checkpoint: Checkpoint, name: str, found: NDArray[np.generic]) -> None:
    expected = checkpoint.stored(name)
    assert relative_error(sampled(name, np.ascontiguousarray(found), len(expected)), expected) <= 1e-3, name
    np.testing.assert_allclose(sums(found), checkpoint.stored(f"{name}_sums"), atol=1e-4, err_msg=name)
