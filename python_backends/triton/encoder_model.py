"""The Triton models `vision_encoder` and `audio_encoder`: one `execute` is one ragged batch of the dynamic batcher.

They are called only for media that is there (python_backends/triton/encoder_calls.py), never for a prompt of text
alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import triton_python_backend_utils as pb_utils

from python_backends.encoders.audio import AudioEncoder, AudioItem
from python_backends.encoders.cache import CacheStats
from python_backends.encoders.vision import VisionEncoder, VisionItem
from python_backends.engine_folder import EngineFolder
from python_backends.messages import FloatArray
from python_backends.triton.encoder_metrics import FAMILIES, samples
from python_backends.triton.metric_board import MetricBoard
from python_backends.triton.parameters import model_parameters, refuse_unknown, take_int
from python_backends.triton.responses import error_response
from python_backends.triton.tensors import RequestReader, scalar_tensor, tensor

Item = TypeVar("Item")


class EncoderModel(ABC, Generic[Item]):
    """What the two encoders share. Outputs are `<name>_embeddings` and `<name>_ms`."""

    name: str

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = model_parameters(args)
        threads = take_int(parameters, "threads", 2)
        cache_bytes = take_int(parameters, "cache_bytes", 256 * 2**20)
        refuse_unknown(parameters)
        self.load(EngineFolder.open(), threads, cache_bytes)
        self._board = MetricBoard(FAMILIES, args["model_name"], args["model_version"])
        self._board.publish(samples(self.cache_stats()))

    @abstractmethod
    def load(self, engine: EngineFolder, threads: int, cache_bytes: int) -> None:
        """Make the encoder and warm it up."""

    @abstractmethod
    def cache_stats(self) -> CacheStats:
        """Counters of the encoder's cache."""

    @abstractmethod
    def read(self, reader: RequestReader) -> list[Item]:
        """The media of one request."""

    @abstractmethod
    def encode(self, items: Sequence[Item]) -> list[FloatArray]:
        """Embeddings of each item, in order."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        answers: dict[int, Any] = {}
        batch: dict[int, list[Item]] = {}
        for index, request in enumerate(requests):
            try:
                batch[index] = self.read(RequestReader(request))
            except Exception as error:
                answers[index] = error_response(error)
        answers.update(self._answer(batch))
        self._board.publish(samples(self.cache_stats()))
        return [answers[index] for index in range(len(requests))]

    def _answer(self, batch: Mapping[int, list[Item]]) -> dict[int, Any]:
        started = time.perf_counter()
        try:
            rows = self.encode([item for items in batch.values() for item in items])
        except Exception as error:
            if len(batch) == 1:
                return {index: error_response(error) for index in batch}
            # One item may have spoilt the batch: the others must not suffer.
            return {k: answer for i, items in batch.items() for k, answer in self._answer({i: items}).items()}
        elapsed = (time.perf_counter() - started) * 1e3
        answers = {}
        for index, items in batch.items():
            mine, rows = rows[: len(items)], rows[len(items) :]
            embeddings = tensor(f"{self.name}_embeddings", np.concatenate(mine))
            answers[index] = pb_utils.InferenceResponse(
                [embeddings, scalar_tensor(f"{self.name}_ms", elapsed, np.float32)]
            )
        return answers


class VisionEncoderModel(EncoderModel[VisionItem]):
    """Images and videos: patches in, embeddings and deepstack features out."""

    name = "vision"

    def load(self, engine: EngineFolder, threads: int, cache_bytes: int) -> None:
        self._encoder = VisionEncoder(engine, threads, cache_bytes=cache_bytes)
        side = engine.config.vision.spatial_merge_size
        patches = np.zeros((side * side, engine.config.vision.patch_dim), np.float32)
        self._encoder.encode([VisionItem(patches, (1, side, side), "warm-up")])

    def read(self, reader: RequestReader) -> list[VisionItem]:
        keys = reader.strings("vision_keys")
        patches, grids = reader.required("pixel_values"), reader.required("grid_thw").tolist()
        ends = np.cumsum([t * h * w for t, h, w in grids])[:-1]
        parts = zip(np.split(patches, ends), grids, keys, strict=True)
        return [VisionItem(part, (t, h, w), key.decode()) for part, (t, h, w), key in parts]

    def cache_stats(self) -> CacheStats:
        return self._encoder.cache.stats()

    def encode(self, items: Sequence[VisionItem]) -> list[FloatArray]:
        return self._encoder.encode(items)


class AudioEncoderModel(EncoderModel[AudioItem]):
    """Sounds: mel features in, embeddings out."""

    name = "audio"

    def load(self, engine: EngineFolder, threads: int, cache_bytes: int) -> None:
        self._encoder = AudioEncoder(engine, threads, cache_bytes=cache_bytes)
        self._encoder.encode([AudioItem(np.zeros((100, engine.config.audio.num_mel_bins), np.float32), "warm-up")])

    def read(self, reader: RequestReader) -> list[AudioItem]:
        keys = reader.strings("audio_keys")
        features = reader.required("audio_features")
        ends = np.cumsum(reader.required("audio_lengths"))[:-1]
        parts = zip(np.split(features, ends), keys, strict=True)
        return [AudioItem(part, key.decode()) for part, key in parts]

    def cache_stats(self) -> CacheStats:
        return self._encoder.cache.stats()

    def encode(self, items: Sequence[AudioItem]) -> list[FloatArray]:
        return self._encoder.encode(items)
