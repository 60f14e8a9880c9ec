"""Whatever a client sends, it gets one sentence that names what is wrong, and the next request is served."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from demo.make_media import beeps, picture, video, wav
from tests.server.metrics import Metrics, wait_until
from tests.server.raw import infer

ASK = {"text_input": "What is this?", "max_tokens": 4}


def jpeg() -> bytes:
    buffer = io.BytesIO()
    picture().save(buffer, "JPEG")
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def strip(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def hour_of_silence() -> bytes:
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC")
    return buffer.getvalue()


def chat(*parts: Any, role: str = "user") -> str:
    return json.dumps([{"role": role, "content": list(parts)}])


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    # name: inputs, words the sentence holds
    "neither text nor messages": ({"max_tokens": 4}, "text_input", "messages"),
    "both text and messages": (
        {"text_input": "a", "messages": chat({"type": "text", "text": "a"})},
        "text_input",
        "messages",
    ),
    "malformed JSON": ({"messages": "[{"}, "messages", "JSON"),
    "messages that are no list": ({"messages": '{"role": "user"}'}, "messages", "list"),
    "an empty list of messages": ({"messages": "[]"}, "messages", "allowed"),
    "an unknown role": ({"messages": chat({"type": "text", "text": "a"}, role="robot")}, "role", "robot"),
    "null content": ({"messages": '[{"role": "user", "content": null}]'}, "content", "allowed"),
    "an unknown part type": ({"messages": chat({"type": "smell"})}, "smell", "image_url"),
    "an index out of range": ({"messages": chat({"type": "image", "index": 3}), "image": [jpeg()]}, "index", "3"),
    "a web address": (
        {"messages": chat({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})},
        "image_url",
        "data:",
    ),
    "bad base64": (
        {"messages": chat({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}})},
        "image_url",
        "base64",
    ),
    "a truncated JPEG": ({**ASK, "image": [jpeg()[:1500]]}, "image[0]", "allowed"),
    "a truncated MP4": ({**ASK, "video": [video()[:4000]]}, "video[0]", "allowed"),
    "a text file called .png": ({**ASK, "image": [b"hello, I am a text file\n" * 20]}, "image[0]", "allowed"),
    "zero-byte image": ({**ASK, "image": [b""]}, "image[0]", "allowed"),
    "zero-byte sound": ({**ASK, "audio": [b""]}, "audio[0]", "allowed"),
    "zero-byte video": ({**ASK, "video": [b""]}, "video[0]", "allowed"),
    "an extreme aspect ratio": ({**ASK, "image": [strip(4000, 4)]}, "image[0]", "200"),
    "a decompression bomb": ({**ASK, "image": [png_header(60000, 60000)]}, "image[0]", "pixels"),
    "an hour of silence": ({**ASK, "audio": [hour_of_silence()]}, "audio[0]", "1800"),
    "a prompt over the model length": ({"text_input": "word " * 60_000}, "prompt", "60009 tokens"),
    "prompt and answer over the model length": ({"text_input": "a", "max_tokens": 1_000_000}, "max_tokens", "allowed"),
    "a NaN temperature": ({**ASK, "temperature": float("nan")}, "temperature", "nan"),
    "a negative temperature": ({**ASK, "temperature": -1.0}, "temperature", "-1"),
    "a negative top_k": ({**ASK, "top_k": -5}, "top_k", "-5"),
    "a top_p over one": ({**ASK, "top_p": 1.5}, "top_p", "1.5"),
    "an infinite penalty": ({**ASK, "repetition_penalty": float("inf")}, "repetition_penalty", "inf"),
    "no tokens to generate": ({"text_input": "a", "max_tokens": 0}, "max_tokens", "0"),
    "too many logprobs": ({**ASK, "logprobs": 1000}, "logprobs", "1000"),
    "an empty stop string": ({**ASK, "stop": [""]}, "stop", "allowed"),
    "invalid UTF-8": ({"text_input": b"\xff\xfe\xfa"}, "text_input", "UTF-8"),
    "tools that are no list": ({**ASK, "tools": '{"type": "function"}'}, "tools", "list"),
}


@pytest.fixture(scope="module")
def address(grpc_url: str) -> str:
    return grpc_url


@pytest.fixture(autouse=True)
def the_next_request_is_served(address: str) -> Iterator[None]:
    yield
    reply = infer(address, {"text_input": "Say hello.", "max_tokens": 3, "ignore_eos": True})
    assert reply.error is None and reply.finish_reason == "length"


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence_that_names_it(address: str, case: str) -> None:
    inputs, *words = CASES[case]
    error = infer(address, inputs).error
    assert error is not None and "[INVALID_ARG] " in error
    assert all(word.lower() in error.lower() for word in words), error


def test_a_request_without_any_input_is_refused(http_url: str) -> None:
    answer = httpx.post(f"{http_url}/v2/models/omni/generate", json={})
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_http_gives_bad_input_the_status_400(http_url: str) -> None:
    answer = httpx.post(f"{http_url}/v2/models/omni/generate", json={"text_input": "a", "temperature": -1.0})
    assert answer.status_code == 400
    assert "temperature" in answer.json()["error"]


@pytest.mark.parametrize("megabytes", [7, 20, 40])
@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_a_large_http_body_is_refused_with_a_sentence(http_url: str, route: str, megabytes: int) -> None:
    body = {"text_input": "a" * (megabytes << 20)}
    answer = httpx.post(f"{http_url}/v2/models/omni/{route}", json=body, timeout=60.0)
    assert answer.status_code == 400
    assert "allowed: at most" in answer.text


def test_media_in_messages_are_found_however_they_are_spelled(http_url: str) -> None:
    encoded = base64.b64encode(jpeg()).decode()
    part = '{"type": "image_url", "image_url": "D\\u0041TA:image/jpeg;base64,' + encoded + '"}'
    spelled = '[{"role": "user", "content": [' + part + "]}]"
    assert json.loads(spelled)
    answer = httpx.post(f"{http_url}/v2/models/omni/generate", json={"messages": spelled, "max_tokens": 2})
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.json()["usage"])["prompt_tokens_details"]["image_tokens"] > 0


def test_a_sound_whose_header_claims_more_than_is_there_is_taken_as_far_as_it_goes(address: str) -> None:
    streamed = bytearray(wav(beeps()))
    streamed[40:44] = b"\xff\xff\xff\xff"
    reply = infer(address, {**ASK, "audio": [bytes(streamed)]})
    assert reply.error is None


def test_refused_requests_leave_nothing_behind(address: str, metrics: Metrics) -> None:
    for inputs, *_ in CASES.values():
        infer(address, inputs)
    assert wait_until(metrics.idle, 2.0)
