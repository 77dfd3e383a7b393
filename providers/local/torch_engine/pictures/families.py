"""How each family of models takes pictures: a row for each `model_type`.

What is here are facts of transformers' processors, of which some can't be made without torchvision:
how many tokens a picture of some size has, and what is written around them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from providers.local.pictures.placing import Look

Spell = Callable[[int], str | None]
"""How a token is written; None for what is none."""


class PictureFamily(ABC):
    """How pictures come into the prompts of one model.

    Args:
        config: transformers' config of the whole model.
        processor: transformers' image processor.
        spell: of its tokenizer.

    Attributes:
        token_id: the token that stands for a part of a picture.
        mark: what the chat template writes for a picture.
        given: what the processor is told besides the picture.
    """

    is_whole: ClassVar[bool] = False
    """Whether the tokens of a picture look at each other, and not back alone."""

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        self.config = config
        self.processor = processor
        self.token_id = int(config.image_token_id)
        self.part = spelled(spell, self.token_id)
        self.mark = self.part
        self.given: dict[str, Any] = {}

    @abstractmethod
    def look(self, width: int, height: int) -> Look:
        """How a picture of so many pixels comes into a prompt.

        Raises:
            ValueError: none of such a size does; the message says why.
        """


def spelled(spell: Spell, token_id: int) -> str:
    """How a token is written.

    Raises:
        ValueError: it is none.
    """
    found = spell(token_id)
    if found is None:
        raise ValueError(f"its tokenizer has no token {token_id}, which stands for pictures.")
    return found


class QwenPictures(PictureFamily):
    """Qwen 2-VL, 2.5-VL and 3-VL: as many tokens as the picture's size asks for, in a grid."""

    def look(self, width: int, height: int) -> Look:
        """See `PictureFamily`."""
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
        return Look(self.part * (rows * columns), rows * columns, (rows, columns))


class GemmaPictures(PictureFamily):
    """Gemma 3: every picture has the same number of tokens."""

    is_whole = True

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        self.mark = spelled(spell, config.boi_token_id)
        self._end = spelled(spell, config.eoi_token_id)
        # Crops of a picture are more pictures, in a text around them that is said nowhere else.
        self.given = {"do_pan_and_scan": False}

    def look(self, width: int, height: int) -> Look:
        """See `PictureFamily`."""
        tokens = self.config.mm_tokens_per_image
        return Look(f"\n\n{self.mark}{self.part * tokens}{self._end}\n\n", tokens)


class TiledPictures(PictureFamily):
    """Idefics 3 and SmolVLM: a picture is cut into tiles, and is seen as a whole after them."""

    AROUND = "<fake_token_around_image>"
    WHOLE = "<global-img>"

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        super().__init__(config, processor, spell)
        vision = config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        self._tokens = int(patches / config.scale_factor**2)

    def look(self, width: int, height: int) -> Look:
        """See `PictureFamily`."""
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
        return Look(text, self._tokens * (rows * columns + 1))


FAMILIES: Mapping[str, type[PictureFamily]] = {
    "qwen2_vl": QwenPictures,
    "qwen2_5_vl": QwenPictures,
    "qwen3_vl": QwenPictures,
    "gemma3": GemmaPictures,
    "idefics3": TiledPictures,
    "smolvlm": TiledPictures,
}
"""By the `model_type` of the whole model."""
