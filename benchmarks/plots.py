"""Results as pictures beside the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.goals import MAX_EXCESS_MS, MIN_SPEEDUP, MIN_SPEEDUP_OF_SUM, speedups, with_sum
from benchmarks.results import Section
from benchmarks.summary import Summary, paired_excess

BLUE, ORANGE, GREY = "#2f6db3", "#e0862b", "#777777"


def draw(sections: Mapping[str, Section], folder: Path) -> None:
    """One PNG for each section that has a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    if "triton" in sections:
        _save(_serving(sections["triton"]), folder / "benchmarks-triton.png")
    if "preprocess" in sections:
        _save(_preprocess(sections["preprocess"]), folder / "benchmarks-preprocess.png")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _serving(section: Section) -> Any:
    figure, (speeds, excess) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")
    names = {
        "decode_1": "decoding,\nbatch 1",
        "decode_8": "decoding,\nbatch 8",
        "whole_8": "batch 8\nwith prompts",
    }
    for offset, label, colour, values in (
        (-0.2, "engine alone", BLUE, section["engine"]),
        (0.2, "behind Triton", ORANGE, section["triton"]),
    ):
        summaries = [Summary.of(values[name]) for name in names]
        places = [place + offset for place in range(len(names))]
        bars = speeds.bar(
            places, [s.median for s in summaries], 0.36, color=colour, label=label, yerr=_whiskers(summaries)
        )
        speeds.bar_label(bars, fmt="%.1f", padding=3)
    speeds.set_xticks(range(len(names)), list(names.values()))
    speeds.set_ylabel("tokens a second")
    speeds.set_title("Throughput (median, whiskers: lowest and highest)", fontsize=10)
    speeds.margins(y=0.15)
    speeds.legend(loc="upper left", frameon=False)
    titles = {"short_first_token_ms": "16-token prompt", "first_token_ms": "512-token prompt"}
    ticks = []
    for place, (name, title) in enumerate(titles.items()):
        pairs = [b - a for a, b in zip(section["engine"][name], section["triton"][name], strict=True)]
        median = paired_excess(section["engine"][name], section["triton"][name]).median
        excess.scatter([place] * len(pairs), pairs, s=22, color=ORANGE, alpha=0.6)
        excess.hlines(median, place - 0.25, place + 0.25, color="black")
        ticks.append(f"{title}\nmedian {median:.1f} ms")
    excess.axhline(MAX_EXCESS_MS, color=GREY, linestyle="--", label=f"goal: median at most {MAX_EXCESS_MS:g} ms")
    excess.axhline(0, color=GREY, linewidth=0.6)
    excess.set_yscale("symlog", linthresh=20)  # single pairs that something else disturbed lie far out
    excess.yaxis.set_major_formatter("{x:g}")
    excess.set_xticks(range(len(titles)), ticks)
    excess.set_xlim(-0.5, len(titles) - 0.5)
    excess.set_ylabel("ms more than the engine alone")
    excess.set_title("Time to first token added by Triton (pairs)", fontsize=10)
    excess.legend(frameon=False, fontsize=9)
    return figure


def _preprocess(section: Section) -> Any:
    found = speedups(section)
    ours, theirs = with_sum(section["ours_ms"]), with_sum(section["transformers_ms"])
    cases = list(found)
    figure, axes = plt.subplots(figsize=(9, 0.6 * len(cases) + 1.4), layout="constrained")
    colours = [BLUE if case != "sum" else ORANGE for case in cases]
    summaries = [found[case] for case in cases]
    labels = [
        f"{case}\n{Summary.of(ours[case]).median:.1f} ms, transformers {Summary.of(theirs[case]).median:.1f} ms"
        for case in cases
    ]
    axes.barh(labels, [s.median for s in summaries], 0.6, color=colours, xerr=_whiskers(summaries))
    axes.axvline(MIN_SPEEDUP, color=GREY, linestyle="--", label=f"goal for each: {MIN_SPEEDUP:g}")
    axes.axvline(MIN_SPEEDUP_OF_SUM, color=ORANGE, linestyle="--", label=f"goal for the sum: {MIN_SPEEDUP_OF_SUM:g}")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1 * max(MIN_SPEEDUP_OF_SUM, *(s.high for s in summaries)))
    axes.set_xlabel("times as fast as transformers (median, whiskers: lowest and highest)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    return figure


def _whiskers(summaries: Sequence[Summary]) -> list[list[float]]:
    return [[s.median - s.low for s in summaries], [s.high - s.median for s in summaries]]
