"""Texts made into vectors by a sentence-transformers folder.

Such a folder has a transformer, and a `modules.json` that names the steps behind it; see `pooling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoModel

from llama_compat.types import EmbeddingRequest
from providers.local.embedder_thread import EmbedderThread
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn, on_cpu_thread, on_device
from providers.local.torch_engine.devices import within_memory
from providers.local.torch_engine.texts.batches import BATCH_TOKENS, batches
from providers.local.torch_engine.texts.pooling import Steps, read_steps, settings_in
from providers.local.torch_engine.texts.reading import longest_text, read_text_model

UNUSED = ("pooler",)
"""Parts of transformers' models that come after the states that are pooled here."""


@dataclass(frozen=True)
class LoadedEmbedder:
    """A sentence-transformers folder, loaded.

    Attributes:
        name: the provider's name for it.
        model: transformers' module, on its device and in evaluation mode.
        tokenizer: of the `tokenizers` library.
        steps: what is done with its states.
        size: how many numbers a vector has.
        max_tokens: that a text can have.
        max_characters: that a text can have if its tokens are the longest.
    """

    name: str
    model: Any
    tokenizer: Any
    steps: Steps
    size: int
    max_tokens: int
    max_characters: int


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
    read, steps = read_text_model(
        f"embedding model '{name}'",
        folder,
        config,
        where,
        lambda _: (AutoModel, read_steps(folder)),
        spare=UNUSED,
    )
    own = settings_in(folder / "sentence_bert_config.json").get("max_seq_length")
    max_tokens = longest_text(read.model.config, [own, read.max_length, context_length])
    size = len(steps.poolings) * int(read.model.config.hidden_size)
    if steps.dense:
        size = len(steps.dense[-1].weight)
    return LoadedEmbedder(
        name,
        read.model,
        read.tokenizer,
        steps,
        size,
        max_tokens,
        max_tokens * read.longest_token,
    )


class TorchEmbedder(EmbedderThread):
    """Embeds with one model of such a folder.

    Args:
        loaded: the model.
        max_waiting: how many requests may wait.
    """

    def __init__(self, loaded: LoadedEmbedder, max_waiting: int) -> None:
        super().__init__(loaded.name, loaded.size, max_waiting)
        self.loaded = loaded

    def _why_not(self, dimensions: int) -> str | None:
        steps = self.loaded.steps
        if dimensions == self.loaded.size:
            return None
        if not steps.may_be_cut:
            return (
                "was not trained for vectors that are cut, as its config.json would say with"
                " 'matryoshka_dimensions'"
            )
        if steps.sizes and dimensions not in steps.sizes:
            return f"was trained for vectors of {', '.join(map(str, steps.sizes))} numbers"
        return None

    def _prompt(self, request: EmbeddingRequest) -> str:
        prompts = self.loaded.steps.prompts
        return prompts.chosen(self.loaded.name, request.prompt_name, request.input_type)

    def _encode(self, request: EmbeddingRequest, index: int, text: str) -> list[int]:
        loaded, tokenizer = self.loaded, self.loaded.tokenizer
        text = self._prompt(request) + text
        most = loaded.max_characters
        if request.truncate is None:
            if len(text) > most:
                raise self._too_long(
                    index, f"{len(text)} characters, too many for", loaded.max_tokens
                )
            tokenizer.no_truncation()
        else:
            limit = min(loaded.max_tokens, request.max_tokens or loaded.max_tokens)
            side = "right" if request.truncate == "end" else "left"
            text = text[:most] if request.truncate == "end" else text[-most:]
            # Special tokens stay, whatever room there is.
            added = tokenizer.num_special_tokens_to_add(is_pair=False)
            tokenizer.enable_truncation(max(limit, added), direction=side)
        token_ids: list[int] = tokenizer.encode_batch_fast([text])[0].ids
        if len(token_ids) > loaded.max_tokens:
            raise self._too_long(index, f"{len(token_ids)} tokens, more than", loaded.max_tokens)
        return token_ids

    def _not_pooled(self, request: EmbeddingRequest) -> int:
        """How many tokens at the beginning of each text are not pooled: a prompt's."""
        prompt = self._prompt(request)
        if self.loaded.steps.pools_prompt or not prompt:
            return 0
        self.loaded.tokenizer.no_truncation()
        alone = self.loaded.tokenizer.encode_batch_fast([prompt])[0]
        return len(alone.ids) - int(alone.special_tokens_mask[-1])

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        return batches(lengths, BATCH_TOKENS[self.loaded.model.device.type])

    def _run(
        self, batch: Sequence[Sequence[int]], request: EmbeddingRequest
    ) -> Iterable[tuple[float, ...]]:
        device: torch.device = self.loaded.model.device
        not_pooled = self._not_pooled(request)
        with within_memory(self._name, device):
            return on_device(device, self._vectors, batch, request.dimensions, not_pooled, device)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _vectors(
        self,
        batch: Sequence[Sequence[int]],
        dimensions: int | None,
        not_pooled: int,
        device: torch.device,
    ) -> Iterable[tuple[float, ...]]:
        longest = max(map(len, batch))
        token_ids = torch.tensor(
            [[*each, *[0] * (longest - len(each))] for each in batch], device=device
        )
        lengths = torch.tensor([len(each) for each in batch], device=device)
        mask = (torch.arange(longest, device=device) < lengths[:, None]).long()
        output = self.loaded.model(input_ids=token_ids, attention_mask=mask)
        steps = self.loaded.steps
        pooled = mask * (torch.arange(longest, device=device) >= not_pooled)
        vectors = steps.pooled(output.last_hidden_state, pooled).float()
        for dense in steps.dense:
            vectors = dense(vectors)
        if dimensions is not None:
            vectors = vectors[:, :dimensions]
        if steps.normalize:
            vectors = functional.normalize(vectors, dim=-1)
        return map(tuple, vectors.cpu().tolist())
