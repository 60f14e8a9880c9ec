"""The whole ensemble behind a running Triton, over gRPC streams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc
from omni_client import GenerateRequest, Sampling
from omni_client.answer import Piece
from omni_client.grpc_message import message_of, outputs_of
from tritonclient.grpc import service_pb2_grpc

from benchmarks.answer_times import AnswerTimes


class TritonTarget:
    """A context manager around one channel, with a thread for each stream.

    Only the last response of an answer is read: what a client does with the text is not the server's time, yet it would
    be taken from the same cores.
    """

    def __init__(self, address: str, streams: int) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._pool = ThreadPoolExecutor(streams, thread_name_prefix="stream")

    def __enter__(self) -> TritonTarget:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.shutdown()
        self._channel.close()

    def answer(self, prompts: Sequence[str], tokens: int) -> list[AnswerTimes]:
        """See `Target`."""
        return list(self._pool.map(lambda prompt: self._one(prompt, tokens), prompts))

    def _one(self, prompt: str, tokens: int) -> AnswerTimes:
        sampling = Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        arrivals: list[float] = []
        responses: list[Any] = []
        sent = time.perf_counter()
        message = message_of(GenerateRequest(text=prompt, sampling=sampling), "omni", streaming=True)
        for response in self._stub.ModelStreamInfer(iter((message,))):
            arrivals.append(time.perf_counter())
            responses.append(response)
        piece = Piece.from_outputs(outputs_of(responses[-1]))
        made = 0 if piece.usage is None else piece.usage.completion_tokens
        if made != tokens:
            raise RuntimeError(f"Triton answered with {made} of {tokens} tokens")
        return AnswerTimes(sent, arrivals[0], arrivals[-1], made)
