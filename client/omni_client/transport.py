"""What the client needs of a protocol. gRPC and HTTP stand beside this module, each for threads and for asyncio."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from omni_client.endpoint import Timeouts
from omni_client.request import GenerateRequest


class Exchange(ABC):
    """One request that was sent, and its responses."""

    @abstractmethod
    def receive(self) -> dict[str, str] | None:
        """Wait for the next response: its outputs by name, or None when there are no more.

        Raises:
            OmniClientError: the server or the connection failed, or a limit passed.
        """

    @abstractmethod
    def abort(self) -> None:
        """End the request at the server if it still runs, and free everything. Any thread may call it, and often."""


class Transport(ABC):
    """A connection, or a pool of them, to one server. Many threads may use it at once."""

    @abstractmethod
    def send(self, request: GenerateRequest, streaming: bool, timeouts: Timeouts) -> Exchange:
        """Send a request.

        Raises:
            OmniClientError: the request is not well-formed, or the server cannot be reached.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class AsyncExchange(ABC):
    """`Exchange` for asyncio. It needs no limits of its own: cancelling `receive` ends it."""

    @abstractmethod
    async def receive(self) -> dict[str, str] | None:
        """As `Exchange.receive`."""

    @abstractmethod
    async def abort(self) -> None:
        """As `Exchange.abort`."""


class AsyncTransport(ABC):
    """`Transport` for asyncio."""

    @abstractmethod
    async def send(self, request: GenerateRequest, streaming: bool) -> AsyncExchange:
        """As `Transport.send`."""

    @abstractmethod
    async def close(self) -> None:
        """As `Transport.close`."""


class Alarm:
    """Calls `action` after some seconds, on a thread of its own, unless it is switched off before."""

    def __init__(self, seconds: float | None, action: Callable[[], object]) -> None:
        self.rang = False
        self._timer: threading.Timer | None = None
        if seconds is not None:
            self._timer = threading.Timer(max(seconds, 0.0), self._ring, [action])
            self._timer.daemon = True
            self._timer.start()

    def _ring(self, action: Callable[[], object]) -> None:
        self.rang = True
        action()

    def switch_off(self) -> None:
        """The action is not called any more, unless it already was."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
