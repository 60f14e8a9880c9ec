"""Preprocess makes of every prompt what transformers' processor makes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.conftest import Checkpoint
from tests.parity.prompts import PROMPTS, Prompt
from tests.parity.references import sampled, sums, weights_sha256

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


def test_the_checkpoint_is_the_one_that_the_references_were_made_from(checkpoint: Checkpoint) -> None:
    written = checkpoint.folder.path.parents[2] / "checkpoint"
    assert weights_sha256(written) == checkpoint.reference.weights_sha256


def test_every_prompt_has_a_reference(checkpoint: Checkpoint) -> None:
    assert set(checkpoint.reference.answers) == {prompt.name for prompt in PROMPTS}


@every_prompt
def test_token_ids_and_positions_are_identical(checkpoint: Checkpoint, prompt: Prompt) -> None:
    prepared = checkpoint.prepare(prompt)
    assert prepared.input_ids.tolist() == checkpoint.stored(f"prompt/{prompt.name}/ids").tolist()
    assert np.array_equal(prepared.position_ids, checkpoint.stored(f"prompt/{prompt.name}/positions"))
    assert prepared.rope_delta == checkpoint.reference.rope_deltas[prompt.name]


@every_prompt
def test_pixel_values_are_within_one_level_of_255(checkpoint: Checkpoint, prompt: Prompt) -> None:
    for name, item in checkpoint.media(prompt).vision:
        at = f"vision/{name}"
        assert list(item.grid) == checkpoint.stored(f"{at}/grid").tolist()
        expected = checkpoint.stored(f"{at}/pixels")
        levels = (sampled(f"{at}/pixels", item.patches, len(expected)) + 1) * 127.5
        assert np.mean(np.abs(levels - expected) <= 1.001) >= 0.999, name
        np.testing.assert_allclose(sums(item.patches), checkpoint.stored(f"{at}/pixel_sums"), atol=1e-3, err_msg=name)


@every_prompt
def test_mel_features_are_within_1e_4(checkpoint: Checkpoint, prompt: Prompt) -> None:
    for name, item in checkpoint.media(prompt).audio:
        at = f"audio/{name}"
        assert [len(item.features)] == checkpoint.stored(f"{at}/length").tolist()
        expected = checkpoint.stored(f"{at}/mel")
        found = sampled(f"{at}/mel", item.features, len(expected))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(sums(item.features), checkpoint.stored(f"{at}/mel_sums"), atol=1e-4, err_msg=name)
