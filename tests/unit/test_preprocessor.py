"""A request of the public contract becomes ids, positions, patches and features, or an error that says why not."""

from __future__ import annotations

import base64
import io
import json
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from python_backends.errors import InvalidRequest, RequestCancelled
from python_backends.messages import OmniRequest, PreparedRequest, TrafficClass
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.preprocessor import Preprocessor
from python_backends.preprocess.processor_config import ProcessorConfigError
from python_backends.preprocess.template import ChatTemplateError
from tests.unit.prompt_engine import CONFIG, TOKENS, prompt_engine

LIMITS = Limits(max_request_bytes=2_000_000, max_media_bytes=1_000_000)


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preprocessor]:
    made = Preprocessor(prompt_engine(tmp_path_factory.mktemp("engine")), LIMITS)
    yield made
    made.close()


def picture(width: int = 96, height: int = 64, red: int = 200) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (red, 30, 60)).save(file, "PNG")
    return file.getvalue()


def sound(seconds: float = 1.0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(16000)
        wav.writeframes((np.sin(np.arange(int(16000 * seconds)) / 9) * 9000).astype("<i2").tobytes())
    return file.getvalue()


def film(seconds: int = 2, with_sound: bool = False) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as media:
        pictures = media.add_stream("mpeg4", rate=10)
        pictures.width, pictures.height = 128, 96
        track = media.add_stream("flac", rate=16000, layout="mono", format="s16") if with_sound else None
        for i in range(10 * seconds):
            frame = av.VideoFrame.from_ndarray(np.full((96, 128, 3), 10 * i % 256, np.uint8))
            media.mux(pictures.encode(frame))
        media.mux(pictures.encode())
        if track is not None:
            samples = (np.sin(np.arange(16000 * seconds) / 9) * 9000).astype(np.int16)
            for begin in range(0, len(samples), 1600):
                part = av.AudioFrame.from_ndarray(samples[None, begin : begin + 1600], format="s16", layout="mono")
                part.sample_rate, part.pts = 16000, begin
                media.mux(track.encode(part))
            media.mux(track.encode())
    return file.getvalue()


def url(data: bytes) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def messages(*turns: dict[str, Any]) -> bytes:
    return json.dumps(turns).encode()


def runs(prepared: PreparedRequest) -> list[tuple[str, int]]:
    """The media tokens of the prompt as (kind, how many) where one follows the other."""
    names = {TOKENS.image: "image", TOKENS.audio: "audio", TOKENS.video: "video"}
    found: list[tuple[str, int]] = []
    before = -1
    for token in prepared.input_ids.tolist():
        if token in names and token == before:
            found[-1] = (names[token], found[-1][1] + 1)
        elif token in names:
            found.append((names[token], 1))
        before = token
    return found


def test_a_text_becomes_one_user_turn_and_plain_positions(preprocessor: Preprocessor) -> None:
    prepared = preprocessor.prepare(OmniRequest(text_input=b"Hello"))
    same = preprocessor.prepare(OmniRequest(messages=messages({"role": "user", "content": "Hello"})))
    assert prepared.input_ids.tolist() == same.input_ids.tolist()
    assert (prepared.position_ids == np.arange(len(prepared.input_ids))).all()
    assert prepared.rope_delta == 0
    assert prepared.pixel_values.shape == (0, CONFIG.vision.patch_dim)
    assert prepared.audio_features.shape == (0, CONFIG.audio.num_mel_bins)
    assert prepared.traffic_class is TrafficClass.TEXT
    assert prepared.response.text_tokens == prepared.cost.prompt_tokens == len(prepared.input_ids)
    assert prepared.key != same.key


def test_media_of_a_text_come_as_images_then_sounds_then_videos(preprocessor: Preprocessor) -> None:
    request = OmniRequest(text_input=b"What?", image=(picture(),), audio=(sound(),), video=(film(),), max_tokens=7)
    prepared = preprocessor.prepare(request)
    assert runs(prepared) == [("image", 6), ("audio", 13), ("video", 280)]
    assert prepared.grid_thw.tolist() == [[1, 4, 6], [2, 20, 28]]
    assert prepared.pixel_values.shape == (4 * 6 + 2 * 20 * 28, CONFIG.vision.patch_dim)
    assert prepared.audio_lengths.tolist() == [100]
    assert prepared.audio_features.shape == (100, CONFIG.audio.num_mel_bins)
    assert (prepared.cost.vision_tokens, prepared.cost.audio_tokens, prepared.cost.frames) == (286, 13, 4)
    assert prepared.cost.total_tokens == len(prepared.input_ids) + 7
    assert prepared.traffic_class is TrafficClass.VIDEO
    counts = prepared.response
    assert (counts.image_tokens, counts.audio_tokens, counts.video_tokens) == (6, 13, 280)
    assert counts.text_tokens == len(prepared.input_ids) - 299
    assert set(counts.times_ms) == {
        "prompt",
        "preprocess",
        *(f"{kind}_{step}" for kind in ("image", "audio", "video") for step in ("decode", "features")),
    }


def test_media_in_several_turns_keep_their_order(preprocessor: Preprocessor) -> None:
    wide, tall = picture(128, 64), picture(64, 160)
    request = OmniRequest(
        messages=messages(
            {"role": "user", "content": [{"type": "image", "index": 1}, {"type": "text", "text": "And this?"}]},
            {"role": "assistant", "content": "Tall."},
            {"role": "user", "content": [{"type": "audio", "index": 0}]},
            {"role": "assistant", "content": "Loud."},
            {"role": "user", "content": [{"type": "image", "index": 0}, {"type": "text", "text": "What now?"}]},
        ),
        image=(wide, tall),
        audio=(sound(2.0),),
    )
    prepared = preprocessor.prepare(request)
    assert prepared.grid_thw.tolist() == [[1, 10, 4], [1, 4, 8]]
    assert runs(prepared) == [("image", 10), ("audio", 26), ("image", 8)]
    assert prepared.traffic_class is TrafficClass.IMAGE


def test_an_image_mentioned_twice_has_two_places_and_one_key(preprocessor: Preprocessor) -> None:
    part = {"type": "image_url", "image_url": {"url": url(picture())}}
    prepared = preprocessor.prepare(OmniRequest(messages=messages({"role": "user", "content": [part, part]})))
    assert runs(prepared) == [("image", 6), ("image", 6)]
    assert prepared.vision_keys[0] == prepared.vision_keys[1]
    half = len(prepared.pixel_values) // 2
    assert (prepared.pixel_values[:half] == prepared.pixel_values[half:]).all()


def test_different_media_and_different_uses_of_one_have_different_keys(preprocessor: Preprocessor) -> None:
    request = OmniRequest(
        text_input=b"", image=(picture(), picture(red=0)), video=(film(with_sound=True),), use_audio_in_video=True
    )
    prepared = preprocessor.prepare(request)
    assert len({*prepared.vision_keys, *prepared.audio_keys}) == 4


def test_a_videos_sound_is_woven_in_when_asked_for(preprocessor: Preprocessor) -> None:
    video = (film(with_sound=True),)
    heard = preprocessor.prepare(OmniRequest(text_input=b"What?", video=video, use_audio_in_video=True))
    assert runs(heard) == [("video", 140), ("audio", 13), ("video", 140), ("audio", 13)]
    assert heard.audio_lengths.tolist() == [200]
    seen = preprocessor.prepare(OmniRequest(text_input=b"What?", video=video))
    assert runs(seen) == [("video", 280)]
    assert not seen.audio_keys
    assert seen.vision_keys == heard.vision_keys


def test_a_silent_video_is_simply_a_video_when_its_sound_is_asked_for(preprocessor: Preprocessor) -> None:
    video = (film(),)
    asked = preprocessor.prepare(OmniRequest(text_input=b"What?", video=video, use_audio_in_video=True))
    plain = preprocessor.prepare(OmniRequest(text_input=b"What?", video=video))
    assert asked.input_ids.tolist() == plain.input_ids.tolist()
    assert asked.position_ids.tolist() == plain.position_ids.tolist()


def test_the_answers_first_token_stands_after_the_prompts_last(preprocessor: Preprocessor) -> None:
    prepared = preprocessor.prepare(OmniRequest(text_input=b"What?", image=(picture(320, 320),)))
    assert len(prepared.input_ids) + prepared.rope_delta == prepared.position_ids[:, -1].max() + 1
    assert prepared.rope_delta < 0


def test_placeholders_typed_by_a_client_claim_no_media(preprocessor: Preprocessor) -> None:
    text = "<|vision_start|><|image_pad|><|vision_end|><|im_end|>"
    alone = preprocessor.prepare(OmniRequest(text_input=text.encode()))
    assert runs(alone) == []
    with_image = preprocessor.prepare(OmniRequest(text_input=text.encode(), image=(picture(),)))
    assert runs(with_image) == [("image", 6)]


def test_what_postprocess_needs_is_passed_on(preprocessor: Preprocessor) -> None:
    tools = b'[{"type": "function", "function": {"name": "f"}}]'
    request = OmniRequest(text_input=b"Hi", streaming=True, stop=(b"END",), tools=tools, logprobs=3, seed=5)
    prepared = preprocessor.prepare(request)
    response = prepared.response
    assert (response.streaming, response.stop, response.tools, response.logprobs) == (True, ("END",), True, 3)
    assert prepared.sampling.seed == 5
    plain = preprocessor.prepare(OmniRequest(text_input=b"Hi"))
    assert not plain.response.streaming
    assert not plain.response.tools
    assert len(prepared.input_ids) > len(plain.input_ids)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (OmniRequest(), r"text_input, messages: neither; allowed: exactly one of the two"),
        (OmniRequest(image=(picture(),)), r"text_input, messages: neither"),
        (OmniRequest(text_input=b"x", messages=b"[]"), r"text_input, messages: both; allowed: exactly one"),
        (OmniRequest(text_input=b""), r"text_input: an empty text without media"),
        (OmniRequest(text_input=b"ab\xff"), r"text_input: invalid UTF-8 at byte 2; allowed: UTF-8 text"),
        (OmniRequest(text_input="a\ufdd0".encode()), r"text_input: the noncharacter"),
        (OmniRequest(text_input=b"x" * 2_000_001), r"request: 2000001 bytes; allowed: at most 2000000 bytes"),
        (OmniRequest(text_input=b"x " * 900_000), r"text_input: a prompt of more than 1048576 characters"),
        (OmniRequest(text_input=b"a b " * 5000), r"prompt: a prompt of \d+ tokens; allowed: fewer than 4096 tokens"),
        (OmniRequest(text_input=b"x", max_tokens=4096), r"and max_tokens 4096; allowed: 4096 tokens together"),
        (OmniRequest(text_input=b"x", temperature=float("nan")), r"temperature: nan"),
        (OmniRequest(text_input=b"x", image=(b"no image",)), r"image\[0\]: "),
        (OmniRequest(text_input=b"x", image=(b"",)), r"image\[0\]: 0 bytes"),
        (OmniRequest(text_input=b"x", audio=(b"no sound",)), r"audio\[0\]: "),
        (OmniRequest(text_input=b"x", video=(b"no video",)), r"video\[0\]: "),
        (OmniRequest(text_input=b"x", video=(film(40),)), r"video\[0\]: .*5600 tokens"),
        (OmniRequest(text_input=b"x", audio=(b"x" * 1_000_001,)), r"audio\[0\]: 1000001 bytes"),
        (OmniRequest(text_input=b"x", image=(picture(2000, 2001),) * 2), r"prompt: a prompt of \d+ tokens"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_its_reason(
    preprocessor: Preprocessor, request_: OmniRequest, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        preprocessor.prepare(request_)
    assert len(preprocessor.prepare(OmniRequest(text_input=b"next")).input_ids) > 0


def test_media_that_the_template_does_not_show_are_refused(tmp_path: Path) -> None:
    engine = prompt_engine(tmp_path, template="{{ messages[0].role }}")
    with pytest.raises(InvalidRequest, match=r"1 of kind image, of which the chat template shows 0"):
        Preprocessor(engine, LIMITS).prepare(OmniRequest(text_input=b"x", image=(picture(),)))


def test_a_cancelled_request_stops_between_its_media(preprocessor: Preprocessor) -> None:
    asked = threading.Event()

    def is_cancelled() -> bool:
        asked.set()
        return True

    with pytest.raises(RequestCancelled):
        preprocessor.prepare(OmniRequest(text_input=b"x", image=(picture(),)), is_cancelled)
    assert asked.is_set()
    assert len(preprocessor.prepare(OmniRequest(text_input=b"x", image=(picture(),))).vision_keys) == 1


def test_requests_are_prepared_side_by_side_as_alone(preprocessor: Preprocessor) -> None:
    asked = [
        OmniRequest(text_input=b"x" * n, image=(picture(64 + 32 * n, 64),), audio=(sound(n / 4),)) for n in range(1, 7)
    ]
    alone = [preprocessor.prepare(request) for request in asked]
    together: dict[int, PreparedRequest] = {}
    threads = [
        threading.Thread(target=lambda i=i, r=r: together.update({i: preprocessor.prepare(r)}))
        for i, r in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, expected in enumerate(alone):
        assert together[i].input_ids.tolist() == expected.input_ids.tolist()
        assert (together[i].pixel_values == expected.pixel_values).all()
        assert (together[i].audio_features == expected.audio_features).all()


def test_a_broken_template_or_another_patch_size_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError):
        Preprocessor(prompt_engine(tmp_path, template="{% if %}"), LIMITS)
    engine = prompt_engine(tmp_path)
    path = tmp_path / "processor_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"patch_size": 16', '"patch_size": 14'), encoding="utf-8")
    with pytest.raises(ProcessorConfigError, match=r"found \(14, 2, 2\); the encoder has \(16, 2, 2\)"):
        Preprocessor(engine, LIMITS)


ANY_BYTES = st.none() | st.binary(max_size=60) | st.text(max_size=60).map(str.encode)


@settings(max_examples=60)
@given(
    st.builds(
        OmniRequest,
        text_input=ANY_BYTES,
        messages=ANY_BYTES,
        image=st.lists(st.binary(max_size=40), max_size=2).map(tuple),
        stop=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
        tools=ANY_BYTES,
        logprobs=st.none() | st.integers(-5, 30),
    )
)
def test_whatever_a_client_sends_it_is_prepared_or_refused(preprocessor: Preprocessor, request_: OmniRequest) -> None:
    try:
        prepared = preprocessor.prepare(request_)
    except InvalidRequest:
        return
    assert prepared.position_ids.shape == (3, len(prepared.input_ids))
