"""Requests and responses as gRPC messages of the KServe protocol that Triton speaks."""

from __future__ import annotations

from typing import Any

import grpc
from tritonclient.grpc import InferResult, service_pb2

from omni_client.answer import OUTPUTS
from omni_client.errors import (
    InvalidRequestError,
    OmniClientError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ServerUnavailable,
    error_from_server,
)
from omni_client.inputs import Input, json_input, settings_of, text_input
from omni_client.request import GenerateRequest

_BY_STATUS: dict[grpc.StatusCode, type[OmniClientError]] = {
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
    grpc.StatusCode.CANCELLED: RequestCancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestTimeout,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: InvalidRequestError,  # a message over the size limit
}


def inputs_of(request: GenerateRequest, streaming: bool) -> list[Input]:
    """All input tensors; media travel as they are on disk.

    Raises:
        InvalidRequestError: a value that its tensor cannot hold, or an unreadable file.
    """
    inputs = settings_of(request, streaming)
    if request.text is not None:
        inputs.append(text_input(request.text))
    if request.messages is not None:
        inputs.append(json_input("messages", request.messages))
    inputs += [Input(kind, "BYTES", files) for kind, files in request.media().items()]
    return inputs


def message_of(request: GenerateRequest, model: str, streaming: bool) -> Any:
    """The `ModelInferRequest`.

    Raises:
        InvalidRequestError: as `inputs_of`.
    """
    message = service_pb2.ModelInferRequest(model_name=model, id=request.request_id)
    for item in inputs_of(request, streaming):
        message.inputs.add(name=item.name, datatype=item.datatype, shape=[1, len(item.values)])
        message.raw_input_contents.append(item.raw())
    if request.priority is not None:
        message.parameters["priority"].uint64_param = request.priority
    return message


def outputs_of(response: Any) -> dict[str, str]:
    """The output tensors of a `ModelStreamInferResponse` that are there.

    Raises:
        OmniClientError: the response is an error.
    """
    if response.error_message:
        raise error_from_server(response.error_message)
    result = InferResult(response.infer_response)
    arrays = {name: result.as_numpy(name) for name in OUTPUTS}
    return {name: array.reshape(-1)[0].decode() for name, array in arrays.items() if array is not None and array.size}


def error_from_rpc(error: Any) -> OmniClientError:
    """The exception for a call that gRPC itself ended."""
    return _BY_STATUS.get(error.code(), ServerError)(error.details() or f"gRPC status {error.code().name}")
