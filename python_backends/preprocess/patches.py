"""Pictures to the patches that the vision encoder takes (Qwen2-VL image and video processors of transformers)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from python_backends.messages import FloatArray
from python_backends.preprocess.parallel import in_slices
from python_backends.preprocess.processor_config import ProcessorConfig, VisionSettings
from python_backends.preprocess.resize import UInt8Array, scaled_planes

CHANNELS = 3
_BLOCK = 64  # patches that are normalised at a time, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class Patches:
    """A vision item, flattened."""

    pixel_values: FloatArray  # [t*h*w, channels * temporal_patch * patch * patch]
    grid: tuple[int, int, int]  # t, h, w in patches


class PatchMaker:
    """Scales, normalises and flattens pictures. Thread-safe; `threads` share the work of one call."""

    def __init__(self, config: ProcessorConfig, threads: int) -> None:
        self._image = config.image
        self._video = config.video
        self._threads = threads

    def image(self, rgb: UInt8Array) -> Patches:
        """Patches of an image, uint8 [h, w, 3]; it fills a whole temporal patch."""
        planes = scaled_planes(rgb, *self._image.scaled_size(*rgb.shape[:2]))
        return self._patches(planes[np.newaxis, np.newaxis], self._image)

    def video(self, frames: UInt8Array) -> Patches:
        """Patches of a video, uint8 planes [n, 3, h, w] of the video's scaled size (see `decode_video`).

        The last frame is repeated until the number of frames is a multiple of the temporal patch.
        """
        missing = -len(frames) % self._video.temporal_patch_size
        if missing:
            frames = np.concatenate([frames, np.repeat(frames[-1:], missing, axis=0)])
        return self._patches(frames.reshape(-1, self._video.temporal_patch_size, *frames.shape[1:]), self._video)

    def _patches(self, planes: UInt8Array, settings: VisionSettings) -> Patches:
        """From uint8 [t, temporal, 3, h, w]; one temporal plane stands for all of its patch.

        Patches of one merged token follow each other; tokens go from left to right, then down, then through time.
        """
        side, merge = settings.patch_size, settings.merge_size
        grid_t, temporal, _, height, width = planes.shape
        rows, columns = height // side, width // side
        # A row of a patch is one element here: moving whole rows is many times faster than moving pixels.
        row_type = np.dtype((np.void, side))
        pieces = planes.view(row_type).reshape(
            grid_t, temporal, CHANNELS, rows // merge, merge, side, columns // merge, merge
        )
        pixels = np.ascontiguousarray(pieces.transpose(0, 3, 6, 4, 7, 2, 1, 5))
        pixels = pixels.view(np.uint8).reshape(-1, CHANNELS, temporal, side * side)
        values = np.empty((len(pixels), CHANNELS, settings.temporal_patch_size, side * side), np.float32)
        # As transformers fuses them: (value - mean * 255) / (std * 255), in float32.
        scale = np.float32(1.0 / settings.rescale_factor)
        mean = (np.asarray(settings.mean, np.float32) * scale).reshape(CHANNELS, 1, 1)
        std = (np.asarray(settings.std, np.float32) * scale).reshape(CHANNELS, 1, 1)

        def normalise(start: int, stop: int) -> None:
            scratch = np.empty((_BLOCK, *pixels.shape[1:]), np.float32)
            for first in range(start, stop, _BLOCK):
                last = min(first + _BLOCK, stop)
                block = scratch[: last - first]
                block[:] = pixels[first:last]
                block -= mean
                block /= std
                values[first:last] = block

        in_slices(len(pixels), 16 * _BLOCK, self._threads, normalise)
        return Patches(values.reshape(len(values), -1), (grid_t, rows, columns))
