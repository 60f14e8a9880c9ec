"""A checkpoint under test: what transformers computed, and the project's own parts, run without a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.encoders.audio import AudioEncoder, AudioItem
from python_backends.encoders.vision import VisionEncoder, VisionItem
from python_backends.engine_folder import EngineFolder
from python_backends.messages import FloatArray, OmniRequest, PreparedRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.preprocessor import Preprocessor
from tests.parity.prompts import MAX_TOKENS, Prompt, conversation, files
from tests.parity.references import Reference

THREADS = 2


@dataclass(frozen=True, eq=False)
class Media:
    """Encoder inputs of one prompt, each with the key of its reference."""

    vision: list[tuple[str, VisionItem]]
    audio: list[tuple[str, AudioItem]]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One random checkpoint. What was prepared is kept, because several tests ask for it."""

    name: str
    folder: EngineFolder
    reference: Reference
    preprocessor: Preprocessor
    vision_encoder: VisionEncoder
    audio_encoder: AudioEncoder
    _prepared: dict[str, PreparedRequest] = field(default_factory=dict)

    def stored(self, name: str) -> NDArray[np.generic]:
        """A stored array, by its name."""
        return self.reference.arrays[name]

    def prepare(self, prompt: Prompt) -> PreparedRequest:
        """The prompt as preprocess makes it, greedy."""
        if prompt.name not in self._prepared:
            self._prepared[prompt.name] = self.preprocessor.prepare(request_of(prompt))
        return self._prepared[prompt.name]

    def media(self, prompt: Prompt) -> Media:
        """The media of a prepared prompt, taken apart."""
        prepared = self.prepare(prompt)
        names = conversation(prompt)[1]
        vision, first = [], 0
        pictures = [name for kind, name in names if kind != "audio"]
        for name, grid, key in zip(pictures, prepared.grid_thw.tolist(), prepared.vision_keys, strict=True):
            last = first + int(np.prod(grid))
            vision.append((name, VisionItem(prepared.pixel_values[first:last], tuple(grid), key)))
            first = last
        assert first == len(prepared.pixel_values)
        audio, first = [], 0
        sounds = [name for kind, name in names if self._is_heard(kind, name, bool(prompt.use_audio_in_video))]
        for name, length, key in zip(sounds, prepared.audio_lengths.tolist(), prepared.audio_keys, strict=True):
            audio.append((name, AudioItem(prepared.audio_features[first : first + length], key)))
            first += length
        assert first == len(prepared.audio_features)
        return Media(vision, audio)

    def embeddings(self, prompt: Prompt) -> tuple[FloatArray | None, FloatArray | None]:
        """Vision rows and audio rows of a prompt, as the thinker takes them."""
        media = self.media(prompt)
        vision = self.vision_encoder.encode([item for _, item in media.vision])
        audio = self.audio_encoder.encode([item for _, item in media.audio])
        return np.concatenate(vision) if vision else None, np.concatenate(audio) if audio else None

    def _is_heard(self, kind: str, name: str, use_tracks: bool) -> bool:
        return kind == "audio" or (kind == "video" and use_tracks and f"audio/{name}/mel" in self.reference.arrays)


def request_of(prompt: Prompt) -> OmniRequest:
    """A prompt as the ensemble takes it."""
    return OmniRequest(
        text_input=None if prompt.text is None else prompt.text.encode(),
        messages=prompt.messages_json(),
        image=files(prompt.images),
        audio=files(prompt.sounds),
        video=files(prompt.films),
        tools=prompt.tools_json(),
        use_audio_in_video=prompt.use_audio_in_video,
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        logprobs=20,
    )


@pytest.fixture(scope="session", params=["small", "wide"])
def checkpoint(request: pytest.FixtureRequest) -> Iterator[Checkpoint]:
    engines: Path = request.getfixturevalue(f"{request.param}_engines")
    folder = EngineFolder.open(engines)
    preprocessor = Preprocessor(folder, Limits())
    yield Checkpoint(
        request.param,
        folder,
        Reference.load(request.param),
        preprocessor,
        VisionEncoder(folder, THREADS),
        AudioEncoder(folder, THREADS),
    )
    preprocessor.close()
