"""The prompts of the parity tests, as data: each is a request of the public contract.

A part with the url `media:NAME` stands for a `data:` URL with that file of `media/`; `images`, `sounds` and `films` are
the files of the tensors `image`, `audio` and `video`. `messages_json` and `files` give what a client sends.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEDIA = Path(__file__).parent / "media"
MAX_TOKENS = 24

Message = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """One request. `kind` says what is in it: text, image, images, audio, audios, video, sound_film, mixed or turns."""

    name: str
    kind: str
    text: str | None = None
    messages: Sequence[Message] | None = None
    images: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()
    films: tuple[str, ...] = ()
    tools: Sequence[Mapping[str, Any]] | None = None
    use_audio_in_video: bool | None = None

    def messages_json(self) -> bytes | None:
        """The tensor `messages`, with the media as `data:` URLs."""
        if self.messages is None:
            return None
        return json.dumps(_with_data_urls(self.messages), ensure_ascii=False).encode()

    def tools_json(self) -> bytes | None:
        """The tensor `tools`."""
        return None if self.tools is None else json.dumps(list(self.tools)).encode()


def files(names: Sequence[str]) -> tuple[bytes, ...]:
    """The bytes of media files."""
    return tuple((MEDIA / name).read_bytes() for name in names)


def conversation(prompt: Prompt) -> tuple[list[Message], list[tuple[str, str]]]:
    """The messages as transformers takes them, and (kind, file name) of the media in the order of the prompt."""
    tensors = {"image": prompt.images, "audio": prompt.sounds, "video": prompt.films}
    if prompt.text is not None:
        names = [(kind, name) for kind, tensor in tensors.items() for name in tensor]
        parts = [{"type": kind} for kind, _ in names] + [{"type": "text", "text": prompt.text}]
        return [{"role": "user", "content": parts}], names
    names = []
    messages = []
    for message in prompt.messages or ():
        content = message["content"]
        if isinstance(content, list):
            content = [_part(part, tensors, names) for part in content]
        messages.append({**message, "content": content})
    return messages, names


def _part(part: Message, tensors: dict[str, tuple[str, ...]], names: list[tuple[str, str]]) -> Message:
    if part["type"] == "text":
        return part
    kind = part["type"].removesuffix("_url").removeprefix("input_")
    if "index" in part:
        names.append((kind, tensors[kind][part["index"]]))
    else:
        inner = part[part["type"]]
        names.append((kind, (inner.get("url") or inner["data"]).removeprefix("media:")))
    return {"type": kind}


def _with_data_urls(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("media:"):
        path = MEDIA / value.removeprefix("media:")
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    if isinstance(value, Mapping):
        if "data" in value and "format" in value:  # input_audio carries bare base64
            return {
                **value,
                "data": base64.b64encode((MEDIA / value["data"].removeprefix("media:")).read_bytes()).decode(),
            }
        return {key: _with_data_urls(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_with_data_urls(item) for item in value]
    return value


def _image(name: str) -> Message:
    return {"type": "image_url", "image_url": {"url": f"media:{name}"}}


def _sound(name: str) -> Message:
    return {"type": "audio_url", "audio_url": {"url": f"media:{name}"}}


def _film(name: str) -> Message:
    return {"type": "video_url", "video_url": {"url": f"media:{name}"}}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _user(*content: Message | str) -> Message:
    if len(content) == 1 and isinstance(content[0], str):
        return {"role": "user", "content": content[0]}
    return {"role": "user", "content": [_text(part) if isinstance(part, str) else part for part in content]}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


_SYSTEM = {"role": "system", "content": "You are a careful assistant. Answer briefly, in the language of the question."}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city, in °C.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        },
    },
}
_CLOCK = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object"}}}

_STORY = " ".join(
    f"On day {day} the boat went {10 + day * 7 % 23} miles along the coast; the wind came from the "
    f"{('north', 'east', 'south', 'west')[day % 4]} and {('nobody', 'the captain', 'a young sailor')[day % 3]} saw it."
    for day in range(1, 31)
)

_TEXT = (
    Prompt("hello", "text", "Hello! Who are you?"),
    Prompt("one_word", "text", "Hi"),
    Prompt("chinese", "text", "请用中文描述一下这个声音, 然后说明它是什么。"),
    Prompt("long_story", "text", f"{_STORY}\n\nHow many miles did the boat travel in all?"),
    Prompt(
        "unicode_and_code", "text", "naïve café 🙂🚀 — `for i in range(3):\n\tprint(i ** 2)`\r\n\r\n  What's printed?"
    ),
    Prompt(
        "several_turns",
        "text",
        messages=[
            _SYSTEM,
            _user("What is the largest ocean?"),
            _assistant("The Pacific Ocean."),
            _user("And the smallest?"),
            _assistant("<think>The user asks for the smallest one.</think>\n\nThe Arctic Ocean."),
            _user("How deep is it?"),
        ],
    ),
    Prompt("parts_of_text", "text", messages=[_SYSTEM, _user("First part. ", "Second part?")]),
    Prompt("tools", "text", messages=[_SYSTEM, _user("Is it warm in Paris?")], tools=[_WEATHER, _CLOCK]),
    Prompt(
        "tool_answers",
        "text",
        messages=[
            _user("Is it warm in Paris and Rome?"),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"call_{city}",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
                    }
                    for city in ("Paris", "Rome")
                ],
            },
            {"role": "tool", "tool_call_id": "call_Paris", "content": '{"temperature": 14.5}'},
            {"role": "tool", "tool_call_id": "call_Rome", "content": '{"temperature": 21}'},
            _user("So which city is warmer?"),
        ],
        tools=[_WEATHER],
    ),
)

_IMAGE = (
    *(
        Prompt(f"image_{name.replace('.', '_')}", "image", "What is in this picture?", images=(name,))
        for name in (
            "photo.jpg",
            "turned.jpg",
            "grey.jpg",
            "print.jpg",
            "palette.png",
            "alpha.png",
            "depth16.png",
            "moving.gif",
            "bitmap.bmp",
            "scan.tiff",
        )
    ),
    Prompt("image_large", "image", messages=[_user(_image("large.jpg"), "Describe the background.")]),
    Prompt("image_banner", "image", messages=[_user("Look: ", _image("banner.webp"), " Left or right?")]),
    Prompt(
        "image_by_index",
        "image",
        messages=[_SYSTEM, _user("Which colour is largest?", {"type": "image", "index": 0})],
        images=("picture.webp",),
    ),
    Prompt("images_two", "images", "Which of the two is brighter?", images=("photo.jpg", "picture.webp")),
    Prompt(
        "images_swapped",
        "images",
        messages=[_user({"type": "image", "index": 1}, {"type": "image", "index": 0}, "Which of the two is brighter?")],
        images=("photo.jpg", "picture.webp"),
    ),
    Prompt(
        "images_four",
        "images",
        messages=[
            _user(
                "A",
                _image("bitmap.bmp"),
                "B",
                _image("alpha.png"),
                "C",
                _image("bitmap.bmp"),
                _image("scan.tiff"),
                "D?",
            )
        ],
    ),
)

_AUDIO = (
    *(
        Prompt(f"audio_{name.replace('.', '_')}", "audio", "What can be heard?", sounds=(name,))
        for name in (
            "second.wav",
            "blip.wav",
            "phone8.wav",
            "studio24.wav",
            "float.wav",
            "disc.wav",
            "window.wav",
            "stereo.flac",
            "talk.mp3",
            "note.ogg",
            "long.opus",
            "memo.m4a",
        )
    ),
    Prompt(
        "audio_input_part",
        "audio",
        messages=[
            _user("Repeat this:", {"type": "input_audio", "input_audio": {"data": "media:talk.mp3", "format": "mp3"}})
        ],
    ),
    Prompt("audios_two", "audios", "Which one is longer?", sounds=("blip.wav", "talk.mp3")),
    Prompt(
        "audios_three",
        "audios",
        messages=[_user(_sound("long.opus"), "or", _sound("second.wav"), "or", _sound("phone8.wav"), "?")],
    ),
)

_VIDEO = (
    *(
        Prompt(f"video_{name.replace('.', '_')}", "video", "What happens in this video?", films=(name,))
        for name in ("clip.mp4", "odd.mkv", "odd.webm", "short.mp4", "variable.mp4", "turned.mp4")
    ),
    Prompt("video_sound_unused", "video", messages=[_user(_film("talking.mp4"), "What is shown?")]),
    Prompt(
        "videos_two",
        "video",
        messages=[_user(_film("short.mp4"), _film("clip.mp4"), "Which one is longer?")],
    ),
    *(
        Prompt(
            f"sound_film_{name.replace('.', '_')}",
            "sound_film",
            "What is said?",
            films=(name,),
            use_audio_in_video=True,
        )
        for name in ("talking.mp4", "web.webm", "camera.mov", "lecture.mkv")
    ),
    Prompt("sound_film_silent", "sound_film", "What is said?", films=("clip.mp4",), use_audio_in_video=True),
    Prompt(
        "sound_films_two",
        "sound_film",
        messages=[_user(_film("camera.mov"), "then", _film("web.webm"), "Same voice?")],
        use_audio_in_video=True,
    ),
)

_MIXED = (
    Prompt(
        "all_kinds",
        "mixed",
        "Put these three in order.",
        images=("photo.jpg",),
        sounds=("talk.mp3",),
        films=("clip.mp4",),
    ),
    Prompt(
        "all_kinds_with_sound",
        "mixed",
        "Who speaks when?",
        images=("turned.jpg",),
        sounds=("note.ogg",),
        films=("talking.mp4",),
        use_audio_in_video=True,
    ),
    Prompt(
        "film_before_sound",
        "mixed",
        messages=[_SYSTEM, _user(_film("camera.mov"), "and", _sound("second.wav"), _image("grey.jpg"), "match?")],
        use_audio_in_video=True,
    ),
    Prompt(
        "pictures_in_turns",
        "turns",
        messages=[
            _user(_image("photo.jpg"), "What is this?"),
            _assistant("A picture with circles."),
            _user("And this?", _image("large.jpg")),
            _assistant("Another one."),
            _user("Which had more red?"),
        ],
    ),
    Prompt(
        "kinds_in_turns",
        "turns",
        messages=[
            _SYSTEM,
            _user(_sound("phone8.wav"), "What is this?"),
            _assistant("A short melody."),
            _user(_film("short.mp4"), "Does it fit this?"),
            _assistant("Perhaps."),
            _user("Or this?", _image("picture.webp"), _sound("float.wav")),
        ],
    ),
    Prompt(
        "tools_and_picture",
        "turns",
        messages=[_user(_image("banner.webp"), "How warm is it in the city shown here?")],
        tools=[_WEATHER],
    ),
)

PROMPTS: tuple[Prompt, ...] = _TEXT + _IMAGE + _AUDIO + _VIDEO + _MIXED
