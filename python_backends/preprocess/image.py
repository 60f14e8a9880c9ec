"""Encoded images to pixels: JPEG, PNG, WebP, GIF (its first frame), BMP and TIFF."""

from __future__ import annotations

import io
import struct
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from python_backends.errors import InvalidRequest
from python_backends.preprocess.limits import Limits
from python_backends.preprocess.resize import MAX_ASPECT_RATIO, UInt8Array

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
ALLOWED = "a complete JPEG, PNG, WebP, GIF, BMP or TIFF image"

# Pillow warns or raises by its own limit; ours is checked on the header, before anything is decoded.
Image.MAX_IMAGE_PIXELS = None

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112
_START_OF_SCAN = 0xFFDA
_END_OF_IMAGE = b"\xff\xd9"


def decode_image(data: bytes, field: str, limits: Limits) -> UInt8Array:
    """Pixels of an encoded image: RGB, uint8 [h, w, 3], upright by its EXIF orientation.

    Transparent pixels are laid on white, 16-bit values are scaled to 8, colour profiles are ignored.

    Raises:
        InvalidRequest: not such an image, cut off or damaged, too many pixels, or sides over 200:1.
    """
    if not data:
        raise InvalidRequest(field, "0 bytes", ALLOWED)
    # Pillow warns of EXIF data without sense; here an image is good or refused, with nothing in between.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image, field, limits)
            _check_end(data, image.format, field)
            image.load()
            turn = _TURNS.get(_orientation(image))
            rgb = _to_rgb(image, field)
    except UnidentifiedImageError:
        raise InvalidRequest(field, "data that is no image", ALLOWED) from None
    except InvalidRequest:
        raise
    except Exception as error:  # on damaged data Pillow's parsers raise whatever they stumble over
        raise InvalidRequest(field, f"an image that cannot be decoded ({_first_line(error)})", ALLOWED) from error
    if turn is not None:
        rgb = rgb.transpose(turn)
    return np.asarray(rgb)


def _check_size(image: Image.Image, field: str, limits: Limits) -> None:
    width, height = image.size
    if width * height > limits.max_image_pixels:
        raise InvalidRequest(field, f"{width}x{height} pixels", f"at most {limits.max_image_pixels} pixels")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise InvalidRequest(field, f"{width}x{height} pixels", f"sides of at most {MAX_ASPECT_RATIO}:1")


def _check_end(data: bytes, kind: str | None, field: str) -> None:
    """Refuse a JPEG or PNG without its end marker: Pillow lets some of them pass."""
    if kind in ("JPEG", "MPO"):
        whole = _jpeg_is_whole(data)
    elif kind == "PNG":
        whole = _png_is_whole(data)
    else:
        return  # Pillow refuses the other formats itself when pixels are missing
    if not whole:
        raise InvalidRequest(field, f"a {kind} image that ends after {len(data)} bytes, before its end marker", ALLOWED)


def _jpeg_is_whole(data: bytes) -> bool:
    """Whether an end marker follows the first scan; one before it would be a thumbnail's."""
    position = 2
    while position + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, position)
        if marker == 0xFFFF:  # a fill byte
            position += 1
            continue
        position += 2 + length
        if marker == _START_OF_SCAN:
            return data.find(_END_OF_IMAGE, position) >= 0
    return False


def _png_is_whole(data: bytes) -> bool:
    position = 8
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IEND":
            return True
        position += 12 + length
    return False


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 (upright) if there is none or the EXIF data make no sense."""
    exif = image.info.get("exif", b"")
    if not isinstance(exif, bytes):
        return 1
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(entries):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * entry)
            if tag == _ORIENTATION:
                return int(value)
    except struct.error:
        pass
    return 1


def _to_rgb(image: Image.Image, field: str) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        values = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise InvalidRequest(field, f"an image of 32 bits a value (mode {image.mode})", "1, 8 or 16 bits a value")
    if image.has_transparency_data:
        pixels = image.convert("RGBA")
        white = Image.new("RGBA", pixels.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, pixels).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
