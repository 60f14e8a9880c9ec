"""What a user of the client library gets, over both protocols, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from omni_client import (
    Answer,
    AsyncOmniClient,
    GenerateRequest,
    InvalidRequestError,
    OmniClient,
    OmniClientError,
    Piece,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ServerOverloaded,
    ServerUnavailable,
    Timeouts,
    Usage,
)

from tests.unit.scripted_server import ScriptedServer

USAGE = Usage(3, 2, 5, text_tokens=3, cached_tokens=1, times_ms={"queue": 1.5})
HELLO = Answer("Hello\u2028", "stop", USAGE, {"content": [{"token": "Hel"}, {"token": "lo"}]})
QUICK = 0.05  # a limit that a server which never answers is sure to pass


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    running = ScriptedServer()
    yield running
    running.close()


@pytest.fixture(params=["grpc", "http"])
def url(request: pytest.FixtureRequest, server: ScriptedServer) -> str:
    server.gone.clear()
    return server.url(request.param)


@pytest.fixture(params=["threads", "asyncio"])
def use_asyncio(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "asyncio")


def ask(
    url: str,
    use_asyncio: bool,
    request: str | GenerateRequest,
    timeouts: Timeouts | None = None,
    model: str = "omni",
    enough: int = 100,
) -> tuple[list[Piece], OmniClientError | None]:
    """Stream an answer; the pieces that came, at most `enough` of them, and the error after them."""
    pieces: list[Piece] = []

    def ask_with_threads() -> None:
        with OmniClient(url, model=model, timeouts=timeouts) as client, client.stream(request) as stream:
            for piece in stream:
                pieces.append(piece)
                if len(pieces) == enough:
                    break

    async def ask_with_asyncio() -> None:
        async with AsyncOmniClient(url, model=model, timeouts=timeouts) as client, client.stream(request) as stream:
            async for piece in stream:
                pieces.append(piece)
                if len(pieces) == enough:
                    break

    try:
        if use_asyncio:
            asyncio.run(ask_with_asyncio())
        else:
            ask_with_threads()
    except OmniClientError as error:
        return pieces, error
    return pieces, None


def test_an_answer_comes_in_pieces(url: str, use_asyncio: bool) -> None:
    pieces, error = ask(url, use_asyncio, "hello")
    assert error is None
    assert [piece.text for piece in pieces] == ["Hel", "lo\u2028", ""]
    assert [piece.finish_reason for piece in pieces] == [None, None, "stop"]
    assert pieces[-1].usage == USAGE
    assert Answer.from_pieces(pieces) == HELLO


def test_a_whole_answer_is_put_together(url: str, server: ScriptedServer) -> None:
    async def ask_with_asyncio() -> Answer:
        async with AsyncOmniClient(url) as client:
            return await client.generate("hello")

    with OmniClient(url) as client:
        assert client.generate("hello") == HELLO
    assert server.requests[-1]["streaming"] in (False, b"\0")
    assert asyncio.run(ask_with_asyncio()) == HELLO
    assert server.requests[-1]["streaming"] in (False, b"\0")


def test_the_request_says_whether_it_wants_pieces(url: str, server: ScriptedServer) -> None:
    with OmniClient(url) as client:
        list(client.stream("hello"))
        assert server.requests[-1]["streaming"] in (True, b"\1")
        list(client.stream(GenerateRequest(text="hello", streaming=False)))
        assert server.requests[-1]["streaming"] in (False, b"\0")


def test_usage_goes_back_to_openais_form() -> None:
    assert Usage.from_dict(USAGE.to_dict()) == USAGE
    assert USAGE.to_dict()["prompt_tokens_details"]["text_tokens"] == 3


@pytest.mark.parametrize(
    ("text", "before", "kind", "message"),
    [
        ("refuse", 0, InvalidRequestError, "image[0]: no image; allowed: JPEG or PNG"),
        ("full", 0, ServerOverloaded, "the queue is full"),
        ("fail", 1, ServerError, "it broke"),
        ("cut", 1, ServerError, "the server ended the stream before the answer was complete"),
    ],
)
def test_an_error_comes_after_the_pieces_before_it(
    url: str, use_asyncio: bool, text: str, before: int, kind: type[OmniClientError], message: str
) -> None:
    pieces, error = ask(url, use_asyncio, text)
    assert len(pieces) == before
    assert type(error) is kind
    assert str(error) == message


def test_a_model_that_is_not_there_is_an_invalid_request(server: ScriptedServer, use_asyncio: bool) -> None:
    _, error = ask(server.http_url, use_asyncio, "hello", model="other")
    assert isinstance(error, InvalidRequestError)
    assert "unknown model: 'other'" in str(error)


def test_leaving_the_stream_cancels_the_request_at_the_server(
    url: str, use_asyncio: bool, server: ScriptedServer
) -> None:
    pieces, error = ask(url, use_asyncio, "wait", enough=1)
    assert (len(pieces), error) == (1, None)
    assert server.gone.wait(10)


def test_a_stream_that_is_dropped_cancels_the_request_at_the_server(url: str, server: ScriptedServer) -> None:
    with OmniClient(url) as client:
        assert next(client.stream("wait")).text == "Hel"
        assert server.gone.wait(10)


def test_the_first_token_may_take_only_so_long(url: str, use_asyncio: bool, server: ScriptedServer) -> None:
    pieces, error = ask(url, use_asyncio, "silent", Timeouts(first_token=QUICK))
    assert pieces == []
    assert isinstance(error, RequestTimeout)
    assert str(error) == "no token within 0.05 s"
    assert server.gone.wait(10)


def test_the_whole_answer_may_take_only_so_long(url: str, use_asyncio: bool, server: ScriptedServer) -> None:
    pieces, error = ask(url, use_asyncio, "wait", Timeouts(total=0.6))
    assert isinstance(error, RequestTimeout)
    assert (len(pieces), str(error)) == (1, "no end of the answer within 0.6 s")
    assert server.gone.wait(10)


def test_an_answer_in_one_piece_has_no_first_token_to_wait_for(url: str, use_asyncio: bool) -> None:
    request = GenerateRequest(text="silent", streaming=False)
    _, error = ask(url, use_asyncio, request, Timeouts(first_token=QUICK / 2, total=QUICK))
    assert isinstance(error, RequestTimeout)
    assert "answer within 0.05 s" in str(error)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_is_not_there_is_unavailable(scheme: str, use_asyncio: bool) -> None:
    with socket.socket() as bound:  # a port that is taken, but where nobody listens
        bound.bind(("127.0.0.1", 0))
        _, error = ask(f"{scheme}://127.0.0.1:{bound.getsockname()[1]}", use_asyncio, "hello")
    assert isinstance(error, ServerUnavailable)


def test_a_stream_closed_by_another_thread_ends_at_once(url: str, server: ScriptedServer) -> None:
    with OmniClient(url) as client, client.stream("wait") as stream:
        next(stream)
        threading.Timer(QUICK, stream.close).start()
        with pytest.raises(RequestCancelled, match="the stream was closed"):
            next(stream)
        assert server.gone.wait(10)
        assert list(stream) == []


def test_a_stream_closed_between_two_pieces_does_not_look_complete(url: str, use_asyncio: bool) -> None:
    async def close_and_go_on() -> list[Piece]:
        async with AsyncOmniClient(url) as client:
            stream = client.stream("hello")
            await anext(stream)
            await stream.aclose()
            return [piece async for piece in stream]

    with pytest.raises(RequestCancelled, match="the stream was closed"):
        if use_asyncio:
            asyncio.run(close_and_go_on())
        else:
            with OmniClient(url) as client:
                stream = client.stream("hello")
                next(stream)
                stream.close()
                list(stream)


def test_a_client_closed_by_another_thread_ends_its_streams(url: str, server: ScriptedServer) -> None:
    client = OmniClient(url)
    stream = client.stream("wait")
    next(stream)
    threading.Timer(QUICK, client.close).start()
    with pytest.raises(RequestCancelled):
        next(stream)
    assert server.gone.wait(10)
    with pytest.raises(OmniClientError, match="the client is closed"):
        client.generate("hello")


@pytest.mark.parametrize("text", ["wait", "silent"])
def test_a_stream_closed_by_another_task_ends_at_once(url: str, server: ScriptedServer, text: str) -> None:
    async def ask() -> None:
        async with AsyncOmniClient(url) as client:
            stream = client.stream(text)
            reading = asyncio.create_task(collect(stream))
            while not server.requests:
                await asyncio.sleep(0.001)
            await stream.aclose()
            with pytest.raises(RequestCancelled):
                await reading

    async def collect(stream: object) -> list[Piece]:
        return [piece async for piece in stream]  # type: ignore[attr-defined]

    server.requests.clear()
    asyncio.run(ask())
    assert server.gone.wait(10)


def test_a_cancelled_task_cancels_its_request(url: str, server: ScriptedServer) -> None:
    async def ask() -> None:
        async with AsyncOmniClient(url) as client:
            waiting = asyncio.create_task(client.generate("silent"))
            while not server.requests:
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    server.requests.clear()
    asyncio.run(ask())
    assert server.gone.wait(10)


def test_many_threads_share_one_client(url: str) -> None:
    answers: list[Answer] = []
    with OmniClient(url) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.generate("hello"))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [HELLO] * 12


def test_hundreds_of_calls_open_one_connection_and_leave_nothing(url: str) -> None:
    process = psutil.Process()
    port = int(url.rpartition(":")[2])

    def connections() -> set[int]:
        return {c.laddr.port for c in process.net_connections("tcp") if c.raddr and c.raddr.port == port}

    earlier = connections()  # of other tests, if they are still closing
    with OmniClient(url) as client:
        client.generate("empty")
        threads = threading.active_count()
        for _ in range(200):
            client.generate("empty")
        opened = connections() - earlier
        assert len(opened) == 1
        assert threading.active_count() <= threads + 2  # alarms and gRPC's senders that are just ending
    deadline = time.monotonic() + 10
    while connections() & opened and time.monotonic() < deadline:  # gRPC closes in the background
        time.sleep(0.01)
    assert not connections() & opened
