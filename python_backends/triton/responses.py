"""Answers and errors on a decoupled response sender."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from python_backends.errors import ErrorCode, OmniError, UpstreamError

logger = logging.getLogger(__name__)


def error_sentence(error: Exception) -> str:
    """`[CODE] sentence`: the code leads because plain gRPC streams carry the message but no status code."""
    if isinstance(error, UpstreamError):
        return str(error)
    if isinstance(error, OmniError):
        return f"[{error.code.value}] {error}"
    logger.error("internal error", exc_info=error)
    return f"[{ErrorCode.INTERNAL.value}] {type(error).__name__}: {error}"


def sentence_error(sentence: str) -> Any:
    """A Triton error from what `error_sentence` wrote."""
    code = ErrorCode(sentence[1 : sentence.index("]")])
    # Looked up now: while Triton completes the configuration, the module has no classes yet.
    return pb_utils.TritonError(sentence, getattr(pb_utils.TritonError, code.value))


def send(sender: Any, tensors: Sequence[Any]) -> None:
    """Send one response; more may follow."""
    sender.send(pb_utils.InferenceResponse(list(tensors)))


def send_last(sender: Any, tensors: Sequence[Any]) -> None:
    """Send the last response."""
    sender.send(pb_utils.InferenceResponse(list(tensors)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def error_response(error: Exception) -> Any:
    """A response that carries only the error."""
    return pb_utils.InferenceResponse(error=sentence_error(error_sentence(error)))


def send_error(sender: Any, error: Exception) -> None:
    """End the request with an error."""
    send_error_sentence(sender, error_sentence(error))


def send_error_sentence(sender: Any, sentence: str) -> None:
    """End the request with an error that another model put in words."""
    response = pb_utils.InferenceResponse(error=sentence_error(sentence))
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def finish(sender: Any) -> None:
    """End the request without a further response."""
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
