"""The server's words become the right exception."""

from __future__ import annotations

import grpc
import pytest
from omni_client import (
    InvalidRequestError,
    OmniClientError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ServerOverloaded,
    ServerUnavailable,
)
from omni_client.errors import error_from_server
from omni_client.grpc_message import error_from_rpc


@pytest.mark.parametrize(
    ("message", "kind", "sentence"),
    [
        (
            "[INVALID_ARG] stop: 20 strings; allowed: at most 16",
            InvalidRequestError,
            "stop: 20 strings; allowed: at most 16",
        ),
        ("in ensemble 'omni', [UNAVAILABLE] the queue is full", ServerOverloaded, "the queue is full"),
        ("[request id: 7] in ensemble 'omni', [CANCELLED] gone", RequestCancelled, "gone"),
        ("[INTERNAL] ValueError: [INVALID_ARG] x", ServerError, "ValueError: [INVALID_ARG] x"),
        ("[request id: <id_unknown>] Exceeds maximum queue size", ServerOverloaded, "Exceeds maximum queue size"),
        ("Request timeout expired", RequestTimeout, "Request timeout expired"),
        (
            "Request for unknown model: 'x' is not found",
            InvalidRequestError,
            "Request for unknown model: 'x' is not found",
        ),
        ("unexpected inference input 'imagee' for model 'omni'", InvalidRequestError, None),
        ("Server is stopping, scheduler for model has stopped accepting requests", ServerUnavailable, None),
        ("Stub process 'thinker_0' is not healthy.", ServerUnavailable, None),
        ("failed to parse the request JSON buffer: Invalid value. at 14", InvalidRequestError, None),
        ("something new", ServerError, "something new"),
        ("", ServerError, "the server gave no reason"),
    ],
)
def test_a_message_is_told_by_its_code_and_then_by_its_words(
    message: str, kind: type[OmniClientError], sentence: str | None
) -> None:
    error = error_from_server(message)
    assert type(error) is kind
    assert str(error) == (sentence or message)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ServerError),
        (404, InvalidRequestError),
        (413, InvalidRequestError),
        (429, ServerOverloaded),
        (500, ServerError),
        (502, ServerUnavailable),
        (503, ServerUnavailable),
        (504, RequestTimeout),
    ],
)
def test_a_proxys_answer_is_told_by_its_status(status: int, kind: type[OmniClientError]) -> None:
    error = error_from_server("", status)
    assert type(error) is kind
    assert str(error) == f"HTTP status {status}"


def test_the_code_in_the_message_counts_more_than_the_status() -> None:
    assert type(error_from_server("[UNAVAILABLE] full", 400)) is ServerOverloaded


class BrokenCall:
    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        self.code = lambda: status
        self.details = lambda: details


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ServerUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, RequestTimeout),
        (grpc.StatusCode.CANCELLED, RequestCancelled),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, InvalidRequestError),
        (grpc.StatusCode.UNKNOWN, ServerError),
    ],
)
def test_a_call_that_grpc_ends_is_told_by_its_status(status: grpc.StatusCode, kind: type[OmniClientError]) -> None:
    error = error_from_rpc(BrokenCall(status, ""))
    assert type(error) is kind
    assert str(error) == f"gRPC status {status.name}"
