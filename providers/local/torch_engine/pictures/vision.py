"""What a model makes of pictures: how they come into prompts, and what it sees in them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from providers.local.pictures.files import PictureFile, broken_picture
from providers.local.pictures.placing import Look, PlacedPicture
from providers.local.torch_engine.pictures.families import PictureFamily


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What a model sees in a picture, in main memory.

    Attributes:
        features: what takes the place of its tokens' embeddings, `[tokens, hidden]`.
        deep: what is added to them behind each of the first layers, likewise; Qwen 3-VL's
            (DeepStack, arXiv:2406.04334).
    """

    features: torch.Tensor
    deep: tuple[torch.Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return int(sum(each.nbytes for each in (self.features, *self.deep)))


@dataclass(frozen=True, slots=True, eq=False)
class SeenPicture(PlacedPicture):
    """A picture in a prompt, and what is seen in it.

    Attributes:
        key: of the picture.
        seen: in it.
        is_whole: whether its tokens look at each other, and not back alone.
    """

    key: bytes = b""
    seen: Sight | None = None
    is_whole: bool = False


class TorchVision:
    """What one model makes of pictures; see `placing.Vision`.

    Args:
        family: how they come into its prompts.
        tower: transformers' model without the part that reads text, on its device.
        dtype: of what it sees.
        room: bytes in which that is kept for requests with the same pictures.
    """

    def __init__(self, family: PictureFamily, tower: Any, dtype: torch.dtype, room: int) -> None:
        self._family = family
        self._tower = tower
        self._dtype = dtype
        self._room = room
        self._kept: OrderedDict[bytes, Sight] = OrderedDict()
        self._taken = 0

    @property
    def mark(self) -> str:
        """See `placing.Vision`."""
        return self._family.mark

    @property
    def token_id(self) -> int:
        """See `placing.Vision`."""
        return self._family.token_id

    @property
    def nbytes(self) -> int:
        """What the tower takes."""
        return sum(each.nbytes for each in self._tower.parameters())

    def look(self, picture: PictureFile) -> Look:
        """See `placing.Vision`."""
        try:
            return self._family.look(picture.width, picture.height)
        except ValueError as error:
            raise broken_picture(picture.param, error) from error

    def see(self, picture: PlacedPicture) -> SeenPicture:
        """What the model sees in a picture; it looks once, as long as that is kept.

        It is for one thread at a time.

        Raises:
            APIError: 400; the picture's file is damaged.
        """
        key = picture.file.key
        seen = self._kept.get(key)
        if seen is None:
            seen = self._seen(picture.file)
            self._keep(key, seen)
        else:
            self._kept.move_to_end(key)
        tokens = sum(map(len, picture.runs))
        if len(seen.features) != tokens:
            raise RuntimeError(
                f"the model sees {len(seen.features)} parts of a picture of"
                f" {picture.file.width} x {picture.file.height} pixels, which has {tokens} tokens"
            )
        return SeenPicture(
            picture.file, picture.runs, picture.grid, key, seen, self._family.is_whole
        )

    def _seen(self, file: PictureFile) -> Sight:
        image = file.unpacked()
        try:
            given = self._family.processor(
                images=[image], return_tensors="pt", **self._family.given
            )
        except ValueError as error:
            raise broken_picture(file.param, error) from error
        device = next(self._tower.parameters()).device
        taken = {
            name: given[name].to(device)
            for name in ("pixel_values", "pixel_attention_mask", "image_grid_thw")
            if name in given
        }
        with torch.inference_mode():
            found = self._tower.get_image_features(**taken, return_dict=True)
            features = self._in_rows(found.pooler_output)
            deep = tuple(map(self._in_rows, getattr(found, "deepstack_features", None) or ()))
        return Sight(features, deep)

    def _in_rows(self, found: Any) -> torch.Tensor:
        """One picture's parts, below each other."""
        parts = found if isinstance(found, torch.Tensor) else torch.cat(list(found))
        return parts.flatten(0, -2).to("cpu", self._dtype)

    def _keep(self, key: bytes, seen: Sight) -> None:
        self._kept[key] = seen
        self._taken += seen.nbytes
        while self._taken > self._room:
            _, gone = self._kept.popitem(last=False)
            self._taken -= gone.nbytes
