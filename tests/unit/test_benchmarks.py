"""The benchmarks' arithmetic and their report. What they measure is for `make bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.answer_times import AnswerTimes, decode_rate, first_token_ms, whole_rate
from benchmarks.goals import goals_of, speedups
from benchmarks.quiet import Load
from benchmarks.report import report
from benchmarks.results import Results
from benchmarks.serving import EngineAlone
from benchmarks.summary import Summary, paired_excess, paired_loss

MACHINE = {"processor": "Test CPU", "cores": 2, "memory_gb": 8, "system": "Linux 6, Python 3.11"}
HEAD = {
    "date": "2026-01-01 00:00 UTC",
    "command": "python -m benchmarks",
    "machine": MACHINE,
    "loads": [{"average": 0.5, "idle_percent": 99.0, "others_percent": 0.2}],
}


def serving(triton_rate: float, triton_ms: float) -> dict[str, Any]:
    names = ("decode_1", "decode_8", "whole_8")
    engine = {name: [100.0, 100.0] for name in names} | {"first_token_ms": [50.0], "short_first_token_ms": [5.0]}
    triton = {name: [triton_rate, triton_rate] for name in names}
    triton |= {"first_token_ms": [triton_ms], "short_first_token_ms": [7.0]}
    return {**HEAD, "engine": engine, "triton": triton, "cores_idle": {"thinker": 0.0}, "cores_batch": {"thinker": 1.9}}


def preprocess() -> dict[str, Any]:
    ours = {"image": [10.0, 12.0], "audio": [20.0, 20.0]}
    theirs = {"image": [20.0, 36.0], "audio": [15.0, 15.0]}
    return {**HEAD, "threads": 2, "ours_ms": ours, "transformers_ms": theirs}


def test_a_summary_tells_the_median_and_the_extremes() -> None:
    assert Summary.of([3.0, 1.0, 2.0, 10.0]) == Summary(median=2.5, low=1.0, high=10.0, count=4)


def test_a_summary_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        Summary.of([])


def test_comparisons_are_made_pair_by_pair() -> None:
    # the machine became half as fast on the way; the pairs do not notice
    assert paired_loss([100.0, 50.0], [90.0, 45.0]).median == pytest.approx(10.0)
    assert paired_excess([100.0, 200.0], [103.0, 203.0]) == Summary(3.0, 3.0, 3.0, 2)


def test_pairs_need_their_partner() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_loss([1.0, 2.0], [1.0])


def test_speeds_follow_from_when_tokens_came() -> None:
    first = AnswerTimes(sent=10.0, first=10.5, last=12.5, tokens=21)
    second = AnswerTimes(sent=10.1, first=11.0, last=13.0, tokens=31)
    assert first_token_ms(first) == pytest.approx(500.0)
    assert decode_rate([first, second]) == pytest.approx(20 / 2 + 30 / 2)
    assert whole_rate([first, second]) == pytest.approx(52 / 3)


def test_goals_are_met_when_triton_costs_little() -> None:
    assert all(goal.met for goal in goals_of({"triton": serving(triton_rate=96.0, triton_ms=59.0)}))


def test_goals_are_missed_when_triton_costs_too_much() -> None:
    assert not any(goal.met for goal in goals_of({"triton": serving(triton_rate=94.0, triton_ms=61.0)}))


def test_a_case_slower_than_transformers_is_a_missed_goal_though_the_sum_is_faster() -> None:
    found = {goal.what.rpartition(", ")[2]: goal.met for goal in goals_of({"preprocess": preprocess()})}
    assert found == {"image": True, "audio": False, "sum": False}
    assert speedups(preprocess())["image"].median == pytest.approx(2.5)


def test_the_report_shows_goals_figures_and_circumstances() -> None:
    page = report({"triton": serving(94.0, 59.0), "preprocess": preprocess()})
    assert "| throughput lost behind Triton, batch 8, decoding | at most 5 % | 6.0 % | **missed** |" in page
    assert (
        "| decoding, batch 8, tokens/s | 100.0 (100.0 … 100.0) | 94.0 (94.0 … 94.0) | 6.0 % less (6.0 … 6.0) |" in page
    )
    assert "| image | 11.0 (10.0 … 12.0) | 28.0 (20.0 … 36.0) | 2.50 (2.00 … 3.00) |" in page
    assert "Test CPU, 2 cores" in page
    assert "idle CPU 99.0 %" in page


def test_the_report_leaves_out_what_was_not_measured() -> None:
    page = report({"preprocess": preprocess()})
    assert "Triton" not in page.partition("## ")[2]
    assert "## Engine alone" not in page


def test_results_of_another_part_are_kept(tmp_path: Path) -> None:
    Results({"preprocess": preprocess()}).save(tmp_path)
    results = Results.load(tmp_path)
    values = {"first_token_ms": [1.23456], "short_first_token_ms": [1.0], "decode_1": [1.0], "decode_8": [1.0]}
    results.add(
        "engine", EngineAlone(values | {"whole_8": [1.0]}, [Load(0.1, 99.0, 0.0)]), "python -m benchmarks engine"
    )
    results.save(tmp_path)
    sections = Results.load(tmp_path).sections
    assert sections["preprocess"] == preprocess()
    assert sections["engine"]["engine"]["first_token_ms"] == [1.235]
    assert "## Engine alone" in report(sections)
