"""Files of pictures: how large they are, and their pixels.

A file of some kilobytes may say that it holds a picture of gigabytes. So its size is read from its
first bytes, and it is unpacked only where that is within bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from llama_compat.errors import APIError
from providers.local.media.limits import PictureLimits
from providers.local.media.medium import (
    Kind,
    MediumFile,
    broken_medium,
    invalid_medium,
    too_large,
)

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
"""What files are read as: what OpenAI's API takes, and BMP. Pillow knows sixty more, most of them
for old programs, whose readers nobody need be able to reach."""

MOVING = ("GIF", "PNG", "WEBP")
"""Files whose frames come one after the other. In others, such as photographs of telephones (MPO),
they are other views of what the first one shows."""

_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""

_ON_ITS_SIDE = range(5, 9)
"""Values of it; there are no higher ones, and who writes one means nothing by it."""


@dataclass(frozen=True)
class PictureFile(MediumFile):
    """A picture as it came.

    Attributes:
        width, height: pixels, as it is to be seen: turned as its EXIF says.
    """

    kind: ClassVar[Kind] = "image"

    width: int
    height: int

    @property
    def extent(self) -> str:
        """See `MediumFile`."""
        return f"{self.width} x {self.height} pixels"

    def unpacked(self) -> Image:
        """Its pixels, in RGB.

        Raises:
            APIError: 400; the file is damaged behind its first bytes.
        """
        from PIL import Image, ImageOps

        try:
            with Image.open(BytesIO(self.content), formats=FORMATS) as image:
                turned = ImageOps.exif_transpose(image)
                return _with_8_bits(turned).convert("RGB")
        except Exception as error:  # of a damaged file, whatever its reader stumbles over
            raise self.broken(error) from error


def picture_file(content: bytes, param: str, limits: PictureLimits) -> PictureFile:
    """The file, as far as its first bytes tell.

    Args:
        content: its bytes.
        param: see `MediumFile`.
        limits: of pixels.

    Raises:
        APIError: 400; it is no picture, too large, or moves.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        # Pillow's own bound on pixels, a warning and an error, is above every bound here.
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if not width or not height:
                raise invalid_medium("image", param, "has no pixels.")
            if width * height > limits.max_pixels:
                raise too_large(
                    "image",
                    param,
                    f"The picture in '{param}' has {width} x {height} pixels, and no more than"
                    f" {limits.max_pixels} may be unpacked. Send a smaller one, or raise"
                    " `images.max_pixels` for this provider in the template.",
                )
            # From here on it may be unpacked: where a PNG's EXIF is behind its pixels, it is.
            frames = int(getattr(image, "n_frames", 1)) if image.format in MOVING else 1
            is_turned = image.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
    except UnidentifiedImageError as error:
        why = "is none that can be read: send a PNG, JPEG, WebP, BMP or GIF file."
        raise invalid_medium("image", param, why) from error
    except Image.DecompressionBombError:
        raise too_large(
            "image",
            param,
            f"The picture in '{param}' has far more pixels than the {limits.max_pixels} that it may"
            " have. Send a smaller one.",
        ) from None
    except APIError:
        raise
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise broken_medium("image", param, error) from error
    if frames > 1:
        why = f"moves: it has {frames} frames. Send one of them."
        raise invalid_medium("image", param, why)
    if is_turned:
        width, height = height, width
    return PictureFile(content, param, width, height)


def _with_8_bits(image: Any) -> Any:
    """Greys of 16 bits as such of 8; Pillow would cut them off at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    import numpy
    from PIL import Image

    return Image.fromarray((numpy.asarray(image).clip(0, 65535) / 257).astype(numpy.uint8))
