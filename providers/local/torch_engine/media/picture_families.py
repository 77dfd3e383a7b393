"""How each family of models takes pictures.

What is here are facts of transformers' processors, of which some can't be made without torchvision:
how many tokens a picture of some size has, and what is written around them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from providers.local.media.medium import Kind
from providers.local.media.pictures import PictureFile
from providers.local.media.placing import Layout
from providers.local.torch_engine.media.family import Encoding, MediumFamily, Spell, spelled


class PictureFamily(MediumFamily[PictureFile]):
    """How pictures come into the prompts of one model.

    Attributes:
        given: what the processor is told besides the picture.
    """

    kind: ClassVar[Kind] = "image"

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        self.given: dict[str, Any] = {}

    def layout(self, file: PictureFile) -> Layout:
        """See `MediumFamily`."""
        return self.sized(file.width, file.height)

    @abstractmethod
    def sized(self, width: int, height: int) -> Layout:
        """How a picture of so many pixels comes into a prompt.

        Raises:
            ValueError: none of such a size does; the message says why.
        """

    def prepared(self, file: PictureFile) -> Mapping[str, torch.Tensor]:
        """See `MediumFamily`."""
        image = file.unpacked()
        try:
            given = self.processor(images=[image], return_tensors="pt", **self.given)
        except ValueError as error:
            raise file.broken(error) from error
        names = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_position_ids")
        return {name: given[name] for name in names if name in given}

    def encoded(self, tower: Any, given: Mapping[str, torch.Tensor]) -> Encoding:
        """See `MediumFamily`."""
        found = tower.get_image_features(**given, return_dict=True)
        deep = tuple(map(_in_rows, getattr(found, "deepstack_features", None) or ()))
        return Encoding(_in_rows(found.pooler_output), deep)


def _in_rows(found: Any) -> torch.Tensor:
    """One picture's parts, below each other."""
    parts = found if isinstance(found, torch.Tensor) else torch.cat(list(found))
    return parts.flatten(0, -2)


class QwenPictures(PictureFamily):
    """Qwen 2-VL, 2.5-VL and 3-VL: as many tokens as the picture's size asks for, in a grid."""

    def sized(self, width: int, height: int) -> Layout:
        """See `MediumFamily`."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        edge = self.processor.patch_size * self.processor.merge_size
        size = self.processor.size
        resized = smart_resize(
            height,
            width,
            factor=edge,
            min_pixels=size["shortest_edge"],
            max_pixels=size["longest_edge"],
        )
        rows, columns = (pixels // edge for pixels in resized)
        return Layout(self.part * (rows * columns), rows * columns, (rows, columns))


class GemmaPictures(PictureFamily):
    """Gemma 3: every picture has the same number of tokens."""

    is_whole = True

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        self.mark = spelled(spell, config.boi_token_id)
        self._end = spelled(spell, config.eoi_token_id)
        # Crops of a picture are more pictures, in a text around them that is said nowhere else.
        self.given = {"do_pan_and_scan": False}

    def sized(self, width: int, height: int) -> Layout:
        """See `MediumFamily`."""
        tokens = self.config.mm_tokens_per_image
        return Layout(f"\n\n{self.mark}{self.part * tokens}{self._end}\n\n", tokens)


class Gemma4Pictures(PictureFamily):
    """Gemma 4: as many tokens as the picture's shape lets fit into a bound."""

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        self._begin, self._end = (
            spelled(spell, each) for each in (config.boi_token_id, config.eoi_token_id)
        )
        # Of the large ones; those of the small ones look back alone.
        self.is_whole = config.get_text_config().use_bidirectional_attention == "vision"

    def sized(self, width: int, height: int) -> Layout:
        """See `MediumFamily`."""
        from transformers.models.gemma4.image_processing_pil_gemma4 import (
            get_aspect_ratio_preserving_size,
        )

        patch, pooled = self.processor.patch_size, self.processor.pooling_kernel_size
        resized = get_aspect_ratio_preserving_size(
            height, width, patch, self.processor.max_soft_tokens * pooled**2, pooled
        )
        rows, columns = (pixels // (patch * pooled) for pixels in resized)
        tokens = rows * columns
        return Layout(f"{self._begin}{self.part * tokens}{self._end}", tokens)


class TiledPictures(PictureFamily):
    """Idefics 3 and SmolVLM: a picture is cut into tiles, and is seen as a whole after them."""

    AROUND = "<fake_token_around_image>"
    WHOLE = "<global-img>"

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        vision = config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        self._tokens = int(patches / config.scale_factor**2)

    def sized(self, width: int, height: int) -> Layout:
        """See `MediumFamily`."""
        _, rows, columns = self.processor.get_number_of_image_patches(height, width)
        parts = self.part * self._tokens
        tiles = "".join(
            "".join(
                f"{self.AROUND}<row_{row + 1}_col_{column + 1}>{parts}" for column in range(columns)
            )
            + "\n"
            for row in range(rows)
        )
        whole = f"{self.AROUND}{self.WHOLE}{parts}{self.AROUND}"
        text = f"{tiles}\n{whole}" if tiles else whole
        return Layout(text, self._tokens * (rows * columns + 1))
