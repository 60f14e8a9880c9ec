"""`make parity` notices when transformers computes something else than what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.parity.references import Reference, differences


@pytest.fixture(scope="module")
def stored() -> Reference:
    return Reference.load("small")


def with_tokens(reference: Reference, name: str, tokens: tuple[int, ...], margin: float) -> Reference:
    """The reference with another answer, in which every step had this margin."""
    answer = replace(reference.answers[name], tokens=tokens, margins=(margin,) * (len(tokens) + 1))
    return replace(reference, answers={**reference.answers, name: answer})


def test_a_reference_does_not_differ_from_itself(stored: Reference) -> None:
    assert differences(stored, stored) == []


def test_a_reference_read_again_is_what_was_saved(stored: Reference, tmp_path: Path) -> None:
    stored.save(tmp_path, "copy")
    assert differences(stored, Reference.load("copy", tmp_path)) == []


def test_another_token_is_a_difference_unless_it_was_a_near_tie(stored: Reference) -> None:
    clear, tie = with_tokens(stored, "hello", (1, 2, 3), 0.5), with_tokens(stored, "hello", (1, 2, 3), 1e-6)
    other = with_tokens(stored, "hello", (1, 4, 3), 0.5)
    assert differences(clear, other) == ["hello: token 1 was 2, now 4"]
    assert differences(tie, other) == []


def test_an_answer_that_ends_earlier_is_a_difference(stored: Reference) -> None:
    longer, shorter = with_tokens(stored, "hello", (1, 2, 3), 0.5), with_tokens(stored, "hello", (1, 2), 0.5)
    assert differences(longer, shorter) == ["hello: 3 tokens, now 2"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("prompt/hello/ids", 1),
        ("prompt/image_photo_jpg/positions", 1),
        ("vision/photo.jpg/pixels", 3),
        ("vision/photo.jpg/tap1", 0.01),
        ("audio/talk.mp3/mel", 0.001),
    ],
)
def test_other_values_are_a_difference(stored: Reference, name: str, change: float) -> None:
    changed = stored.arrays[name] + stored.arrays[name].dtype.type(change)
    found = differences(stored, replace(stored, arrays={**stored.arrays, name: changed}))
    assert len(found) == 1 and found[0].startswith(name)


def test_other_weights_and_missing_prompts_are_differences(stored: Reference) -> None:
    other = replace(stored, weights_sha256="0", answers={k: v for k, v in stored.answers.items() if k != "hello"})
    assert differences(stored, other) == [
        "the weights of the checkpoint differ",
        "hello: only one of the two has this prompt",
    ]
