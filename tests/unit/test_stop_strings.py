"""Stop strings are found wherever the text is cut, and no part of one gets out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from python_backends.postprocess.stop_strings import StopFilter

FEW_LETTERS = st.text("abc", max_size=40)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The rule, spelled out: the stop string that is complete first; of those, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def run(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    stop_filter = StopFilter(stops)
    text = "".join(stop_filter.push(piece) for piece in pieces)
    return text + stop_filter.flush(), stop_filter.matched


@given(st.lists(FEW_LETTERS, max_size=12), STOPS)
def test_the_text_ends_before_the_first_stop_string_however_it_is_cut(pieces: list[str], stops: list[str]) -> None:
    assert run(pieces, stops) == cut_at_first_stop("".join(pieces), stops)


@given(FEW_LETTERS, STOPS)
def test_nothing_is_held_back_that_cannot_become_a_stop_string(text: str, stops: list[str]) -> None:
    stop_filter = StopFilter(stops)
    shown = stop_filter.push(text)
    if not stop_filter.matched:
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)
        longer = [text[start:] for start in range(len(shown))]
        assert not any(stop.startswith(suffix) for stop in stops for suffix in longer)


def test_a_stop_string_over_three_pieces_is_found() -> None:
    stop_filter = StopFilter(["STOP"])
    assert [stop_filter.push(piece) for piece in ("one S", "TO", "P two")] == ["one ", "", ""]
    assert stop_filter.matched
    assert stop_filter.push("more") == ""


def test_a_false_start_is_let_out_as_soon_as_it_is_one() -> None:
    stop_filter = StopFilter(["STOP"])
    assert [stop_filter.push(piece) for piece in ("ST", "ST", "AY")] == ["", "ST", "STAY"]


def test_what_is_held_back_at_the_end_is_let_out() -> None:
    assert run(["the end\n"], ["\n\n"]) == ("the end\n", False)


def test_of_two_that_end_together_the_longer_one_is_cut() -> None:
    assert run(["xabc"], ["bc", "abc"]) == ("x", True)


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert StopFilter([]).push("anything") == "anything"


def test_a_repetitive_stop_string_holds_back_only_its_own_length() -> None:
    stop_filter = StopFilter(["a" * 255 + "b"])
    assert sum(len(stop_filter.push("a")) for _ in range(20_000)) == 20_000 - 255
    assert stop_filter.push("b") == ""
    assert stop_filter.matched
