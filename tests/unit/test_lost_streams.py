"""Streams that Triton has silently given up are found, and slow ones are not mistaken for them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from python_backends.triton.lost_streams import LOST_SECONDS, LostStreams


@pytest.fixture
def watch() -> Iterator[LostStreams]:
    streams = LostStreams(lambda _key: None)
    yield streams
    streams.close()


def test_a_stream_without_chunks_is_lost_and_reported_once(watch: LostStreams) -> None:
    now = time.monotonic()
    watch.seen("quiet", now, last=False)
    assert watch.take_lost(now + LOST_SECONDS - 0.1) == []
    assert watch.take_lost(now + LOST_SECONDS + 0.1) == ["quiet"]
    assert watch.take_lost(now + LOST_SECONDS + 0.2) == []


def test_a_stream_that_ended_is_not_watched(watch: LostStreams) -> None:
    now = time.monotonic()
    watch.seen("done", now, last=False)
    watch.seen("done", now, last=True)
    assert watch.take_lost(now + 10 * LOST_SECONDS) == []


def test_while_postprocess_lags_behind_no_stream_is_lost(watch: LostStreams) -> None:
    now = time.monotonic()
    watch.seen("slow", now - 20.0, last=False)  # this chunk waited for 20 s, and so may the next one
    assert watch.take_lost(now + LOST_SECONDS - 0.5) == []
