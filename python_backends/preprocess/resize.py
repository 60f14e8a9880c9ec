"""Sizes that the vision encoder takes, and scaling to them: bicubic with antialiasing, as the Qwen processors scale."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

UInt8Array = NDArray[np.uint8]

MAX_ASPECT_RATIO = 200  # the Qwen processors refuse more


def fit_size(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size nearest to `height` x `width` whose sides are multiples of `factor` and whose area is within the bounds.

    The rounding is that of `smart_resize` in transformers (Qwen2-VL), ties to even included. The sides' ratio must
    not be over `MAX_ASPECT_RATIO`, which the decoders check.
    """
    scaled_height = round(height / factor) * factor
    scaled_width = round(width / factor) * factor
    if scaled_height * scaled_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        scaled_height = max(factor, math.floor(height / shrink / factor) * factor)
        scaled_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif scaled_height * scaled_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        scaled_height = math.ceil(height * grow / factor) * factor
        scaled_width = math.ceil(width * grow / factor) * factor
    return scaled_height, scaled_width


def scaled_planes(rgb: UInt8Array, height: int, width: int) -> UInt8Array:
    """Scale a picture and part its colours: uint8 [h, w, 3] to uint8 [3, height, width].

    First across, then down, with the values between rounded to 8 bits: the order shows where the filter overshoots.
    Pillow keeps more bits of the filter's weights than torchvision, which makes a difference of 1 in few values.
    """
    image = Image.fromarray(rgb)
    if image.width != width:
        image = image.resize((width, image.height), Image.Resampling.BICUBIC)
    if image.height != height:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    planes = b"".join(image.tobytes("raw", band) for band in "RGB")
    return np.frombuffer(planes, np.uint8).reshape(3, height, width)
