"""What can go wrong, as exceptions, and how a server's words are turned into them."""

from __future__ import annotations

import re


class OmniClientError(Exception):
    """Base of everything that this package raises on purpose."""


class InvalidRequestError(OmniClientError):
    """The request cannot be served as it is; the message names the field, what was found and what is allowed."""


class ServerOverloaded(OmniClientError):
    """The server has no room for the request now; the same request may succeed later."""


class RequestTimeout(OmniClientError):
    """The answer, or its first token, took longer than the client or the server allows."""


class RequestCancelled(OmniClientError):
    """The request was cancelled, by this client or by the server."""


class ServerUnavailable(OmniClientError):
    """The server cannot be reached, or does not serve this model now."""


class ServerError(OmniClientError):
    """The server failed."""


# what Triton puts in front of a model's sentence
_PREFIX = re.compile(r"^(?:in ensemble '[^']*', |\[request id: [^\]]*\] )+")
_CODE = re.compile(r"^\[(INVALID_ARG|UNAVAILABLE|CANCELLED|INTERNAL)\] ")
_BY_CODE: dict[str, type[OmniClientError]] = {
    "INVALID_ARG": InvalidRequestError,
    "UNAVAILABLE": ServerOverloaded,
    "CANCELLED": RequestCancelled,
    "INTERNAL": ServerError,
}
# Triton's own sentences, which carry no code on a stream (Triton 24.10)
_BY_SENTENCE: tuple[tuple[re.Pattern[str], type[OmniClientError]], ...] = (
    (re.compile(r"maximum queue size|max_queue_size", re.I), ServerOverloaded),
    (re.compile(r"timeout expired", re.I), RequestTimeout),
    (re.compile(r"request (was )?cancelled", re.I), RequestCancelled),
    (
        re.compile(r"not (at )?ready|no available versions|not healthy|server (is )?(stopping|exiting)", re.I),
        ServerUnavailable,
    ),
    (
        re.compile(r"unknown model|unexpected (shape|inference input|datatype|total byte size)", re.I),
        InvalidRequestError,
    ),
    (re.compile(r"inputs? but got|must specify|request JSON|unable to parse", re.I), InvalidRequestError),
)
_BY_HTTP_STATUS: dict[int, type[OmniClientError]] = {
    404: InvalidRequestError,
    408: RequestTimeout,
    413: InvalidRequestError,
    429: ServerOverloaded,
    502: ServerUnavailable,
    503: ServerUnavailable,
    504: RequestTimeout,
}


def error_from_server(message: str, http_status: int | None = None) -> OmniClientError:
    """The exception for an error message of the server.

    The server's models put `[CODE] ` in front of their sentences, which says all. Triton's own messages are told by
    their wording, and only then by the HTTP status: on a stream Triton answers 400 whatever went wrong.
    """
    sentence = _PREFIX.sub("", message.strip())
    if code := _CODE.match(sentence):
        return _BY_CODE[code.group(1)](sentence[code.end() :])
    for pattern, kind in _BY_SENTENCE:
        if pattern.search(sentence):
            return kind(sentence)
    if http_status in _BY_HTTP_STATUS:
        return _BY_HTTP_STATUS[http_status](sentence or f"HTTP status {http_status}")
    return ServerError(sentence or (f"HTTP status {http_status}" if http_status else "the server gave no reason"))
