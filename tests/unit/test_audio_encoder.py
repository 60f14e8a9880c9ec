from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.encoders.audio import AudioEncoder, AudioItem
from python_backends.engine_folder import EngineFolder
from tests.unit.tiny_encoders import audio_reference, build_encoders, encoder_config, encoder_tensors

CONFIG = encoder_config()
TENSORS = encoder_tensors(CONFIG)
BINS = 16
HIDDEN = 32
WINDOW = 200  # mel frames, and 26 tokens


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> EngineFolder:
    return build_encoders(tmp_path_factory.mktemp("engine"), CONFIG, TENSORS)


@pytest.fixture
def encoder(engine: EngineFolder) -> AudioEncoder:
    return AudioEncoder(engine, threads=1)


def item(frames: int, seed: int = 0, key: str | None = None) -> AudioItem:
    features = np.random.default_rng(seed).standard_normal((frames, BINS)).astype(np.float32)
    return AudioItem(features, key or f"{frames} {seed}")


def assert_close(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("frames", [1, 7, 40, 99, 100, 101, 130, 200, 205, 399, 400, 730])
def test_a_sound_of_any_length_equals_the_plain_computation(encoder: AudioEncoder, frames: int) -> None:
    one = item(frames)
    assert_close(encoder.encode([one])[0], audio_reference(CONFIG, TENSORS, one.features))


@pytest.mark.parametrize(("frames", "tokens"), [(1, 1), (8, 1), (9, 2), (99, 13), (100, 13), (101, 14), (3000, 390)])
def test_a_hundred_frames_are_thirteen_tokens(encoder: AudioEncoder, frames: int, tokens: int) -> None:
    assert encoder.encode([item(frames)])[0].shape == (tokens, HIDDEN)


def test_sounds_of_one_call_get_what_they_get_alone(encoder: AudioEncoder) -> None:
    items = [item(frames, seed) for seed, frames in enumerate([230, 40, 700, 100, 40, 61, 401, 3])]
    for one, found in zip(items, encoder.encode(items), strict=True):
        assert_close(found, audio_reference(CONFIG, TENSORS, one.features))


@pytest.mark.parametrize("frames_per_run", [1, 200, 450])
def test_the_frame_budget_does_not_change_the_result(engine: EngineFolder, frames_per_run: int) -> None:
    items = [item(950), item(45, 1), item(310, 2), item(45, 3)]
    found = AudioEncoder(engine, threads=1, frames_per_run=frames_per_run).encode(items)
    for one, expected in zip(found, AudioEncoder(engine, threads=1).encode(items), strict=True):
        assert_close(one, expected)


def test_what_comes_after_an_attention_window_does_not_change_it(encoder: AudioEncoder) -> None:
    sound = item(2 * WINDOW + 50)
    changed = sound.features.copy()
    changed[2 * WINDOW - 1] += 1
    before, after = encoder.encode([sound, AudioItem(changed, "changed")])
    np.testing.assert_allclose(after[:26], before[:26], rtol=1e-5)
    assert np.abs(after[26:52] - before[26:52]).max(axis=1).min() > 1e-4
    np.testing.assert_allclose(after[52:], before[52:], rtol=1e-5)


def test_the_same_key_twice_in_a_call_is_computed_once(encoder: AudioEncoder) -> None:
    first, again = encoder.encode([item(150), item(150)])
    assert again is first
    assert encoder.cache.stats().misses == 1


def test_a_known_key_is_answered_from_the_cache(encoder: AudioEncoder) -> None:
    (before,) = encoder.encode([item(150, key="sound")])
    new, after = encoder.encode([item(90), item(150, seed=1, key="sound")])
    assert after is before
    assert new.shape == (12, HIDDEN)


def test_no_items_give_no_arrays(encoder: AudioEncoder) -> None:
    assert encoder.encode([]) == []


def test_a_key_of_a_sound_of_another_length_is_refused(encoder: AudioEncoder) -> None:
    encoder.encode([item(100, key="sound")])
    with pytest.raises(ValueError, match=r"audio item 0: found 26 tokens; allowed: 13"):
        encoder.encode([item(200, key="sound")])


@pytest.mark.parametrize(
    "features", [np.zeros((0, BINS), np.float32), np.zeros((9, BINS + 1), np.float32), np.zeros(9), np.zeros((9, BINS))]
)
def test_features_of_a_wrong_shape_are_refused(encoder: AudioEncoder, features: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"audio item 1: found features .* allowed: float32 \[frames, 16\]"):
        encoder.encode([item(30), AudioItem(features, "bad")])
