"""Errors a request can end in. Each maps to one Triton status code and carries one sentence for the client."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """The Triton status codes that the project uses."""

    INVALID_ARG = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class OmniError(Exception):
    """Base of all errors that reach a client; `str(error)` is the sentence the client reads."""

    code = ErrorCode.INTERNAL


class InvalidRequest(OmniError):
    """The client sent something that cannot be served.

    The sentence names the field, what was found and what is allowed.
    """

    code = ErrorCode.INVALID_ARG

    def __init__(self, field: str, found: str, allowed: str) -> None:
        self.field = field
        self.found = found
        self.allowed = allowed
        super().__init__(f"{field}: {found}; allowed: {allowed}")


class Overloaded(OmniError):
    """The server has no room for the request now; the same request may succeed later."""

    code = ErrorCode.UNAVAILABLE


class RequestCancelled(OmniError):
    """The client went away or asked to stop."""

    code = ErrorCode.CANCELLED


class UpstreamError(OmniError):
    """Another model of the repository refused; its sentence already leads with the code and is passed on as it is."""
