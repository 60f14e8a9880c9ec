"""Chat messages in OpenAI's form are read into turns and media; what cannot be read is named."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_backends.errors import InvalidRequest
from python_backends.preprocess.chat import Chat, MediaKind, chat_of_messages, chat_of_text
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.tool_schema import read_tools

LIMITS = Limits(max_images=3, max_media_bytes=1000, max_messages=50)
PICTURE = base64.b64encode(b"picture").decode()
URL = f"data:image/png;base64,{PICTURE}"


def read(messages: Any, **tensors: tuple[bytes, ...]) -> Chat:
    data = messages if isinstance(messages, bytes) else json.dumps(messages).encode()
    return chat_of_messages(data, {MediaKind(name): items for name, items in tensors.items()}, LIMITS)


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def test_media_are_listed_in_the_order_of_their_mention_across_turns() -> None:
    chat = read(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "image", "index": 1}, {"type": "text", "text": "What is this?"}]},
            {"role": "assistant", "content": "A cat."},
            {"role": "user", "content": [{"type": "audio", "index": 0}, {"type": "image", "index": 0}]},
        ],
        image=(b"first", b"second"),
        audio=(b"sound",),
    )
    assert [(part.kind.value, part.data, part.field) for part in chat.media] == [
        ("image", b"second", "image[1]"),
        ("audio", b"sound", "audio[0]"),
        ("image", b"first", "image[0]"),
    ]
    assert chat.turns[0] == {"role": "system", "content": "Be brief."}
    assert [part["type"] for part in chat.turns[1]["content"]] == ["image", "text"]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, "image"),
        ({"type": "image_url", "image_url": URL}, "image"),
        ({"type": "audio_url", "audio_url": {"url": URL}}, "audio"),
        ({"type": "video_url", "video_url": URL.replace("data:", "DATA:")}, "video"),
        ({"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}, "audio"),
        ({"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}}, "audio"),
        ({"type": "input_audio", "input_audio": {"data": PICTURE[:4] + "\n" + PICTURE[4:]}}, "audio"),
    ],
)
def test_every_way_to_send_media_inside_a_message_gives_their_bytes(part: dict[str, Any], kind: str) -> None:
    chat = read(user(part))
    assert [(item.kind.value, item.data) for item in chat.media] == [(kind, b"picture")]
    assert chat.turns[0]["content"][0]["type"] == kind


def test_the_same_tensor_element_may_be_mentioned_twice() -> None:
    part = {"type": "image", "index": 0}
    assert [item.data for item in read(user(part, part), image=(b"x",)).media] == [b"x", b"x"]


def test_keys_that_no_template_knows_are_dropped() -> None:
    chat = read([{"role": "user", "content": [{"type": "text", "text": "hi", "image": "x"}], "image": "y", "id": 3}])
    assert chat.turns == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def test_calls_and_their_results_reach_the_template_with_arguments_as_objects() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "é"}'}}
    chat = read(
        [
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ]
    )
    assert chat.turns[1]["content"] == ""
    assert chat.turns[1]["reasoning_content"] == "Hm."
    assert chat.turns[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": {"q": "é"}}
    assert chat.turns[2] == {"role": "tool", "content": "found", "tool_call_id": "c1"}


def test_text_input_puts_images_then_sounds_then_videos_before_the_text() -> None:
    tensors = {MediaKind.VIDEO: (b"v",), MediaKind.AUDIO: (b"a", b"b"), MediaKind.IMAGE: (b"i",)}
    chat = chat_of_text("What?", tensors, LIMITS)
    assert [part.data for part in chat.media] == [b"i", b"a", b"b", b"v"]
    assert [part["type"] for part in chat.turns[0]["content"]] == ["image", "audio", "audio", "video", "text"]


def test_an_empty_text_needs_media() -> None:
    with pytest.raises(InvalidRequest, match=r"text_input: an empty text without media"):
        chat_of_text("", {}, LIMITS)
    assert len(chat_of_text("", {MediaKind.IMAGE: (b"i",)}, LIMITS).media) == 1


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", r"messages: malformed JSON at line 1, column 1"),
        (b'[{"role": "user",\n "content": }]', r"messages: malformed JSON at line 2, column 13"),
        (b"\xff[]", r"messages: invalid UTF-8 at byte 0; allowed: UTF-8 text"),
        (b"[NaN]", r"messages: the number NaN; allowed: JSON with finite numbers"),
        (b"[1e999]", r"messages: the number 1e999"),
        (b"[" + b"9" * 5000 + b"]", r"messages: a number with too many digits"),
        (b'[{"role": "user", "role": "user"}]', r"messages: the key 'role' twice in one object"),
        (b"[" * 70 + b"]" * 70, r"messages: JSON that is nested too deep; allowed: at most 64 levels"),
        (b"[" * 100_000, r"messages: JSON that is nested too deep"),
        (b"[" + b"[]," * 600_000 + b"[]]", r"messages: \d+ brackets and commas; allowed: at most 1048576"),
        (b'[{"role": "user", "content": "\\ud83d"}]', r"messages: the lone surrogate \\ud83d in a string"),
        (b"{}", r"messages: an object; allowed: a JSON list of one message or more"),
        (b"null", r"messages: null; allowed"),
        (b"[]", r"messages: an empty list; allowed"),
        (b"[3]", r"messages\[0\]: a number; allowed: an object"),
        (b'[{"role": "root", "content": "x"}]', r"messages\[0\].role: 'root'; allowed: system, user, assistant, tool"),
        (b'[{"content": "x"}]', r"messages\[0\].role: None; allowed"),
        (b'[{"role": "user", "content": null}]', r"messages\[0\].content: null; allowed: a string, or a list"),
        (b'[{"role": "user", "content": []}]', r"messages\[0\].content: an empty list; allowed"),
        (b'[{"role": "user", "content": {}}]', r"messages\[0\].content: an object; allowed"),
        (b'[{"role": "assistant", "content": null}]', r"messages\[0\].content: null; allowed"),
        (b'[{"role": "user", "content": "x"},' * 60, r"malformed JSON"),
    ],
)
def test_messages_that_are_no_conversation_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read(data)


def test_a_conversation_of_too_many_messages_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"messages: 51 messages; allowed: at most 50"):
        read([{"role": "user", "content": "x"}] * 51)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("hi", r"content\[0\]: a string; allowed: an object"),
        (
            {"type": "picture"},
            r"content\[0\].type: 'picture'; allowed: text, image_url, audio_url, video_url, input_audio",
        ),
        ({"type": ["text"]}, r"content\[0\].type: \['text'\]; allowed"),
        ({"text": "hi"}, r"content\[0\].type: None; allowed"),
        ({"type": "text", "text": None}, r"content\[0\].text: null; allowed: a string"),
        ({"type": "image", "index": 1}, r"content\[0\].index: 1; allowed: 0 to 0, an index of the image tensor"),
        ({"type": "image", "index": -1}, r"content\[0\].index: -1; allowed"),
        ({"type": "image", "index": True}, r"content\[0\].index: True; allowed"),
        ({"type": "image", "index": 0.0}, r"content\[0\].index: 0.0; allowed"),
        ({"type": "image"}, r"content\[0\].index: null; allowed"),
        ({"type": "audio", "index": 0}, r"content\[0\].index: 0; allowed: none: the audio tensor is absent"),
        ({"type": "image_url"}, r"content\[0\].image_url: null; allowed: a string or"),
        ({"type": "image_url", "image_url": {}}, r"content\[0\].image_url: null; allowed: a data:"),
        (
            {"type": "image_url", "image_url": "https://x.org/a.png"},
            r"a https: URL; allowed: data:<type>;base64,<data>",
        ),
        ({"type": "video_url", "video_url": "file:///etc/passwd"}, r"video_url: a file: URL; allowed: data:"),
        ({"type": "image_url", "image_url": "/etc/passwd"}, r"a string that is no URL; allowed: data:"),
        ({"type": "image_url", "image_url": "data:image/png,abc"}, r"a data: URL without ;base64,"),
        ({"type": "image_url", "image_url": "data:;base64,data:;base64,"}, r"bad base64"),
        ({"type": "image_url", "image_url": "data:;base64,abc"}, r"image_url: bad base64 \(incorrect padding\)"),
        ({"type": "image_url", "image_url": "data:;base64,a*bc"}, r"image_url: bad base64"),
        ({"type": "image_url", "image_url": "data:;base64,"}, r"image_url: 0 bytes; allowed: 1 to 1000 bytes"),
        (
            {"type": "image_url", "image_url": "data:;base64," + "AAAA" * 400},
            r"image_url: 1200 bytes; allowed: 1 to 1000",
        ),
        ({"type": "input_audio", "input_audio": {"data": "é==="}}, r"input_audio.data: bad base64"),
        (
            {"type": "input_audio", "input_audio": {"data": 3}},
            r"input_audio.data: a number; allowed: a string of base64",
        ),
        ({"type": "input_audio", "input_audio": "AAAA"}, r"input_audio: a string; allowed: \{"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused_with_its_place(part: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read(user(part, {"type": "image", "index": 0}), image=(b"x",))


def test_media_that_no_message_mentions_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"image: 2 given, messages refer to 1; allowed: every one mentioned"):
        read(user({"type": "image", "index": 0}), image=(b"x", b"y"))


def test_an_empty_tensor_element_and_one_that_is_too_large_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"image\[0\]: 0 bytes; allowed: 1 to 1000 bytes"):
        read(user({"type": "image", "index": 0}), image=(b"",))
    with pytest.raises(InvalidRequest, match=r"audio\[0\]: 1001 bytes; allowed: 1 to 1000 bytes"):
        chat_of_text("x", {MediaKind.AUDIO: (b"x" * 1001,)}, LIMITS)


def test_more_media_than_allowed_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"content\[3\].image_url: image number 4; allowed: at most 3"):
        read(user(*[{"type": "image_url", "image_url": URL}] * 4))
    with pytest.raises(InvalidRequest, match=r"image\[3\]: image number 4; allowed: at most 3"):
        chat_of_text("x", {MediaKind.IMAGE: (b"x",) * 4}, LIMITS)


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ({}, r"tool_calls: an object; allowed: a list"),
        ([3], r"tool_calls\[0\]: another form; allowed"),
        ([{"type": "function"}], r"tool_calls\[0\].function: nothing; allowed"),
        ([{"function": {"name": ""}}], r"tool_calls\[0\].function.name: ''; allowed: a name"),
        ([{"function": {"name": "f", "arguments": "{"}}], r"tool_calls\[0\].function.arguments: malformed JSON"),
        ([{"function": {"name": "f", "arguments": "[]"}}], r"tool_calls\[0\].function.arguments: a list; allowed"),
    ],
)
def test_calls_that_are_no_function_calls_are_refused(calls: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read([{"role": "assistant", "content": "x", "tool_calls": calls}])


def test_tools_are_kept_as_they_are() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}]
    assert read_tools(json.dumps(tools).encode(), LIMITS) == tools
    assert read_tools(None, LIMITS) == []


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"{", r"tools: malformed JSON"),
        (b"{}", r"tools: an object; allowed: a JSON list of function definitions"),
        (b"\xff", r"tools: invalid UTF-8"),
        (b'[{"type": "web"}]', r"tools\[0\]: another form; allowed"),
        (b'[{"type": "function", "function": {}}]', r"tools\[0\].function.name: None; allowed: a name"),
        (b'[{"function": {"name": "f", "parameters": []}}]', r"tools\[0\].function.parameters: a list; allowed"),
    ],
)
def test_tools_that_are_no_function_definitions_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read_tools(data, LIMITS)


def test_more_tools_than_allowed_are_refused() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}] * 129
    with pytest.raises(InvalidRequest, match=r"tools: 129 functions; allowed: at most 128"):
        read_tools(json.dumps(tools).encode(), LIMITS)


KEYS = ("role", "content", "type", "text", "index", "image_url", "url", "input_audio", "data", "tool_calls", "function")
WORDS = st.sampled_from([*KEYS, "user", "assistant", "tool", "image", "name", "arguments", "{}", URL, PICTURE])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(), inner, max_size=5)
)
PARTS = st.fixed_dictionaries({"type": WORDS}, optional={"text": ANY_JSON, "index": ANY_JSON, "image_url": ANY_JSON})
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.lists(PARTS) | ANY_JSON},
        optional={"tool_calls": ANY_JSON, "name": ANY_JSON},
    )
)


@settings(max_examples=50)
@given(MESSAGES | ANY_JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        chat = read(value, image=(b"x",))
    except InvalidRequest:
        return
    shown = [part for turn in chat.turns for part in turn["content"] if isinstance(part, dict)]
    assert sum(part["type"] != "text" for part in shown) == len(chat.media)


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (read, lambda bytes_: read_tools(bytes_, LIMITS)):
        try:
            parse(data)
        except InvalidRequest as error:
            assert error.allowed
