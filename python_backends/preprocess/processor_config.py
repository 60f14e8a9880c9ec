"""The settings of the media processors, read from `processor_config.json` (Qwen3-Omni, layout of transformers 5.24)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_backends.preprocess.resize import fit_size

BICUBIC = 3

# `Qwen3OmniMoeProcessor` gives its video processor these bounds whatever the file says.
VIDEO_MIN_PIXELS = 128 * 32 * 32
VIDEO_MAX_PIXELS = 768 * 32 * 32
FRAMES_PER_SECOND = 2


class ProcessorConfigError(ValueError):
    """The processor settings lack something, or ask for something that this project does not do."""


@dataclass(frozen=True)
class VisionSettings:
    """How pictures become patches. Pixel bounds are of the scaled picture; mean and deviation are of values in 0..1."""

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    rescale_factor: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def scaled_size(self, height: int, width: int) -> tuple[int, int]:
        """The height and width that a picture is scaled to: multiples of `patch_size * merge_size`."""
        return fit_size(height, width, self.patch_size * self.merge_size, self.min_pixels, self.max_pixels)

    def tokens(self, frames: int, height: int, width: int) -> int:
        """Placeholder tokens of `frames` pictures (1: an image) of a size before scaling."""
        scaled_height, scaled_width = self.scaled_size(height, width)
        per_grid = (scaled_height // self.patch_size) * (scaled_width // self.patch_size) // self.merge_size**2
        return -(-frames // self.temporal_patch_size) * per_grid


@dataclass(frozen=True)
class VideoSettings(VisionSettings):
    """How videos become patches."""

    min_frames: int
    max_frames: int

    @property
    def seconds_per_grid(self) -> float:
        """Time between two temporal patches, as the prompt's positions count it."""
        return self.temporal_patch_size / FRAMES_PER_SECOND


@dataclass(frozen=True)
class MelSettings:
    """How sounds become log-mel features. Rates in Hz, lengths in samples."""

    sampling_rate: int
    n_fft: int
    hop_length: int
    mel_bins: int


@dataclass(frozen=True)
class ProcessorConfig:
    """All settings of one checkpoint's processor."""

    image: VisionSettings
    video: VideoSettings
    mel: MelSettings

    @classmethod
    def open(cls, path: Path) -> ProcessorConfig:
        """Read a `processor_config.json`.

        Raises:
            ProcessorConfigError: the file cannot be read, is no JSON object, or see `from_json`.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ProcessorConfigError(f"{path.name}: {error}") from error
        if not isinstance(content, Mapping):
            raise ProcessorConfigError(f"{path.name}: found {type(content).__name__}; allowed: a JSON object")
        return cls.from_json(content)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ProcessorConfig:
        """Read the settings of images, videos and sounds.

        Raises:
            ProcessorConfigError: a key is missing, or a value asks for what is not supported.
        """
        image = _section(content, "image_processor")
        video = _section(content, "video_processor")
        mel = _section(content, "feature_extractor")
        min_pixels, max_pixels = _pixel_bounds(image)
        return cls(
            image=VisionSettings(**_vision(image, "image_processor"), min_pixels=min_pixels, max_pixels=max_pixels),
            video=VideoSettings(
                **_vision(video, "video_processor"),
                min_pixels=VIDEO_MIN_PIXELS,
                max_pixels=VIDEO_MAX_PIXELS,
                min_frames=_whole(video, "video_processor", "min_frames", 4),
                max_frames=_whole(video, "video_processor", "max_frames", 768),
            ),
            mel=MelSettings(
                sampling_rate=_whole(mel, "feature_extractor", "sampling_rate", 16000),
                n_fft=_whole(mel, "feature_extractor", "n_fft", 400),
                hop_length=_whole(mel, "feature_extractor", "hop_length", 160),
                mel_bins=_whole(mel, "feature_extractor", "feature_size"),
            ),
        )


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name)
    if not isinstance(section, Mapping):
        raise ProcessorConfigError(f"{name}: not found in the processor settings")
    return section


def _vision(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    for step in ("do_resize", "do_rescale", "do_normalize"):
        if section.get(step, True) is not True:
            raise ProcessorConfigError(f"{where}.{step}: found {section[step]!r}; allowed: true")
    if section.get("resample", BICUBIC) != BICUBIC:
        raise ProcessorConfigError(f"{where}.resample: found {section['resample']!r}; allowed: {BICUBIC} (bicubic)")
    return {
        "patch_size": _whole(section, where, "patch_size"),
        "temporal_patch_size": _whole(section, where, "temporal_patch_size", 2),
        "merge_size": _whole(section, where, "merge_size", 2),
        "rescale_factor": float(section.get("rescale_factor", 1 / 255)),
        "mean": _triple(section, where, "image_mean"),
        "std": _triple(section, where, "image_std"),
    }


def _pixel_bounds(section: Mapping[str, Any]) -> tuple[int, int]:
    size = section.get("size")
    bounds = dict(size) if isinstance(size, Mapping) else {}
    for key, older in (("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels")):
        if section.get(older) is not None:  # transformers lets the older names win
            bounds[key] = section[older]
        elif bounds.get(key) is None:
            bounds[key] = bounds.get(older)
    smallest = _whole(bounds, "image_processor.size", "shortest_edge")
    largest = _whole(bounds, "image_processor.size", "longest_edge")
    if smallest > largest:
        raise ProcessorConfigError(f"image_processor.size: found {smallest} to {largest} pixels; allowed: in order")
    return smallest, largest


def _whole(section: Mapping[str, Any], where: str, key: str, default: int | None = None) -> int:
    value = section.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ProcessorConfigError(f"{where}.{key}: found {value!r}; allowed: a positive whole number")
    return value


def _triple(section: Mapping[str, Any], where: str, key: str) -> tuple[float, float, float]:
    value = section.get(key)
    if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(isinstance(v, (int, float)) for v in value):
        raise ProcessorConfigError(f"{where}.{key}: found {value!r}; allowed: three numbers")
    return float(value[0]), float(value[1]), float(value[2])
