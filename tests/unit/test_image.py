"""Encoded images become upright RGB, or an error that says what was found."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from python_backends.errors import InvalidRequest
from python_backends.preprocess.image import decode_image
from python_backends.preprocess.limits import Limits
from tests.unit.media_samples import encoded, picture

LIMITS = Limits(max_image_pixels=1_000_000)
PIXELS = picture(40, 30)


def decode(data: bytes) -> NDArray[np.uint8]:
    return decode_image(data, "image[0]", LIMITS)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_a_lossless_image_keeps_its_pixels(kind: str) -> None:
    assert np.array_equal(decode(encoded(PIXELS, kind)), PIXELS)


@pytest.mark.parametrize("options", [{"kind": "JPEG"}, {"kind": "WEBP"}, {"kind": "JPEG", "progressive": True}])
def test_a_lossy_image_looks_like_the_original(options: dict[str, object]) -> None:
    decoded = decode(encoded(PIXELS, quality=95, **options))  # type: ignore[arg-type]
    assert decoded.shape == PIXELS.shape
    assert np.abs(decoded.astype(int) - PIXELS).mean() < 8


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_image_with_exif_rotation_is_turned_upright(kind: str, orientation: int) -> None:
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(undo[orientation](PIXELS))
    decoded = decode(
        encoded(
            stored,
            kind,
            exif=exif,
            **({"quality": 100} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}),
        )
    )
    assert decoded.shape == PIXELS.shape
    assert np.abs(decoded.astype(int) - PIXELS).mean() < 8


@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0II*\0\xff\xff\xff\xff", b"x" * 99]
)
def test_exif_data_without_sense_are_ignored(exif: bytes) -> None:
    assert decode(encoded(PIXELS, "JPEG", exif=exif)).shape == PIXELS.shape


def test_a_damaged_colour_profile_is_ignored() -> None:
    assert np.array_equal(decode(encoded(PIXELS, "PNG", icc_profile=b"no profile")), PIXELS)


@pytest.mark.parametrize("mode", ["L", "1", "P"])
def test_grey_and_palette_images_become_rgb(mode: str) -> None:
    image = Image.fromarray(PIXELS).convert(mode)
    assert np.array_equal(decode(encoded(image, "PNG")), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_a_16_bit_image_is_scaled_and_not_clipped(kind: str) -> None:
    values = np.linspace(0, 65535, 1200).astype(np.uint16).reshape(30, 40)
    decoded = decode(encoded(Image.fromarray(values), kind))
    assert np.array_equal(decoded[..., 0], np.rint(values / 257).astype(np.uint8))
    assert np.array_equal(decoded[..., 0], decoded[..., 2])


def test_an_image_of_32_bits_a_value_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"image\[0\]: an image of 32 bits a value"):
        decode(encoded(Image.fromarray(np.ones((8, 8), np.float32)), "TIFF"))


def test_a_cmyk_image_becomes_rgb() -> None:
    decoded = decode(encoded(Image.fromarray(PIXELS).convert("CMYK"), "JPEG", quality=95))
    assert np.abs(decoded.astype(int) - PIXELS).mean() < 8


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_laid_on_white(mode: str) -> None:
    image = Image.new(mode, (40, 30), 0)
    image.paste(Image.new("L", (20, 30), 100).convert(mode), (20, 0))
    decoded = decode(encoded(image, "PNG"))
    assert (decoded[:, :20] == 255).all()
    assert (decoded[:, 20:] == 100).all()


def test_a_transparent_colour_of_a_palette_is_laid_on_white() -> None:
    image = Image.fromarray(np.zeros((8, 8), np.uint8), "L").convert("P")
    assert (decode(encoded(image, "PNG", transparency=image.getpixel((0, 0)))) == 255).all()


def test_of_an_animated_image_the_first_frame_is_taken() -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if kind == "WEBP" else {}
        decoded = decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options))
        assert (decoded == (255, 0, 0)).all()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes"),
        (b"just some text, and not an image at all\n" * 20, "data that is no image"),
        (b"\x89PNG\r\n\x1a\n", "data that is no image"),
        (b"GIF89a", "data that is no image"),
    ],
)
def test_data_that_are_no_image_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"image\[0\]: .*{found}.*; allowed: a complete JPEG, PNG"):
        decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_image_is_refused(kind: str, part: float) -> None:
    data = encoded(picture(120, 90), kind)
    with pytest.raises(InvalidRequest, match=r"image\[0\]"):
        decode(data[: int(len(data) * part)])


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_that_lacks_only_its_end_marker_is_refused(kind: str) -> None:
    data = encoded(PIXELS, kind)
    with pytest.raises(InvalidRequest, match="before its end marker"):
        decode(data[: {"JPEG": -2, "PNG": -12}[kind]])


def test_the_end_marker_of_a_thumbnail_does_not_count() -> None:
    data = encoded(PIXELS, "JPEG", exif=b"Exif\0\0" + encoded(PIXELS, "JPEG"))
    assert decode(data).shape == PIXELS.shape
    with pytest.raises(InvalidRequest, match="before its end marker"):
        decode(data[:-2])


def test_bytes_after_the_end_of_a_jpeg_do_no_harm() -> None:
    assert decode(encoded(PIXELS, "JPEG") + b"trailer of a telephone").shape == PIXELS.shape


@pytest.mark.parametrize(("width", "height"), [(1001, 1000), (30_000, 30_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_by_its_header(width: int, height: int) -> None:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    with pytest.raises(InvalidRequest, match=rf"{width}x{height} pixels; allowed: at most 1000000 pixels"):
        decode(bomb)


@pytest.mark.parametrize("size", [(201, 1), (1, 201), (2000, 3)])
def test_an_extreme_aspect_ratio_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match=r"image\[0\]: .* pixels; allowed: sides of at most 200:1"):
        decode(encoded(Image.new("RGB", size), "PNG"))


def test_an_aspect_ratio_of_200_is_taken() -> None:
    assert decode(encoded(Image.new("RGB", (200, 1)), "PNG")).shape == (1, 200, 3)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(
        [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"RIFF\x20\0\0\0WEBPVP8 "]
    ),
)
def test_random_bytes_never_raise_anything_else(data: bytes, head: bytes) -> None:
    survives(head + data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]), st.data())
def test_mutated_images_never_raise_anything_else(kind: str, draw: st.DataObject) -> None:
    survives(mutated(encoded(PIXELS, kind), draw))


def mutated(data: bytes, draw: st.DataObject) -> bytes:
    """`data` with some bytes changed, and maybe cut off."""
    changed = bytearray(data)
    places = st.integers(0, len(data) - 1)
    for place, value in draw.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        changed[place] = value
    return bytes(changed[: draw.draw(st.one_of(st.just(len(data)), places))])


def survives(data: bytes) -> None:
    try:
        pixels = decode(data)
    except InvalidRequest as error:
        assert str(error).startswith("image[0]: ")
    else:
        assert pixels.dtype == np.uint8
        assert pixels.ndim == 3
        assert pixels.shape[2] == 3
