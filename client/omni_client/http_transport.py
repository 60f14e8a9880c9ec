"""Triton's HTTP endpoint: one POST a request, answered with server-sent events; headers come with the first event."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque

import httpx

from omni_client.endpoint import Endpoint, Timeouts
from omni_client.errors import OmniClientError, RequestTimeout, ServerError, ServerUnavailable, error_from_server
from omni_client.http_message import EventReader, body_of, message_in_error_body, outputs_of, path_of
from omni_client.request import GenerateRequest
from omni_client.transport import Alarm, AsyncExchange, AsyncTransport, Exchange, Transport

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32)
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


_BROKEN = (httpx.HTTPError, httpx.StreamError)


def _error(error: httpx.HTTPError | httpx.StreamError) -> OmniClientError:
    """The exception for a failure of the connection."""
    words = str(error) or type(error).__name__
    if isinstance(error, httpx.StreamError):
        return ServerUnavailable("the connection was closed")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ServerUnavailable(f"cannot connect: {words}")
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeout(words)
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return ServerUnavailable(f"the connection broke: {words}")
    return ServerError(words)


class HttpExchange(Exchange):
    """Before the first response there is nothing to abort from another thread: `Transport.send` waits for it."""

    def __init__(self, response: httpx.Response, timeouts: Timeouts, remaining: float | None) -> None:
        self._response = response
        self._received = response.iter_bytes()
        self._reader = EventReader()
        self._events: deque[str] = deque()
        self._total = timeouts.total
        self._alarm = Alarm(remaining, self._disconnect)

    def receive(self) -> dict[str, str] | None:
        try:
            while not self._events:
                self._events.extend(self._reader.push(next(self._received)))
        except StopIteration:
            self._alarm.switch_off()
            return None
        except _BROKEN as error:
            if self._alarm.rang:
                raise RequestTimeout(f"no end of the answer within {self._total:g} s") from None
            raise _error(error) from None
        return outputs_of(self._events.popleft())

    def abort(self) -> None:
        self._alarm.switch_off()
        self._disconnect()
        self._response.close()

    def _disconnect(self) -> None:
        """Wake up whoever waits for data; closing alone does not."""
        if not self._response.is_closed:
            with contextlib.suppress(OSError):
                self._response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class HttpTransport(Transport):
    def __init__(self, endpoint: Endpoint, model: str, connect: float) -> None:
        self._path = path_of(model)
        self._connect = connect
        self._client = httpx.Client(
            base_url=endpoint.http_url, headers=_HEADERS, limits=_LIMITS, verify=endpoint.is_secure
        )

    def send(self, request: GenerateRequest, streaming: bool, timeouts: Timeouts) -> Exchange:
        body = body_of(request, streaming)
        started = time.monotonic()
        first_token = timeouts.first_token if streaming else None
        limit = min((seconds for seconds in (first_token, timeouts.total) if seconds is not None), default=None)
        what = "token" if limit is not None and limit == first_token else "answer"
        message = self._client.build_request(
            "POST", self._path, content=body, timeout=httpx.Timeout(limit, connect=self._connect, pool=None)
        )
        try:
            response = self._client.send(message, stream=True)
            # from here on only the total counts, however long the server is silent
            message.extensions["timeout"]["read"] = None
            if not response.is_success:
                response.read()
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            raise RequestTimeout(f"no {what} within {limit:g} s") from None
        except _BROKEN as error:
            raise _error(error) from None
        _check(response)
        remaining = None if timeouts.total is None else started + timeouts.total - time.monotonic()
        return HttpExchange(response, timeouts, remaining)

    def close(self) -> None:
        self._client.close()


class AsyncHttpExchange(AsyncExchange):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._received = response.aiter_bytes()
        self._reader = EventReader()
        self._events: deque[str] = deque()

    async def receive(self) -> dict[str, str] | None:
        try:
            while not self._events:
                self._events.extend(self._reader.push(await anext(self._received)))
        except StopAsyncIteration:
            return None
        except _BROKEN as error:
            raise _error(error) from None
        return outputs_of(self._events.popleft())

    async def abort(self) -> None:
        await self._response.aclose()


class AsyncHttpTransport(AsyncTransport):
    def __init__(self, endpoint: Endpoint, model: str, connect: float) -> None:
        self._path = path_of(model)
        self._client = httpx.AsyncClient(
            base_url=endpoint.http_url,
            headers=_HEADERS,
            limits=_LIMITS,
            verify=endpoint.is_secure,
            timeout=httpx.Timeout(None, connect=connect),
        )

    async def send(self, request: GenerateRequest, streaming: bool) -> AsyncExchange:
        message = self._client.build_request("POST", self._path, content=body_of(request, streaming))
        try:
            response = await self._client.send(message, stream=True)
            if not response.is_success:
                await response.aread()
        except _BROKEN as error:
            raise _error(error) from None
        _check(response)
        return AsyncHttpExchange(response)

    async def close(self) -> None:
        await self._client.aclose()


def _check(response: httpx.Response) -> None:
    """Raise the error of a response that was read because it is not 200."""
    if not response.is_success:
        raise error_from_server(message_in_error_body(response.text), response.status_code)
