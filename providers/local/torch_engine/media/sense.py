"""What a model makes of media: how they come into prompts, and what it reads in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from providers.local.media.encoding import KeptEncodings
from providers.local.media.medium import Kind, MediumFile
from providers.local.media.placing import Layout, PlacedMedium
from providers.local.torch_engine.media.family import Encoding, MediumFamily


@dataclass(frozen=True, slots=True, eq=False)
class TorchMedium(PlacedMedium):
    """A medium in a prompt, and what the model reads in its place.

    Attributes:
        key: of the medium.
        encoding: what is read.
        is_whole: whether its tokens look at each other, and not back alone.
    """

    key: bytes = b""
    encoding: Encoding | None = None
    is_whole: bool = False


class TorchSense:
    """What one model makes of media of one kind; see `placing.Sense`.

    Args:
        family: how they come into its prompts.
        tower: transformers' model without the part that reads text, on its device.
        dtype: of what it reads.
        room: bytes in which that is kept for requests with the same media.

    Attributes:
        kept: what is.
    """

    def __init__(
        self, family: MediumFamily[Any], tower: Any, dtype: torch.dtype, room: int
    ) -> None:
        self.kept: KeptEncodings[Encoding] = KeptEncodings(room)
        self._family = family
        self._tower = tower
        self._dtype = dtype

    @property
    def kind(self) -> Kind:
        """See `placing.Sense`."""
        return self._family.kind

    @property
    def mark(self) -> str:
        """See `placing.Sense`."""
        return self._family.mark

    @property
    def token_id(self) -> int:
        """See `placing.Sense`."""
        return self._family.token_id

    @property
    def nbytes(self) -> int:
        """What the tower takes."""
        return sum(each.nbytes for each in self._tower.parameters())

    def layout(self, file: MediumFile) -> Layout:
        """See `placing.Sense`."""
        try:
            return self._family.layout(file)
        except ValueError as error:
            raise file.broken(error) from error

    def encode(self, medium: PlacedMedium) -> TorchMedium:
        """What the model reads of a medium; it is made once, as long as that is kept.

        It is for one thread at a time.

        Raises:
            APIError: 400; the medium's file is damaged.
        """
        file = medium.file
        found = self.kept.get(file.key, lambda: self._encoded(file))
        tokens = sum(map(len, medium.runs))
        if len(found.features) != tokens:
            raise RuntimeError(
                f"the model makes {len(found.features)} parts of a medium of {file.extent}, which"
                f" has {tokens} tokens"
            )
        return TorchMedium(file, medium.runs, medium.grid, file.key, found, self._family.is_whole)

    def _encoded(self, file: MediumFile) -> Encoding:
        given = self._family.prepared(file)
        device = next(self._tower.parameters()).device
        on_device = {name: value.to(device) for name, value in given.items()}
        with torch.inference_mode():
            found = self._family.encoded(self._tower, on_device)
        return Encoding(
            found.features.to("cpu", self._dtype),
            tuple(each.to("cpu", self._dtype) for each in found.deep),
        )
