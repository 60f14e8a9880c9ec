"""The engine alone and the same engine behind Triton, measured in turns: A B, B A, A B.

Both stay loaded, so that a turn follows the other within a second; the report says what the idle ones cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.answer_times import AnswerTimes, Target, decode_rate, first_token_ms, whole_rate
from benchmarks.engine_target import EngineTarget
from benchmarks.machine import CpuMeter
from benchmarks.quiet import Load, undisturbed
from benchmarks.triton_target import TritonTarget
from benchmarks.workload import Workload
from deploy.local import preflight
from deploy.local.config import ServerConfig
from deploy.local.runtime import install
from deploy.local.server import TritonServer
from python_backends.engine_folder import EngineFolder

LONG, SHORT = 512, 16  # prompt tokens
BATCH = 8
DECODED = 64  # answer tokens where decoding is measured
FIRST = 4  # answer tokens where the time to the first one is measured: the engine goes on meanwhile, as in real use
IDLE_SECONDS = 3.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """One measurement: how many prompts of which length, answered with how many tokens."""

    prompts: int
    prompt_tokens: int
    answer_tokens: int
    values: Mapping[str, Callable[[list[AnswerTimes]], float]]
    times: int  # turns in a round


TURNS = (
    Turn(1, LONG, FIRST, {"first_token_ms": lambda a: first_token_ms(a[0])}, times=5),
    Turn(1, SHORT, FIRST, {"short_first_token_ms": lambda a: first_token_ms(a[0])}, times=5),
    Turn(1, SHORT, DECODED, {"decode_1": decode_rate}, times=1),
    Turn(BATCH, SHORT, DECODED, {"decode_8": decode_rate, "whole_8": whole_rate}, times=1),
)


Values = dict[str, list[float]]


@dataclass(frozen=True)
class EngineAlone:
    """Values by name: first_token_ms (512-token prompt), short_first_token_ms (16), and tokens a second: decode_1 and
    decode_8 (steady state), whole_8 (prompts included)."""

    engine: Values
    loads: list[Load]


@dataclass(frozen=True)
class Serving:
    """As `EngineAlone`, and the same through Triton; equal places belong to a pair of turns.

    `cores_idle` and `cores_batch` tell how many cores each part keeps busy, idle and while a batch of 8 is answered.
    """

    engine: Values
    triton: Values
    cores_idle: dict[str, float]
    cores_batch: dict[str, float]
    loads: list[Load]


def measure_engine(engines: Path, rounds: int, say: Say) -> EngineAlone:
    """The engine alone."""
    folder = EngineFolder.open(engines)
    workload = Workload(folder)
    with EngineTarget(folder, _thinker_config(ServerConfig(engines)), workload) as engine:
        prompts = Prompts(workload, engine)
        _warm_up([engine], prompts)
        (alone,), loads = _rounds([engine], prompts, rounds, say)
    return EngineAlone(alone, loads)


def measure_both(config: ServerConfig, rounds: int, say: Say) -> Serving:
    """The engine alone and behind Triton, in turns."""
    folder = EngineFolder.open(config.engines)
    workload = Workload(folder)
    preflight.check(config)
    with (
        TritonServer(install(), config) as server,
        EngineTarget(folder, _thinker_config(config), workload) as engine,
        TritonTarget(f"{config.address}:{config.grpc_port}", BATCH) as triton,
    ):
        prompts = Prompts(workload, engine)
        _warm_up([engine, triton], prompts)
        meter = CpuMeter(server.pid)
        time.sleep(IDLE_SECONDS)
        idle = meter.cores_used()
        (alone, behind), loads = _rounds([engine, triton], prompts, rounds, say)
        batch = prompts.some(BATCH, SHORT)
        meter = CpuMeter(server.pid)
        triton.answer(batch, DECODED)
        busy = meter.cores_used()
    return Serving(alone, behind, idle, busy, loads)


class Prompts:
    """Hands out prompts that were not used yet, and whose answers begin with a token that is a whole text.

    A token that is part of a character is not sent before the next one, which would count as a late first token.
    """

    def __init__(self, workload: Workload, engine: EngineTarget) -> None:
        self._workload = workload
        self._engine = engine
        self._seed = 0

    def some(self, count: int, tokens: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            self._seed += 1
            prompt = self._workload.prompt(tokens, self._seed)
            if self._workload.is_text(self._engine.first_token(prompt)):
                found.append(prompt)
        return found


def _thinker_config(config: ServerConfig) -> Path:
    return config.repository / "thinker" / "config.pbtxt"


def _warm_up(targets: list[Target], prompts: Prompts) -> None:
    chosen = prompts.some(BATCH, SHORT)
    for target in targets:
        target.answer(chosen, FIRST)


def _rounds(targets: list[Target], prompts: Prompts, rounds: int, say: Say) -> tuple[list[Values], list[Load]]:
    """Every target's values by name, in the order of the turns."""
    found: list[Values] = [{name: [] for turn in TURNS for name in turn.values} for _ in targets]
    loads = []
    for number in range(rounds):
        for turn in TURNS:
            for repeat in range(turn.times):
                chosen = prompts.some(turn.prompts, turn.prompt_tokens)
                # who comes second must not always be the same one
                order = targets if (number + repeat) % 2 == 0 else targets[::-1]
                answers, load = undisturbed(partial(_answers, order, chosen, turn.answer_tokens))
                loads.append(load)
                for target, values in zip(targets, found, strict=True):
                    for name, value in turn.values.items():
                        values[name].append(value(answers[target]))
            for name in turn.values:
                line = ", ".join(f"{values[name][-1]:.1f}" for values in found)
                say(f"round {number + 1} of {rounds}: {name} {line}   (others {loads[-1].others_percent:.0f} % CPU)")
    return found, loads


def _answers(targets: Sequence[Target], prompts: Sequence[str], tokens: int) -> dict[Target, list[AnswerTimes]]:
    return {target: target.answer(prompts, tokens) for target in targets}
