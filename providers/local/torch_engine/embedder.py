"""Texts made into vectors by a sentence-transformers folder.

Such a folder has a transformer, a `modules.json` that names the steps behind it, and a folder for
each: pooling and, for most, normalisation. Source: https://sbert.net/docs/sentence_transformer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.local.embedder_thread import EmbedderThread
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn, on_cpu_thread, on_device
from providers.local.torch_engine.devices import choose_device, choose_dtype
from providers.local.torch_engine.loading.checkpoint import read_model

BATCH_TOKENS = {"cpu": 512, "cuda": 4096}
"""Tokens that are run at once, padding included; a CPU's models wait for each other meanwhile."""

UNUSED = ("pooler",)
"""Parts of transformers' models that come after the states that are pooled here."""

Pooling = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""`[texts, tokens, hidden]` and a mask `[texts, tokens]` to `[texts, hidden]`."""


def _mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def _first(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[:, 0]


def _last(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": _mean,
    "pooling_mode_cls_token": _first,
    "pooling_mode_lasttoken": _last,
}
"""By the word in the pooling's config."""


@dataclass(frozen=True)
class LoadedEmbedder:
    """A sentence-transformers folder, loaded.

    Attributes:
        name: the provider's name for it.
        model: transformers' module, on its device and in evaluation mode.
        tokenizer: of the `tokenizers` library.
        pooling: makes one vector of a text's.
        normalize: whether vectors have length 1.
        max_tokens: that a text can have.
        max_characters: that a text can have if its tokens are the longest.
    """

    name: str
    model: Any
    tokenizer: Any
    pooling: Pooling
    normalize: bool
    max_tokens: int
    max_characters: int


def is_embedder(folder: Path) -> bool:
    """Whether `folder` is of this kind."""
    return (folder / "modules.json").is_file()


def load_embedder(
    name: str,
    folder: Path,
    config: TorchConfig,
    context_length: int | None,
    where: RunsIn = on_cpu_thread,
) -> LoadedEmbedder:
    """Load the model in `folder`.

    Args:
        name: the provider's name for it.
        folder: where it is.
        config: the provider's settings.
        context_length: the tokens that a text may have, if less than the model takes.
        where: the thread in which the weights are read.

    Raises:
        ProviderStartError: it can't be loaded, or has a step that is not known here.
    """
    device = choose_device(config.device)
    transformers_logging.disable_progress_bar()
    try:
        pooling, normalize = _steps(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = where(
            read_model, AutoModel, folder, spare=UNUSED, dtype=choose_dtype(config.dtype, device)
        )
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"The embedding model '{name}' in {folder} can't be loaded: {error}. Pull it again or"
            " name another folder in the template."
        ) from error
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = config.control_tokens != "all"
    limits = [
        _settings(folder / "sentence_bert_config.json").get("max_seq_length"),
        getattr(model.config, "max_position_embeddings", None),
        context_length,
    ]
    known = [limit for limit in limits if limit is not None]
    max_tokens = min(known, default=512)
    longest_token = max(len(token.encode()) for token in backend.get_vocab())
    return LoadedEmbedder(
        name,
        model.to(device).eval(),
        backend,
        pooling,
        normalize,
        max_tokens,
        max_tokens * longest_token,
    )


def _steps(folder: Path) -> tuple[Pooling, bool]:
    steps = json.loads((folder / "modules.json").read_text("utf-8"))
    kinds = [str(step["type"]).rpartition(".")[2] for step in steps]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(f"its steps are {', '.join(kinds)}, of which some are not known here")
    settings = _settings(folder / steps[1]["path"] / "config.json")
    modes = [mode for mode, is_on in settings.items() if mode.startswith("pooling_mode_") and is_on]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(f"its pooling is {' and '.join(modes) or 'none'}, which is not known here")
    return POOLINGS[modes[0]], "Normalize" in kinds


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


class TorchEmbedder(EmbedderThread):
    """Embeds with one model of such a folder.

    Args:
        loaded: the model.
        max_waiting: how many requests may wait.
    """

    def __init__(self, loaded: LoadedEmbedder, max_waiting: int) -> None:
        super().__init__(loaded.name, int(loaded.model.config.hidden_size), max_waiting)
        self.loaded = loaded

    def _encode(self, index: int, text: str) -> list[int]:
        if len(text) > self.loaded.max_characters:
            raise self._too_long(index, f"{len(text)} characters, too many for")
        token_ids: list[int] = self.loaded.tokenizer.encode_batch_fast([text])[0].ids
        if len(token_ids) > self.loaded.max_tokens:
            raise self._too_long(index, f"{len(token_ids)} tokens, more than")
        return token_ids

    def _too_long(self, index: int, what: str) -> APIError:
        return APIError(
            400,
            f"Text {index} of 'input' has {what} the {self.loaded.max_tokens} tokens that the"
            f" model '{self.loaded.name}' takes. Cut it.",
            param="input",
            code="context_length_exceeded",
        )

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        return batches(lengths, BATCH_TOKENS[self.loaded.model.device.type])

    def _run(
        self, batch: Sequence[Sequence[int]], dimensions: int | None
    ) -> Iterable[tuple[float, ...]]:
        device: torch.device = self.loaded.model.device
        return on_device(device, self._vectors, batch, dimensions, device)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _vectors(
        self, batch: Sequence[Sequence[int]], dimensions: int | None, device: torch.device
    ) -> Iterable[tuple[float, ...]]:
        longest = max(map(len, batch))
        token_ids = torch.tensor(
            [[*each, *[0] * (longest - len(each))] for each in batch], device=device
        )
        lengths = torch.tensor([len(each) for each in batch], device=device)
        mask = (torch.arange(longest, device=device) < lengths[:, None]).long()
        output = self.loaded.model(input_ids=token_ids, attention_mask=mask)
        vectors = self.loaded.pooling(output.last_hidden_state, mask).float()
        if dimensions is not None:
            vectors = vectors[:, :dimensions]
        if self.loaded.normalize:
            vectors = functional.normalize(vectors, dim=-1)
        return map(tuple, vectors.cpu().tolist())


def batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The indices of texts that are run together: of similar length, so that padding is short.

    Together they have at most so many `tokens`, with padding, or are a single one.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # They get longer, so this one is the longest of its batch.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
