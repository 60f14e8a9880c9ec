"""The client for asyncio."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from omni_client.answer import Answer, Piece
from omni_client.endpoint import DEFAULT_URL, Endpoint, Timeouts
from omni_client.errors import OmniClientError, RequestCancelled, RequestTimeout, ServerError
from omni_client.grpc_transport import AsyncGrpcTransport
from omni_client.http_transport import AsyncHttpTransport
from omni_client.request import GenerateRequest
from omni_client.transport import AsyncExchange, AsyncTransport


class AsyncAnswerStream(AsyncIterator[Piece]):
    """The pieces of one answer as they come. The request is sent when the first piece is asked for.

    Leaving the `async with` block, `aclose()`, an error or the cancellation of the task that waits cancels the request
    at the server if it still runs. Who then still asks for pieces of an incomplete answer, or waits for one in another
    task, gets `RequestCancelled`.
    """

    def __init__(
        self, send: Callable[[], Awaitable[AsyncExchange]], first_token: float | None, total: float | None
    ) -> None:
        self._send = send
        self._first_token = first_token
        self._total = total
        self._started = 0.0
        self._sending: asyncio.Future[AsyncExchange] | None = None
        self._exchange: AsyncExchange | None = None
        self._any = False
        self._closed = False
        self._complete = False
        self._over = False

    async def __anext__(self) -> Piece:
        """
        Raises:
            OmniClientError: the request failed.
        """
        if self._over:
            raise StopAsyncIteration
        try:
            piece = await self._receive()
        except BaseException as error:
            closed_before = self._closed
            await self._end()
            # closing from another task breaks the wait with an error of the connection, or with a cancellation that
            # nobody asked of this task
            task = asyncio.current_task()
            cancelled = isinstance(error, asyncio.CancelledError) and not (task and task.cancelling())
            if isinstance(error, OmniClientError) and self._complete:
                raise StopAsyncIteration from None
            if (isinstance(error, OmniClientError) or cancelled) and closed_before:
                raise RequestCancelled("the stream was closed") from None
            raise
        if piece is None:
            await self._end()
            raise StopAsyncIteration
        return piece

    async def _receive(self) -> Piece | None:
        """The next piece, None after the last."""
        if self._closed:
            raise RequestCancelled("the stream was closed")
        outputs = await self._outputs()
        if outputs is None:
            if not self._complete:
                raise ServerError("the server ended the stream before the answer was complete")
            return None
        self._any = True
        piece = Piece.from_outputs(outputs)
        self._complete = self._complete or piece.finish_reason is not None
        return piece

    async def _end(self) -> None:
        self._over = True
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the request if it still runs."""
        self._closed = True
        if self._exchange is not None:
            await self._exchange.abort()
        elif self._sending is not None:
            self._sending.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _outputs(self) -> dict[str, str] | None:
        """The next response that is not empty, within the limits."""
        self._started = self._started or asyncio.get_running_loop().time()
        limits = [(self._total, "end of the answer")]
        if not self._any:
            limits.append((self._first_token, "token"))
        seconds, what = min(((s, w) for s, w in limits if s is not None), default=(None, ""))
        try:
            async with asyncio.timeout_at(None if seconds is None else self._started + seconds):
                if self._exchange is None:
                    self._sending = asyncio.ensure_future(self._send())
                    self._exchange = await self._sending
                    if self._closed:  # by another task, meanwhile
                        await self._exchange.abort()
                while (outputs := await self._exchange.receive()) == {}:
                    pass
                return outputs
        except TimeoutError:
            raise RequestTimeout(f"no {what} within {seconds:g} s") from None


class AsyncOmniClient:
    """`OmniClient` for asyncio; belongs to the event loop that it is first used in.

    >>> async with AsyncOmniClient("grpc://127.0.0.1:8001") as client:
    ...     async for piece in client.stream("What is a tensor?"):
    ...         print(piece.text, end="")
    """

    def __init__(self, url: str = DEFAULT_URL, *, model: str = "omni", timeouts: Timeouts | None = None) -> None:
        """As `OmniClient`."""
        self._endpoint = Endpoint.parse(url)
        self._model = model
        self._timeouts = timeouts or Timeouts()
        self._transport: AsyncTransport | None = None
        self._closed = False
        self._streams: weakref.WeakSet[AsyncAnswerStream] = weakref.WeakSet()

    async def generate(self, request: GenerateRequest | str) -> Answer:
        """As `OmniClient.generate`."""
        async with self._stream(request, streaming=False) as stream:
            return Answer.from_pieces([piece async for piece in stream])

    def stream(self, request: GenerateRequest | str) -> AsyncAnswerStream:
        """As `OmniClient.stream`."""
        return self._stream(request, streaming=True)

    def _stream(self, request: GenerateRequest | str, streaming: bool) -> AsyncAnswerStream:
        if isinstance(request, str):
            request = GenerateRequest(text=request)
        wanted, chosen = request, streaming if request.streaming is None else request.streaming

        async def send() -> AsyncExchange:
            return await self._connection().send(wanted, chosen)

        stream = AsyncAnswerStream(send, self._timeouts.first_token if chosen else None, self._timeouts.total)
        self._streams.add(stream)
        return stream

    def _connection(self) -> AsyncTransport:
        """Made late, because it binds itself to the running event loop."""
        if self._closed:
            raise OmniClientError("the client is closed")
        if self._transport is None:
            maker = AsyncGrpcTransport if self._endpoint.is_grpc else AsyncHttpTransport
            self._transport = maker(self._endpoint, self._model, self._timeouts.connect)
        return self._transport

    async def close(self) -> None:
        """As `OmniClient.close`."""
        self._closed = True
        for stream in list(self._streams):
            await stream.aclose()
        if self._transport is not None:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
