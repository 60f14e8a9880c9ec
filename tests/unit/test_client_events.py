"""Taking a server-sent event stream apart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omni_client import InvalidRequestError, ServerError
from omni_client.http_message import EventReader, message_in_error_body, outputs_of

STREAM = (
    'data: {"text_output":"ü\u2028\x85\x0b"}\n\n: comment\n\nevent: x\r\ndata:1\r\ndata: 2\r\n\r\ndata: 3\r\r'.encode()
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_events_are_the_same_wherever_the_network_cuts_them(borders: list[int]) -> None:
    cuts = [0, *sorted(borders), len(STREAM)]
    reader = EventReader()
    events = [event for a, b in pairwise(cuts) for event in reader.push(STREAM[a:b])]
    events += reader.push(b"\n")  # the end of a CRLF, if it is one
    assert events == ['{"text_output":"ü\u2028\x85\x0b"}', "1\n2", "3"]


def test_an_event_that_is_not_complete_waits() -> None:
    reader = EventReader()
    assert reader.push(b"data: a\n") == []
    assert reader.push(b"\n") == ["a"]


def test_an_event_that_is_not_utf8_is_the_servers_fault() -> None:
    with pytest.raises(ServerError, match="allowed: UTF-8"):
        EventReader().push(b"data: \xff\n\n")


def test_only_known_outputs_are_taken() -> None:
    assert outputs_of('{"model_name": "omni", "text_output": "x", "sequence_id": 0}') == {"text_output": "x"}


@pytest.mark.parametrize("event", ["", "[]", "{"])
def test_an_event_that_is_no_object_is_the_servers_fault(event: str) -> None:
    with pytest.raises(ServerError, match=r"event: found .*; allowed: a JSON object"):
        outputs_of(event)


def test_an_error_event_is_raised() -> None:
    with pytest.raises(InvalidRequestError, match=r"^prompt: too long$"):
        outputs_of('{"error": "in ensemble \'omni\', [INVALID_ARG] prompt: too long"}')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": "no"}', "no"),
        ('data: {"error": "no"}\n\n', "no"),
        ("<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
        ("[]", "[]"),
        ("", ""),
    ],
)
def test_the_message_is_found_in_any_error_body(body: str, message: str) -> None:
    assert message_in_error_body(body) == message
