"""Limits come from the model's configuration, and only known, positive ones are taken."""

from __future__ import annotations

import pytest

from python_backends.preprocess.limits import Limits, LimitsError


def test_without_parameters_the_defaults_of_the_access_layer_hold() -> None:
    limits = Limits.from_parameters({})
    assert limits == Limits()
    assert limits.max_media_bytes == 20 * 2**20
    assert limits.max_request_bytes == 32 * 2**20


def test_parameters_change_what_they_name_and_nothing_else() -> None:
    limits = Limits.from_parameters({"max_images": "3", "max_audio_seconds": "12.5"})
    assert limits.max_images == 3
    assert limits.max_audio_seconds == 12.5
    assert limits.max_videos == Limits().max_videos


def test_an_unknown_limit_is_refused_with_the_known_names() -> None:
    with pytest.raises(LimitsError, match=r"limit 'max_pictures': not known; allowed: .*max_images"):
        Limits.from_parameters({"max_pictures": "3"})


@pytest.mark.parametrize("text", ["", "many", "2.5", "nan"])
def test_a_count_that_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(LimitsError, match=r"max_images: found .*; allowed: a whole number"):
        Limits.from_parameters({"max_images": text})


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_a_limit_that_is_not_positive_and_finite_is_refused(text: str) -> None:
    with pytest.raises(LimitsError, match=r"max_video_seconds: found .*; allowed: a positive number"):
        Limits.from_parameters({"max_video_seconds": text})
