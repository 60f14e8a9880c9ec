"""Results as the Markdown page `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.goals import goals_of, speedups, with_sum
from benchmarks.results import Section
from benchmarks.summary import Summary, paired_excess, paired_loss

SERVING_NAMES = {
    "first_token_ms": "time to first token, 512-token prompt, ms",
    "short_first_token_ms": "time to first token, 16-token prompt, ms",
    "decode_1": "decoding, batch 1, tokens/s",
    "decode_8": "decoding, batch 8, tokens/s",
    "whole_8": "batch 8 with its prompts, tokens/s",
}

HEAD = """# Benchmarks

Written by `make bench` (`python -m benchmarks`); raw values are in [benchmarks.json](benchmarks.json). Numbers are
medians, with the lowest and the highest value in brackets. The model has the shape of the bench-size checkpoint (980
million parameters, fp32) and random weights: speeds are those of this machine, only the comparisons mean something
elsewhere.
"""

SERVING_TEXT = """The engine alone runs in the benchmark's own process with the limits of `model_repository/thinker`;
behind Triton, eight threads ask the whole ensemble over gRPC streams. Both stay loaded and take turns with the same
prompts, so differences are those of two turns next to each other. Time to first token starts before the request is
sent: reading the prompt and gRPC are part of it. Decoding counts every answer from its first to its last token.
"""

PREPROCESS_TEXT = """From encoded bytes to tensors, decoding included, in two processes that take turns. A turn is five
requests after each other; the first is not counted, the median of the others is one value. transformers gets the usual
fast decoders (Pillow, libsndfile and soxr, PyAV with threads); both prepare the whole prompt. A video second is an
eighth of a film of 8 s; the sum is one of each.
"""


def report(sections: Mapping[str, Section]) -> str:
    """The whole page."""
    parts = [HEAD]
    goals = goals_of(sections)
    if goals:
        rows = [(goal.what, goal.allowed, goal.found, "met" if goal.met else "**missed**") for goal in goals]
        parts.append("## Goals\n\n" + _table(("goal", "allowed", "found", ""), rows))
    if "triton" in sections:
        parts.append(_serving(sections["triton"]))
    if "preprocess" in sections:
        parts.append(_preprocess(sections["preprocess"]))
    if "engine" in sections:
        parts.append(_engine(sections["engine"]))
    return "\n".join(parts)


def _serving(section: Section) -> str:
    engine, triton = section["engine"], section["triton"]
    rows = []
    for name, title in SERVING_NAMES.items():
        if name.endswith("_ms"):
            difference = _spread(paired_excess(engine[name], triton[name]), " ms more")
        else:
            difference = _spread(paired_loss(engine[name], triton[name]), " % less")
        rows.append((title, _spread(Summary.of(engine[name])), _spread(Summary.of(triton[name])), difference))
    parts = sorted({*section["cores_idle"], *section["cores_batch"]})
    cores = [(part, f"{section['cores_idle'][part]:.3f}", f"{section['cores_batch'][part]:.3f}") for part in parts]
    return "\n".join(
        (
            "## Engine alone and behind Triton\n",
            SERVING_TEXT,
            "![Engine alone and behind Triton](images/benchmarks-triton.png)\n",
            _table(("", "engine alone", "behind Triton", "Triton, pair by pair"), rows),
            "Cores that each process keeps busy: all loaded and idle, and while Triton answers a batch of 8 "
            "(`client` is the benchmark itself, with the idle engine in it):\n",
            _table(("process", "idle", "batch 8"), cores),
            _circumstances(section),
        )
    )


def _preprocess(section: Section) -> str:
    ours, theirs = with_sum(section["ours_ms"]), with_sum(section["transformers_ms"])
    rows = [
        (case, _spread(Summary.of(ours[case])), _spread(Summary.of(theirs[case])), _spread(speedup, digits=2))
        for case, speedup in speedups(section).items()
    ]
    return "\n".join(
        (
            "## Preprocessing beside transformers\n",
            PREPROCESS_TEXT,
            "![Preprocessing beside transformers](images/benchmarks-preprocess.png)\n",
            _table(("case", "here, ms", "transformers, ms", "times as fast, pair by pair"), rows),
            f"Threads on both sides: {section['threads']}. " + _circumstances(section),
        )
    )


def _engine(section: Section) -> str:
    rows = [(title, _spread(Summary.of(section["engine"][name]))) for name, title in SERVING_NAMES.items()]
    return "\n".join(("## Engine alone\n", _table(("", "engine alone"), rows), _circumstances(section)))


def _circumstances(section: Section) -> str:
    machine, loads = section["machine"], section["loads"]
    average, idle, others = (
        Summary.of([load[name] for load in loads]) for name in ("average", "idle_percent", "others_percent")
    )
    return (
        f"`{section['command']}`, {section['date']}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}. Before each pair the load average was {_spread(average)} "
        f"(the pair before it counts) and idle CPU {_spread(idle, ' %')}; meanwhile other processes took "
        f"{_spread(others, ' %')} of the CPU.\n"
    )


def _spread(summary: Summary, unit: str = "", digits: int = 1) -> str:
    return f"{summary.median:.{digits}f}{unit} ({summary.low:.{digits}f} … {summary.high:.{digits}f})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
