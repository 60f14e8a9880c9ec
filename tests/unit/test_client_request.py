"""A request as the tensors of gRPC and as the JSON of HTTP."""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omni_client import GenerateRequest, InvalidRequestError, OmniClientError, Sampling, Timeouts
from omni_client.endpoint import Endpoint
from omni_client.grpc_message import message_of
from omni_client.http_message import body_of
from omni_client.inputs import Input
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

EVERYTHING = Sampling(
    max_tokens=5,
    temperature=0,
    top_k=1,
    top_p=0.5,
    repetition_penalty=1.5,
    seed=2**64 - 1,
    stop=["a", "ß"],
    ignore_eos=True,
    logprobs=3,
)


def tensors(request: GenerateRequest, streaming: bool = True) -> dict[str, tuple[str, list[int], Any]]:
    message = message_of(request, "omni", streaming)
    formats = {"INT32": "<i", "UINT64": "<Q", "FP32": "<f", "BOOL": "<?"}
    result = {}
    for item, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        known = item.datatype in formats
        value = struct.unpack(formats[item.datatype], raw)[0] if known else list(deserialize_bytes_tensor(raw))
        result[item.name] = (item.datatype, list(item.shape), value)
    return result


def body(request: GenerateRequest, streaming: bool = True) -> dict[str, Any]:
    value = json.loads(body_of(request, streaming))
    assert isinstance(value, dict)
    return value


def test_all_settings_become_tensors_with_a_batch_of_one() -> None:
    request = GenerateRequest(text="Hi ü", sampling=EVERYTHING, tools=[{"type": "function"}], use_audio_in_video=False)
    assert tensors(request) == {
        "max_tokens": ("INT32", [1, 1], 5),
        "temperature": ("FP32", [1, 1], 0.0),
        "top_k": ("INT32", [1, 1], 1),
        "top_p": ("FP32", [1, 1], 0.5),
        "repetition_penalty": ("FP32", [1, 1], 1.5),
        "seed": ("UINT64", [1, 1], 2**64 - 1),
        "ignore_eos": ("BOOL", [1, 1], True),
        "logprobs": ("INT32", [1, 1], 3),
        "use_audio_in_video": ("BOOL", [1, 1], False),
        "streaming": ("BOOL", [1, 1], True),
        "stop": ("BYTES", [1, 2], [b"a", "ß".encode()]),
        "tools": ("BYTES", [1, 1], [b'[{"type": "function"}]']),
        "text_input": ("BYTES", [1, 1], ["Hi ü".encode()]),
    }


def test_the_same_settings_become_json() -> None:
    request = GenerateRequest(text="Hi ü", sampling=EVERYTHING, tools=[{"type": "function"}], use_audio_in_video=False)
    assert body(request, streaming=False) == {
        "max_tokens": 5,
        "temperature": 0.0,
        "top_k": 1,
        "top_p": 0.5,
        "repetition_penalty": 1.5,
        "seed": 2**64 - 1,
        "ignore_eos": True,
        "logprobs": 3,
        "use_audio_in_video": False,
        "streaming": False,
        "stop": ["a", "ß"],
        "tools": '[{"type": "function"}]',
        "text_input": "Hi ü",
    }


def test_what_is_not_set_is_not_sent() -> None:
    assert set(tensors(GenerateRequest(text=""))) == {"text_input", "streaming"}
    assert set(body(GenerateRequest(text=""))) == {"text_input", "streaming"}


def test_request_id_and_priority_travel_beside_the_tensors() -> None:
    request = GenerateRequest(text="x", request_id="me", priority=1)
    message = message_of(request, "omni", streaming=True)
    assert (message.model_name, message.id, message.parameters["priority"].uint64_param) == ("omni", "me", 1)
    assert (body(request)["id"], body(request)["priority"]) == ("me", 1)


def test_files_travel_over_grpc_as_they_are_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF\0\xff")
    request = GenerateRequest(
        text="x", image=[b"\xff\xd8", b""], audio=[tmp_path / "a.wav"], video=[str(tmp_path / "a.wav")]
    )
    sent = tensors(request)
    assert sent["image"] == ("BYTES", [1, 2], [b"\xff\xd8", b""])
    assert sent["audio"] == sent["video"] == ("BYTES", [1, 1], [b"RIFF\0\xff"])


def data_url(data: bytes) -> dict[str, str]:
    return {"url": "data:application/octet-stream;base64," + base64.b64encode(data).decode()}


def test_files_travel_over_http_as_data_urls_in_the_order_of_the_contract() -> None:
    sent = body(GenerateRequest(text="What?", video=[b"v"], audio=[b"s"], image=[b"i", b"j"]))
    assert "text_input" not in sent
    assert json.loads(sent["messages"]) == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": data_url(b"i")},
                {"type": "image_url", "image_url": data_url(b"j")},
                {"type": "audio_url", "audio_url": data_url(b"s")},
                {"type": "video_url", "video_url": data_url(b"v")},
                {"type": "text", "text": "What?"},
            ],
        }
    ]


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "image", "index": 1}, {"type": "image", "index": 0}, {"type": "text", "text": "?"}],
    },
]


def test_messages_that_refer_to_files_stay_as_they_are_over_grpc() -> None:
    sent = tensors(GenerateRequest(messages=MESSAGES, image=[b"i", b"j"]))
    assert json.loads(sent["messages"][2][0]) == MESSAGES


def test_messages_that_refer_to_files_hold_them_over_http() -> None:
    sent = json.loads(body(GenerateRequest(messages=MESSAGES, image=[b"i", b"j"]))["messages"])
    assert sent[0] == MESSAGES[0]
    assert [part.get("image_url") for part in sent[1]["content"]] == [data_url(b"j"), data_url(b"i"), None]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([b"i"], r"messages\[1\]\.content\[0\]\.index: found 1; allowed: the index of one of 1 image inputs"),
        ([b"i", b"j", b"k"], r"image\[2\]: found no part that refers to it"),
    ],
)
def test_over_http_files_and_references_must_match(images: list[bytes], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        body(GenerateRequest(messages=MESSAGES, image=images))


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(temperature=math.nan), "temperature: found nan; allowed: a finite number"),
        (Sampling(top_p=math.inf), "top_p: found inf"),
        (Sampling(temperature=1e300), "temperature: found 1e"),
        (Sampling(max_tokens=2**31), "max_tokens: found 2147483648; allowed: a whole number of 32 bits"),
        (Sampling(seed=-1), "seed: found -1; allowed: a whole number from 0"),
        (Sampling(top_k=True), "top_k: found True"),
        (Sampling(max_tokens="5"), "max_tokens: found '5'"),  # type: ignore[arg-type]
        (Sampling(stop="abc"), "stop: found the string 'abc'; allowed: a list of strings"),
        (Sampling(stop=["\ud800"]), "stop: found half a surrogate pair"),
    ],
)
@pytest.mark.parametrize("encode", [tensors, body])
def test_a_value_that_no_tensor_can_hold_is_named(sampling: Sampling, message: str, encode: Any) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        encode(GenerateRequest(text="x", sampling=sampling))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "found neither"),
        ({"text": "x", "messages": []}, "found both"),
        ({"text": "x", "priority": 0}, "priority: found 0; allowed: 1"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        GenerateRequest(**arguments)


def test_messages_that_json_cannot_express_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="messages: not expressible in JSON"):
        tensors(GenerateRequest(messages=[{"role": object()}]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"video\[1\]: cannot read .*nope\.mp4: No such file or directory"):
        tensors(GenerateRequest(text="x", video=[b"v", tmp_path / "nope.mp4"]))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_strings_are_encoded_as_tritonclient_does(values: list[bytes]) -> None:
    expected = serialize_byte_tensor(np.array(values, dtype=np.object_)).item()
    assert Input("image", "BYTES", tuple(values)).raw() == expected


@pytest.mark.parametrize(
    ("url", "endpoint", "address"),
    [
        ("grpc://host:1", Endpoint("grpc", "host", 1), "host:1"),
        ("host", Endpoint("grpc", "host", 8001), "host:8001"),
        ("127.0.0.1:9", Endpoint("grpc", "127.0.0.1", 9), "127.0.0.1:9"),
        ("http://host/", Endpoint("http", "host", 8000), "host:8000"),
        ("grpcs://[::1]", Endpoint("grpcs", "::1", 8001), "[::1]:8001"),
    ],
)
def test_an_address_needs_neither_scheme_nor_port(url: str, endpoint: Endpoint, address: str) -> None:
    assert Endpoint.parse(url) == endpoint
    assert endpoint.address == address


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "http://", "http://host:x", "http://host:99999", "http://h/v2", "http://me@h"]
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(OmniClientError, match="url: found"):
        Endpoint.parse(url)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_limit_must_be_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"total: found .*; allowed: more than 0 seconds"):
        Timeouts(total=seconds)
