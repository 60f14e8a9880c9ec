"""The client for programs with threads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from omni_client.answer import Answer, Piece
from omni_client.endpoint import DEFAULT_URL, Endpoint, Timeouts
from omni_client.errors import OmniClientError, RequestCancelled, ServerError
from omni_client.grpc_transport import GrpcTransport
from omni_client.http_transport import HttpTransport
from omni_client.request import GenerateRequest
from omni_client.transport import Exchange, Transport


class AnswerStream(Iterator[Piece]):
    """The pieces of one answer as they come. The request is sent when the first piece is asked for.

    Leaving the `with` block, `close()`, or an error cancels the request at the server if it still runs. Who then still
    asks for pieces of an incomplete answer, or waits for one in another thread, gets `RequestCancelled`. (Over HTTP a
    thread that waits for the first piece gets it with that piece: until then there is no connection to take away.)
    """

    def __init__(self, send: Callable[[], Exchange]) -> None:
        self._send = send
        self._exchange: Exchange | None = None
        self._closed = False
        self._complete = False
        self._over = False

    def __next__(self) -> Piece:
        """
        Raises:
            OmniClientError: the request failed.
        """
        if self._over:
            raise StopIteration
        try:
            piece = self._receive()
        except BaseException as error:
            closed_before = self._closed
            self._end()
            if isinstance(error, OmniClientError) and self._complete:
                raise StopIteration from None
            if isinstance(error, OmniClientError) and closed_before:
                raise RequestCancelled("the stream was closed") from None
            raise
        if piece is None:
            self._end()
            raise StopIteration
        return piece

    def _receive(self) -> Piece | None:
        """The next piece, None after the last."""
        if self._closed:
            raise RequestCancelled("the stream was closed")
        if self._exchange is None:
            self._exchange = self._send()
            if self._closed:  # by another thread, meanwhile
                self._exchange.abort()
        while (outputs := self._exchange.receive()) == {}:
            pass
        if outputs is None:
            if not self._complete:
                raise ServerError("the server ended the stream before the answer was complete")
            return None
        piece = Piece.from_outputs(outputs)
        self._complete = self._complete or piece.finish_reason is not None
        return piece

    def _end(self) -> None:
        self._over = True
        self.close()

    def close(self) -> None:
        """Cancel the request if it still runs."""
        self._closed = True
        if self._exchange is not None:
            self._exchange.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class OmniClient:
    """Talks to one model of one server; many threads may share it.

    >>> with OmniClient("grpc://127.0.0.1:8001") as client:
    ...     for piece in client.stream("What is a tensor?"):
    ...         print(piece.text, end="")

    All requests share one gRPC channel, or one pool of HTTP connections; `close` releases everything.
    """

    def __init__(self, url: str = DEFAULT_URL, *, model: str = "omni", timeouts: Timeouts | None = None) -> None:
        """
        Args:
            url: `grpc://host:port` or `http://host:port`; `grpcs` and `https` for TLS.
            model: the ensemble's name at the server.
            timeouts: limits for every request.

        Raises:
            OmniClientError: the URL is not of that form.
        """
        endpoint = Endpoint.parse(url)
        self._timeouts = timeouts or Timeouts()
        maker = GrpcTransport if endpoint.is_grpc else HttpTransport
        self._transport: Transport = maker(endpoint, model, self._timeouts.connect)
        self._closed = False
        self._streams: weakref.WeakSet[AnswerStream] = weakref.WeakSet()

    def generate(self, request: GenerateRequest | str) -> Answer:
        """Wait for the whole answer. A string is short for a request with this text.

        Raises:
            OmniClientError: the request failed; see `omni_client.errors`.
        """
        with self._stream(request, streaming=False) as stream:
            return Answer.from_pieces(stream)

    def stream(self, request: GenerateRequest | str) -> AnswerStream:
        """Get the answer in pieces. A string is short for a request with this text."""
        return self._stream(request, streaming=True)

    def _stream(self, request: GenerateRequest | str, streaming: bool) -> AnswerStream:
        if isinstance(request, str):
            request = GenerateRequest(text=request)
        wanted, chosen = request, streaming if request.streaming is None else request.streaming

        def send() -> Exchange:
            if self._closed:
                raise OmniClientError("the client is closed")
            return self._transport.send(wanted, chosen, self._timeouts)

        stream = AnswerStream(send)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """Cancel what still runs and close the connections."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
