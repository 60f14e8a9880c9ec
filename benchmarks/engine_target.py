"""The engine alone, in this process, with the limits that the `thinker` model gives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchmarks.answer_times import AnswerTimes
from benchmarks.workload import Workload
from python_backends.engine.base import GenerationRequest, TokenEvent
from python_backends.engine.onnx_engine import OnnxEngine, OnnxEngineConfig
from python_backends.engine_folder import EngineFolder
from python_backends.messages import PreparedRequest


class _Clock:
    """Sink of one sequence."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = threading.Event()
        self.first = self.last = self.sent = 0.0

    def take(self, event: TokenEvent) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.tokens += event.token_ids
        if event.finish_reason is not None:
            self.ended.set()


class EngineTarget:
    """A context manager around an `OnnxEngine`."""

    def __init__(self, folder: EngineFolder, thinker_config: Path, workload: Workload) -> None:
        model = text_format.Parse(thinker_config.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
        knobs = {name: int(value.string_value) for name, value in model.parameters.items()}
        self._workload = workload
        self._engine = OnnxEngine(folder, OnnxEngineConfig(folder.manifest.limits.max_model_len, **knobs))

    def __enter__(self) -> EngineTarget:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._engine.close()

    def answer(self, prompts: Sequence[str], tokens: int) -> list[AnswerTimes]:
        """See `Target`. Preparing the prompts is not in the times."""
        clocks = self._run(prompts, tokens)
        return [AnswerTimes(clock.sent, clock.first, clock.last, len(clock.tokens)) for clock in clocks]

    def first_token(self, prompt: str) -> int:
        """The token that an answer begins with."""
        return self._run([prompt], 1)[0].tokens[0]

    def _run(self, prompts: Sequence[str], tokens: int) -> list[_Clock]:
        requests = [_generation(self._workload.prepare(prompt, tokens)) for prompt in prompts]
        clocks = [_Clock() for _ in requests]
        for request, clock in zip(requests, clocks, strict=True):
            clock.sent = time.perf_counter()
            self._engine.submit(request, clock.take)
        for clock in clocks:
            clock.ended.wait()
            if len(clock.tokens) != tokens:
                raise RuntimeError(f"the engine made {len(clock.tokens)} of {tokens} tokens")
        return clocks


def _generation(prepared: PreparedRequest) -> GenerationRequest:
    return GenerationRequest(
        key=prepared.key,
        input_ids=prepared.input_ids,
        position_ids=prepared.position_ids,
        rope_delta=prepared.rope_delta,
        sampling=prepared.sampling,
        cost=prepared.cost,
        traffic_class=prepared.traffic_class,
    )
