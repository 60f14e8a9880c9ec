"""One request through `tritonclient` itself, tensor by tensor, for what the client library would not send."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from numpy.typing import NDArray

TYPES = {
    "max_tokens": ("INT32", np.int32),
    "top_k": ("INT32", np.int32),
    "logprobs": ("INT32", np.int32),
    "temperature": ("FP32", np.float32),
    "top_p": ("FP32", np.float32),
    "repetition_penalty": ("FP32", np.float32),
    "seed": ("UINT64", np.uint64),
    "ignore_eos": ("BOOL", np.bool_),
    "streaming": ("BOOL", np.bool_),
    "use_audio_in_video": ("BOOL", np.bool_),
}


@dataclass(frozen=True)
class Reply:
    """Everything that came back: text of all pieces, or the error."""

    text: str
    error: str | None
    finish_reason: str | None
    usage: str | None
    pieces: int


def tensors(inputs: Mapping[str, Any]) -> list[triton.InferInput]:
    """BYTES for everything that is not in `TYPES`; a list becomes several elements."""
    made = []
    for name, value in inputs.items():
        kind, dtype = TYPES.get(name, ("BYTES", np.object_))
        values = value if isinstance(value, list) else [value]
        items = [item.encode() if isinstance(item, str) else item for item in values]
        array: NDArray[Any] = np.array(items, dtype=dtype)[None]
        tensor = triton.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def infer(address: str, inputs: Mapping[str, Any], timeout: float = 60.0, model: str = "omni") -> Reply:
    """Send one request on a stream of its own and wait for its end."""
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(address.removeprefix("grpc://")) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        client.async_stream_infer(model, tensors(inputs), enable_empty_final_response=True)
        text, reason, usage, pieces = "", None, None, 0
        while True:
            result, error = results.get(timeout=timeout)
            if error is not None:
                return Reply(text, error.message(), None, None, pieces)
            piece = result.as_numpy("text_output")
            if piece is not None:
                pieces += 1
                text += piece.reshape(-1)[0].decode()
            if result.as_numpy("finish_reason") is not None:
                reason = result.as_numpy("finish_reason").reshape(-1)[0].decode()
                usage = result.as_numpy("usage").reshape(-1)[0].decode()
            if result.get_response().parameters["triton_final_response"].bool_param:
                return Reply(text, None, reason, usage, pieces)
