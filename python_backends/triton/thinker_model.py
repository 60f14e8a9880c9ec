"""The Triton model `thinker`: prompts and media embeddings in, chunks of tokens out.

`execute` only hands requests to the engine, so the model's queue is always empty and a `stop` call is never late.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from python_backends.engine.base import Engine, FinishReason, GenerationRequest, TokenEvent
from python_backends.engine.onnx_engine import OnnxEngine, OnnxEngineConfig
from python_backends.engine_folder import EngineFolder
from python_backends.messages import RequestCost, SamplingParams, TrafficClass
from python_backends.triton.chunk_sender import ChunkSender
from python_backends.triton.engine_metrics import EngineMetrics
from python_backends.triton.parameters import model_parameters, refuse_unknown, take_int
from python_backends.triton.responses import finish, send_error
from python_backends.triton.tensors import RequestReader
from python_backends.wire import request_cost_from_json, response_spec_from_json

WARM_UP_SECONDS = 60.0


class ThinkerModel:
    """See the module."""

    def initialize(self, args: Mapping[str, str]) -> None:
        folder = EngineFolder.open()
        self._engine = OnnxEngine(folder, engine_config(model_parameters(args), folder.manifest.limits.max_model_len))
        warm_up(self._engine)
        self._chunks = ChunkSender(self._engine.cancel)
        self._metrics = EngineMetrics(self._engine, args["model_name"], args["model_version"])

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                reader = RequestReader(request)
                if reader.flag("stop"):
                    self._engine.cancel(reader.text("request_key"))
                    finish(sender)
                else:
                    self._submit(sender, reader)
            except Exception as error:
                send_error(sender, error)

    def finalize(self) -> None:
        self._metrics.close()
        self._engine.close()
        self._chunks.close()

    def _submit(self, sender: Any, reader: RequestReader) -> None:
        spec = response_spec_from_json(reader.text("response_spec"))
        generation = read_generation(reader)
        self._chunks.open(generation.key, sender, spec)
        try:
            self._engine.submit(generation, self._chunks.take)
        except Exception:
            self._chunks.forget(generation.key)
            raise


def engine_config(parameters: dict[str, str], max_model_len: int) -> OnnxEngineConfig:
    """The engine's limits from the model's configuration.

    Raises:
        ValueError: an unknown parameter, or a value out of range.
    """
    names = {item.name for item in dataclasses.fields(OnnxEngineConfig)} & parameters.keys()
    values = {name: take_int(parameters, name, 1) for name in names}
    refuse_unknown(parameters)
    return OnnxEngineConfig(**{"max_model_len": max_model_len, **values})


def warm_up(engine: Engine) -> None:
    """Answer one short prompt, so that the first client does not pay for the first touch of every weight.

    Raises:
        RuntimeError: the engine cannot answer.
    """
    ended = threading.Event()
    last: list[TokenEvent] = []

    def sink(event: TokenEvent) -> None:
        if event.finish_reason is not None:
            last.append(event)
            ended.set()

    length = 8
    engine.submit(
        GenerationRequest(
            key="warm-up",
            input_ids=np.zeros(length, np.int32),
            position_ids=np.tile(np.arange(length, dtype=np.int32), (3, 1)),
            rope_delta=0,
            sampling=SamplingParams(max_tokens=2, ignore_eos=True),
            cost=RequestCost(prompt_tokens=length, vision_tokens=0, audio_tokens=0, frames=0, max_tokens=2),
            traffic_class=TrafficClass.TEXT,
        ),
        sink,
    )
    if not ended.wait(WARM_UP_SECONDS) or last[0].finish_reason is not FinishReason.LENGTH:
        raise RuntimeError(f"the engine did not answer its warm-up prompt: {last[0].error if last else 'no answer'}")


def read_generation(reader: RequestReader) -> GenerationRequest:
    """The engine's request; arrays are copies, because the request's memory goes when `execute` returns."""
    vision, audio = reader.array("vision_embeddings"), reader.array("audio_embeddings")
    return GenerationRequest(
        key=reader.text("request_key"),
        input_ids=np.array(reader.required("input_ids")),
        position_ids=np.array(reader.required("position_ids")),
        rope_delta=int(reader.required("rope_delta")[0]),
        sampling=SamplingParams(
            max_tokens=int(reader.required("request_output_len")[0]),
            temperature=float(reader.required("temperature")[0]),
            top_k=int(reader.required("runtime_top_k")[0]),
            top_p=float(reader.required("runtime_top_p")[0]),
            repetition_penalty=float(reader.required("repetition_penalty")[0]),
            seed=int(reader.required("seed")[0]),
            ignore_eos=bool(reader.required("ignore_eos")[0]),
            logprobs=reader.integer("num_logprobs"),
        ),
        cost=request_cost_from_json(reader.text("request_cost")),
        traffic_class=TrafficClass(reader.text("traffic_class")),
        vision_embeddings=None if vision is None else np.array(vision),
        audio_embeddings=None if audio is None else np.array(audio),
    )
