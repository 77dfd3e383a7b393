"""Files of pictures: which are taken, and what is made of them, whichever engine sees them."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("PIL", reason="needs the extra 'torch' or 'llama-cpp'")

from PIL import Image, ImageFile

from llama_compat.errors import APIError
from llama_compat.types import ImageContent, UserMessage
from providers.local.media.files import media_files
from providers.local.media.limits import MediaLimits, PictureLimits
from providers.local.media.pictures import PictureFile

LIMITS = PictureLimits(max_pixels=10_000)
SIDEWAYS = 0x0112


def saved(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def content_of(file: bytes, media_type: str = "image/png") -> ImageContent:
    return ImageContent(f"data:{media_type};base64,{base64.b64encode(file).decode()}")


def files_of(*files: bytes, media_type: str = "image/png", **limits: Any) -> list[PictureFile]:
    parts = tuple(content_of(each, media_type) for each in files)
    files = media_files([UserMessage(parts)], MediaLimits(images=LIMITS.model_copy(update=limits)))
    return [each for each in files if isinstance(each, PictureFile)]


def refusal_of(*files: bytes, **options: Any) -> APIError:
    def unpack() -> None:
        for each in files_of(*files, **options):
            each.unpacked()

    with pytest.raises(APIError) as raised:
        unpack()
    assert raised.value.status == 400
    assert (raised.value.param or "").startswith("messages[0].content[")
    return raised.value


def frames(kind: str) -> bytes:
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    return saved(first, kind, save_all=True, append_images=[second])


def halves() -> Any:
    """Of 40 x 20 pixels, red on the left and blue on the right."""
    image = Image.new("RGB", (40, 20), "red")
    image.paste("blue", (20, 0, 40, 20))
    return image


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_what_moves_is_refused(kind: str) -> None:
    error = refusal_of(frames(kind))
    assert error.code == "invalid_image"
    assert "2 frames" in error.message


def test_other_views_of_a_photograph_are_left_out() -> None:
    """Telephones put the brightness of each pixel, or what a second lens saw, behind the first."""
    [file] = files_of(frames("MPO"), media_type="image/jpeg")
    red, green, blue = file.unpacked().getpixel((4, 4))
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize("orientation", range(11))
def test_a_picture_has_the_size_that_it_is_unpacked_to(orientation: int) -> None:
    """However its camera was held, and where its file says something that there is not."""
    exif = Image.Exif()
    exif[SIDEWAYS] = orientation
    for kind in ("JPEG", "PNG", "WEBP"):
        [file] = files_of(saved(halves(), kind, exif=exif))
        image = file.unpacked()
        assert (file.width, file.height) == image.size
        assert image.size == ((20, 40) if 5 <= orientation <= 8 else (40, 20))
    if orientation == 6:
        assert image.getpixel((10, 5))[0] > 200


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(("side", "said"), [(101, "101 x 101 pixels"), (30_000, "pixels")])
def test_what_says_that_it_has_many_pixels_is_not_unpacked(
    side: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: Any) -> None:
        raise AssertionError("it was unpacked")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1 << 16))
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows)
    error = refusal_of(file)
    assert error.code == "image_too_large"
    assert said in error.message


def test_text_that_unpacks_to_much_is_refused() -> None:
    """A comment of a PNG is packed too: of 200 MB here."""
    file = saved(Image.new("RGB", (8, 8)))
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    end = file.index(b"IDAT") - 4
    bomb = file[:end] + chunk(b"zTXt", b"Comment\0\0" + packed) + file[end:]
    assert refusal_of(bomb).code == "invalid_image"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
@pytest.mark.parametrize("left", [0.02, 0.5, 0.95])
def test_a_file_that_breaks_off_is_refused(kind: str, left: float) -> None:
    file = saved(Image.effect_noise((60, 60), 80).convert("RGB"), kind)
    assert refusal_of(file[: int(len(file) * left)]).code == "invalid_image"


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
def test_few_pixels_are_taken(size: tuple[int, int]) -> None:
    [file] = files_of(saved(Image.new("RGB", size, "red")))
    assert file.unpacked().size == size == (file.width, file.height)


@pytest.mark.parametrize(
    ("mode", "colour", "kind"),
    [
        ("CMYK", (0, 255, 255, 0), "JPEG"),
        ("P", 1, "PNG"),
        ("RGBA", (255, 0, 0, 128), "PNG"),
        ("LA", (255, 255), "PNG"),
        ("1", 1, "PNG"),
        ("I;16", 65535, "PNG"),
        ("I;16", 32768, "PNG"),
    ],
)
def test_colours_of_other_kinds_are_what_they_were(mode: str, colour: Any, kind: str) -> None:
    image = Image.new(mode, (16, 16), colour)
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 0, 0])
    expected = {"I;16": (int(colour / 257),) * 3 if mode == "I;16" else ()}.get(mode)
    expected = expected or ((255, 255, 255) if mode in ("LA", "1") else (255, 0, 0))
    found = files_of(saved(image, kind))[0].unpacked().getpixel((8, 8))
    assert all(abs(one - other) <= 4 for one, other in zip(found, expected, strict=True)), found


def test_a_file_counts_and_not_what_its_url_calls_it() -> None:
    """As vendors have it."""
    file = saved(halves(), "JPEG")
    [named], [other] = files_of(file, media_type="image/jpeg"), files_of(file)
    assert named.key == other.key
    assert refusal_of(b"%PDF-1.7 is no picture").code == "invalid_image"
    assert refusal_of(file, media_type="application/pdf").code == "invalid_value"


def test_too_many_are_refused_before_any_is_read() -> None:
    error = refusal_of(*[b"no picture"] * 50)
    assert error.code == "too_many_images"
    assert "no more than 32" in error.message
    assert error.param == "messages[0].content[32]"
