"""Documents ranked by a cross-encoder, which reads a query and a document together.

Such a folder has a `...ForSequenceClassification` with one label, as BERT (ms-marco-MiniLM),
RoBERTa and XLM-RoBERTa (bge-reranker) have it. Its number becomes a relevance by the logistic
function, as https://sbert.net/docs/cross_encoder does it for one label; the order is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from llama_compat.errors import APIError
from llama_compat.types import RankedDocument, RerankRequest, RerankResponse, Usage
from providers.base import ProviderStartError
from providers.local.batch_thread import BatchThread, Gone
from providers.local.engine_thread import no_numbers
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn, on_cpu_thread, on_device
from providers.local.torch_engine.devices import choose_device, choose_dtype
from providers.local.torch_engine.embedder import BATCH_TOKENS, batches, longest_text
from providers.local.torch_engine.loading.checkpoint import read_model


@dataclass(frozen=True)
class LoadedReranker:
    """A cross-encoder, loaded.

    Attributes:
        name: the provider's name for it.
        model: transformers' module, on its device and in evaluation mode.
        tokenizer: of the `tokenizers` library.
        padding: the token that fills short texts up.
        has_types: whether it is told which tokens are the query's.
        max_tokens: that a query and a document can have together.
        max_characters: that both can have if their tokens are the longest.
    """

    name: str
    model: Any
    tokenizer: Any
    padding: int
    has_types: bool
    max_tokens: int
    max_characters: int


def load_reranker(
    name: str,
    folder: Path,
    config: TorchConfig,
    context_length: int | None,
    where: RunsIn = on_cpu_thread,
) -> LoadedReranker:
    """Load the model in `folder`.

    Args:
        name: the provider's name for it.
        folder: where it is.
        config: the provider's settings.
        context_length: the tokens that a query and a document may have, if less than the model
            takes.
        where: the thread in which the weights are read.

    Raises:
        ProviderStartError: it can't be loaded.
    """
    device = choose_device(config.device)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        dtype = choose_dtype(config.dtype, device)
        model = where(read_model, AutoModelForSequenceClassification, folder, dtype=dtype)
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise ProviderStartError(
            f"The reranking model '{name}' in {folder} can't be loaded: {error}. Pull it again or"
            " name another folder in the template."
        ) from error
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = config.control_tokens != "all"
    padding = model.config.pad_token_id or 0
    max_tokens = longest_text(model.config, [tokenizer.model_max_length, context_length])
    longest_token = max(len(token.encode()) for token in backend.get_vocab())
    return LoadedReranker(
        name,
        model.to(device).eval(),
        backend,
        padding,
        "token_type_ids" in tokenizer.model_input_names,
        max_tokens,
        max_tokens * longest_token,
    )


class TorchReranker(BatchThread):
    """Ranks documents with one model.

    Args:
        loaded: the model.
        max_waiting: how many requests may wait.
    """

    def __init__(self, loaded: LoadedReranker, max_waiting: int) -> None:
        super().__init__(loaded.name, "reranker", max_waiting)
        self.loaded = loaded

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """The documents, the best one first; what is too long for the model is cut off, unless the
        request says otherwise.

        Raises:
            APIError: 400 for a query that leaves no room for a document, or a document that is too
                long and is not to be cut, 429 where too many wait.
        """
        return await self.in_thread(self._rank, request)

    # In the thread --------------------------------------------------------------------------------

    def _rank(self, request: RerankRequest, gone: Gone) -> RerankResponse:
        limit = self._limit(request)
        pairs: list[Any] = []
        for index, document in enumerate(request.documents):
            if gone:
                return RerankResponse(())
            pairs.append(self._encode(request, index, document, limit))
        lengths = [len(pair.ids) for pair in pairs]
        device: torch.device = self.loaded.model.device
        scores: dict[int, float] = {}
        for batch in batches(lengths, BATCH_TOKENS[device.type]):
            if gone:
                return RerankResponse(())
            made = on_device(device, self._scores, [pairs[index] for index in batch], device)
            scores |= zip(batch, made, strict=True)
        if not all(map(math.isfinite, scores.values())):
            raise no_numbers(self._name)
        tokens = sum(lengths)
        self._stats.prompt_tokens += tokens
        best = sorted(scores, key=lambda index: (-scores[index], index))
        found = [RankedDocument(index, _relevance(scores[index])) for index in best]
        return RerankResponse(tuple(found[: request.top_n]), Usage(tokens))

    def _limit(self, request: RerankRequest) -> int:
        """How many tokens the query may have together with a document.

        Raises:
            APIError: 400, the query alone has as many.
        """
        loaded = self.loaded
        own = loaded.max_tokens
        if len(request.query) <= loaded.max_characters:
            loaded.tokenizer.no_truncation()
            own = len(loaded.tokenizer.encode_batch_fast([(request.query, "")])[0].ids)
        if own >= loaded.max_tokens:
            raise self._too_long("query", "The query leaves no room for a document in")
        if request.max_document_tokens is None:
            return loaded.max_tokens
        return min(loaded.max_tokens, own + request.max_document_tokens)

    def _encode(self, request: RerankRequest, index: int, document: str, limit: int) -> Any:
        loaded, text = self.loaded, document
        if len(document) > loaded.max_characters:
            text = document[: loaded.max_characters]
        if request.truncate:
            loaded.tokenizer.enable_truncation(limit, strategy="only_second")
        else:
            loaded.tokenizer.no_truncation()
        pair = loaded.tokenizer.encode_batch_fast([(request.query, text)])[0]
        if len(pair.ids) > limit or (text is not document and not request.truncate):
            raise self._too_long("documents", f"Document {index} has, with the query, more than")
        return pair

    def _too_long(self, param: str, what: str) -> APIError:
        return APIError(
            400,
            f"{what} the {self.loaded.max_tokens} tokens that the model '{self._name}' takes."
            " Shorten it.",
            param=param,
            code="context_length_exceeded",
        )

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _scores(self, pairs: Sequence[Any], device: torch.device) -> list[float]:
        longest = max(len(pair.ids) for pair in pairs)

        def padded(rows: Sequence[Sequence[int]], filling: int) -> torch.Tensor:
            return torch.tensor(
                [[*row, *[filling] * (longest - len(row))] for row in rows], device=device
            )

        given = {
            "input_ids": padded([pair.ids for pair in pairs], self.loaded.padding),
            "attention_mask": padded([[1] * len(pair.ids) for pair in pairs], 0),
        }
        if self.loaded.has_types:
            given["token_type_ids"] = padded([pair.type_ids for pair in pairs], 0)
        logits = self.loaded.model(**given).logits[:, 0].float()
        scores: list[float] = logits.cpu().tolist()
        return scores


def _relevance(score: float) -> float:
    """From 0 to 1; no number is too large for it."""
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
