"""Log-mel features are those of the Whisper feature extractor, each sound alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.preprocess.mel import MelExtractor, mel_filters
from tests.unit.media_samples import CONFIG, tone

EXTRACTOR = MelExtractor(CONFIG.mel, threads=2)


def plainly(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """The definition, frame by frame."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    padded = np.concatenate([samples[200:0:-1], samples, samples[-2:-202:-1]]).astype(np.float64)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(400), np.arange(201)) / 400)
    spectra = [np.abs((padded[at : at + 400] * window) @ waves) ** 2 for at in range(0, len(samples) // 160 * 160, 160)]
    logs = np.log10(np.maximum(np.array(spectra) @ mel_filters(CONFIG.mel), 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


@pytest.mark.parametrize("length", [201, 320, 399, 400, 1600, 16001, 100_000])
def test_features_follow_the_definition(length: int) -> None:
    samples = (np.random.default_rng(length).standard_normal(length) * 0.1).astype(np.float32)
    features = EXTRACTOR.features(samples)
    assert features.shape == (length // 160, 128)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, plainly(samples), atol=1e-5)


@pytest.mark.parametrize("samples", [np.zeros(16000, np.float32), np.full(16000, 0.5, np.float32), tone(1.0, 16000)])
def test_silence_and_plain_sounds_give_finite_features(samples: NDArray[np.float32]) -> None:
    features = EXTRACTOR.features(samples)
    np.testing.assert_allclose(features, plainly(samples), atol=1e-4)


def test_a_tone_is_loudest_in_the_bin_of_its_pitch() -> None:
    filters = mel_filters(CONFIG.mel)
    features = EXTRACTOR.features(tone(1.0, 16000, pitch=1000.0))
    assert features[50].argmax() == filters[1000 // 40].argmax()


def test_filters_have_area_two_and_reach_from_0_to_8000_hertz() -> None:
    filters = mel_filters(CONFIG.mel)
    assert filters.shape == (201, 128)
    assert (filters >= 0).all()
    assert (filters.max(axis=0) > 0).all()
    assert filters[200].max() == pytest.approx(0, abs=1e-12)  # 8000 Hz is the end of the last triangle
    wide = filters[:, 100:]
    np.testing.assert_allclose(wide.sum(axis=0) * 40, 1.0, rtol=0.05)  # bins are 40 Hz apart; height 2 / width


def test_the_number_of_threads_does_not_change_the_features() -> None:
    samples = (np.random.default_rng(5).standard_normal(400_000) * 0.1).astype(np.float32)
    one, four = (MelExtractor(CONFIG.mel, threads).features(samples) for threads in (1, 4))
    np.testing.assert_allclose(one, four, atol=1e-6)


def test_a_sound_shorter_than_half_a_window_is_not_taken() -> None:
    with pytest.raises(ValueError, match="200 samples; at least 201"):
        EXTRACTOR.features(np.zeros(200, np.float32))
