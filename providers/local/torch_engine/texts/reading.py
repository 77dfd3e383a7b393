"""Models of texts read from a folder: a tokenizer, and a module of transformers' on its device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn
from providers.local.torch_engine.devices import choose_device, choose_dtype, current, loading
from providers.local.torch_engine.loading.checkpoint import read_model

Told = TypeVar("Told")

_PADDED_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"})
"""The positions of these begin behind that of padding, so that fewer are left."""

_NO_LIMIT = 1_000_000
"""A tokenizer that knows of no limit says a number that is larger."""


@dataclass(frozen=True)
class TextModel:
    """A model that was read.

    Attributes:
        model: transformers' module, on its device and in evaluation mode.
        tokenizer: of the `tokenizers` library; it pads and cuts nothing.
        max_length: of a text in tokens, as the tokenizer says; larger than any where it does not.
        input_names: what the model is given, as the tokenizer says.
        longest_token: in bytes.
        device: where it is.
    """

    model: Any
    tokenizer: Any
    max_length: int
    input_names: Sequence[str]
    longest_token: int
    device: torch.device


def read_text_model(
    what: str,
    folder: Path,
    config: TorchConfig,
    where: RunsIn,
    look: Callable[[Any], tuple[Any, Told]],
    *,
    spare: tuple[str, ...] = (),
) -> tuple[TextModel, Told]:
    """The model in `folder`.

    Args:
        what: it is, and its name, for messages.
        folder: where it is.
        config: the provider's settings.
        where: the thread in which the weights are read.
        look: given the tokenizer of transformers', says which class of transformers' reads the
            model, and what else is known of the folder.
        spare: parts of the model that may be left out.

    Raises:
        ProviderStartError: it can't be loaded.
    """
    device = choose_device(config.device)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        kind, told = look(tokenizer)
        dtype = choose_dtype(config.dtype, device)
        model = where(read_model, kind, folder, spare=spare, dtype=dtype)
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"The {what} in {folder} can't be loaded: {error}. Pull it again or name another folder"
            " in the template."
        ) from error
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = config.control_tokens != "all"
    longest = max(len(token.encode()) for token in backend.get_vocab())
    with loading(what), current(device):
        model = model.to(device).eval()
    read = TextModel(
        model,
        backend,
        tokenizer.model_max_length,
        tokenizer.model_input_names,
        longest,
        device,
    )
    return read, told


def longest_text(config: Any, limits: Sequence[int | None]) -> int:
    """How many tokens a text can have: as many as there are positions, and no limit is exceeded."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and config.model_type in _PADDED_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    known = [each for each in (positions, *limits) if each is not None and each < _NO_LIMIT]
    return min(known, default=512)
