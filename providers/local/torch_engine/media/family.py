"""What a family of models is asked about its media."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch

from providers.local.media.medium import Kind, MediumFile
from providers.local.media.placing import Layout

Spell = Callable[[int], str | None]
"""How a token is written; None for what is none."""

F = TypeVar("F", bound=MediumFile, contravariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """What a model reads of a medium.

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


class MediumFamily(ABC, Generic[F]):
    """How media of one kind come into the prompts of one model, and what it reads of them.

    Args:
        config: transformers' config of the whole model.
        processor: what transformers prepares such media with.
        spell: of its tokenizer.

    Attributes:
        token_id: the token that stands for a part of a medium.
        part: how that is written.
        mark: what the chat template writes for a medium.
    """

    kind: ClassVar[Kind]

    is_whole: bool = False
    """Whether the tokens of a medium look at each other, and not back alone."""

    def __init__(self, config: Any, processor: Any, spell: Spell) -> None:
        self.config = config
        self.processor = processor
        self.token_id = self.token_of(config)
        self.part = spelled(spell, self.token_id)
        self.mark = self.part

    @classmethod
    def token_of(cls, config: Any) -> int:
        """The token that stands for a part of a medium, by the model's config."""
        return int(getattr(config, f"{cls.kind}_token_id"))

    @abstractmethod
    def layout(self, file: F) -> Layout:
        """How a medium comes into a prompt.

        Raises:
            ValueError: none of such an extent does; the message says why.
        """

    @abstractmethod
    def prepared(self, file: F) -> Mapping[str, torch.Tensor]:
        """What the model is given of a medium.

        Raises:
            APIError: 400; the file is damaged, or has what the model does not take.
        """

    @abstractmethod
    def encoded(self, tower: Any, given: Mapping[str, torch.Tensor]) -> Encoding:
        """What the model reads of it.

        Args:
            tower: transformers' model without the part that reads text.
            given: see `prepared`; on its device.
        """


def spelled(spell: Spell, token_id: int) -> str:
    """How a token is written.

    Raises:
        ValueError: it is none.
    """
    found = spell(token_id)
    if found is None:
        raise ValueError(f"its tokenizer has no token {token_id}, which stands for media.")
    return found
