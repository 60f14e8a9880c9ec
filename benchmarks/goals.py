"""What is asked for, and whether the measurements show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.results import Section
from benchmarks.summary import Summary, paired_excess, paired_loss

MAX_LOSS_PERCENT = 5.0
MAX_EXCESS_MS = 10.0
MIN_SPEEDUP = 1.0
MIN_SPEEDUP_OF_SUM = 2.0


@dataclass(frozen=True)
class Goal:
    """One goal: what is measured, what is allowed, what was found."""

    what: str
    allowed: str
    found: str
    met: bool


def goals_of(sections: Mapping[str, Section]) -> list[Goal]:
    """The goals that the sections tell something about."""
    goals = []
    if "triton" in sections:
        goals += _serving(sections["triton"])
    if "preprocess" in sections:
        goals += _preprocess(sections["preprocess"])
    return goals


def speedups(section: Section) -> dict[str, Summary]:
    """How many times faster than transformers each case is, pair by pair, and their `sum`."""
    ours, theirs = with_sum(section["ours_ms"]), with_sum(section["transformers_ms"])
    return {case: Summary.of([b / a for a, b in zip(ours[case], theirs[case], strict=True)]) for case in ours}


def with_sum(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The cases and, as `sum`, their sum round by round."""
    return {**values, "sum": [sum(one) for one in zip(*values.values(), strict=True)]}


def _serving(section: Section) -> list[Goal]:
    engine, triton = section["engine"], section["triton"]
    goals = []
    for name, what in (("decode_8", "decoding"), ("whole_8", "prompts included")):
        loss = paired_loss(engine[name], triton[name]).median
        allowed = f"at most {MAX_LOSS_PERCENT:g} %"
        goals.append(
            Goal(f"throughput lost behind Triton, batch 8, {what}", allowed, f"{loss:.1f} %", loss <= MAX_LOSS_PERCENT)
        )
    excess = paired_excess(engine["first_token_ms"], triton["first_token_ms"]).median
    what = "time to first token added by Triton, 512-token prompt"
    goals.append(Goal(what, f"at most {MAX_EXCESS_MS:g} ms", f"{excess:.1f} ms", excess <= MAX_EXCESS_MS))
    return goals


def _preprocess(section: Section) -> list[Goal]:
    goals = []
    for case, speedup in speedups(section).items():
        least = MIN_SPEEDUP_OF_SUM if case == "sum" else MIN_SPEEDUP
        what = f"preprocessing beside transformers, {case}"
        found = f"{speedup.median:.2f} times as fast"
        goals.append(Goal(what, f"at least {least:g} times as fast", found, speedup.median >= least))
    return goals
