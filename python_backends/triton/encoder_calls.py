"""Calls from `preprocess` to the two encoders, side by side, only for media that is there.

They are calls and not steps of the ensemble for two reasons: Triton refuses a step whose inputs come from two decoupled
models, and an encoder that is not decoupled would hold a prompt of text alone while it encodes somebody else's video.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import triton_python_backend_utils as pb_utils

from python_backends.errors import UpstreamError
from python_backends.messages import PreparedRequest
from python_backends.triton.tensors import string_tensor, tensor


@dataclass(frozen=True)
class Embeddings:
    """What the encoders answered. `tensors` are named as the thinker's inputs are; times are of the whole batch."""

    tensors: list[Any]
    times_ms: dict[str, float]


def encode(prepared: PreparedRequest) -> Embeddings:
    """Embeddings of all media of a request.

    Raises:
        UpstreamError: an encoder refused.
    """
    calls = {}
    if prepared.vision_keys:
        calls["vision"] = [
            tensor("pixel_values", prepared.pixel_values),
            tensor("grid_thw", prepared.grid_thw),
            string_tensor("vision_keys", *prepared.vision_keys),
        ]
    if prepared.audio_keys:
        calls["audio"] = [
            tensor("audio_features", prepared.audio_features),
            tensor("audio_lengths", prepared.audio_lengths),
            string_tensor("audio_keys", *prepared.audio_keys),
        ]
    if not calls:
        return Embeddings([], {})
    responses = asyncio.run(_call_all(calls))
    tensors, times = [], {}
    for name, response in zip(calls, responses, strict=True):
        if response.has_error():
            raise UpstreamError(response.error().message())
        tensors.append(pb_utils.get_output_tensor_by_name(response, f"{name}_embeddings"))
        times[name] = float(pb_utils.get_output_tensor_by_name(response, f"{name}_ms").as_numpy().reshape(-1)[0])
    return Embeddings(tensors, times)


async def _call_all(calls: dict[str, list[Any]]) -> list[Any]:
    requests = [
        pb_utils.InferenceRequest(
            model_name=f"{name}_encoder", requested_output_names=[f"{name}_embeddings", f"{name}_ms"], inputs=inputs
        )
        for name, inputs in calls.items()
    ]
    return await asyncio.gather(*(request.async_exec() for request in requests))
