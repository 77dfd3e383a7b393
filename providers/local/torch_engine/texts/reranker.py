"""Documents ranked by a model that reads a query and a document together.

Such a folder has a `...ForSequenceClassification` with one label, as BERT (ms-marco-MiniLM),
RoBERTa and XLM-RoBERTa (bge-reranker) have it; or it is a language model that is asked whether the
document meets the query (`pair_prompts`), as Qwen3-Reranker is: then the number is how much
likelier its yes is than its no. It becomes a relevance by the logistic function, as
https://sbert.net/docs/cross_encoder does it for one label; the order is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import RankedDocument, RerankRequest, RerankResponse, Usage
from providers.local.batch_thread import BatchThread, Gone
from providers.local.engine_thread import no_numbers
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import RunsIn, on_cpu_thread, on_device
from providers.local.torch_engine.devices import within_memory
from providers.local.torch_engine.texts.batches import BATCH_TOKENS, batches
from providers.local.torch_engine.texts.pair_prompts import (
    CARD_TOKENS,
    PairPrompt,
    pair_prompt_in,
    scored_tokens,
)
from providers.local.torch_engine.texts.reading import longest_text, read_text_model


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
        prompt: what a query and a document are written into; None where they are read as they are.
        verdict: of a language model, what its last state is multiplied by, `[hidden]`; None where
            it has a head for that.
    """

    name: str
    model: Any
    tokenizer: Any
    padding: int
    has_types: bool
    max_tokens: int
    max_characters: int
    prompt: PairPrompt | None = None
    verdict: torch.Tensor | None = None


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

    def look(tokenizer: Any) -> tuple[Any, tuple[PairPrompt | None, tuple[int, int | None] | None]]:
        tokens = scored_tokens(folder, tokenizer)
        kind = AutoModelForSequenceClassification if tokens is None else AutoModelForCausalLM
        return kind, (pair_prompt_in(folder, tokenizer), tokens)

    read, (prompt, tokens) = read_text_model(
        f"reranking model '{name}'", folder, config, where, look
    )
    model = read.model
    padding = model.config.pad_token_id or 0
    limits = [read.max_length, context_length]
    if prompt is not None and context_length is None:
        limits.append(CARD_TOKENS)
    max_tokens = longest_text(model.config, limits)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = padding  # of a batch, the last token that is none counts
    return LoadedReranker(
        name,
        model,
        read.tokenizer,
        padding,
        "token_type_ids" in read.input_names,
        max_tokens,
        max_tokens * read.longest_token,
        prompt,
        None if tokens is None else _verdict(model, tokens, read.device),
    )


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _verdict(model: Any, tokens: tuple[int, int | None], device: torch.device) -> torch.Tensor:
    """What makes the log-odds of two tokens of a state, or the logit of one."""
    rows = model.get_output_embeddings().weight
    yes, no = tokens
    found = rows[yes].float() if no is None else rows[yes].float() - rows[no].float()
    return found.to(device)


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
            APIError: 400 for a query that leaves no room for a document, a document that is too
                long and is not to be cut, or an `instruct` that the model can't be told, 429 where
                too many wait.
        """
        if request.instruction is not None and self.loaded.prompt is None:
            raise invalid_parameter(
                "instruct",
                f"The model '{self._name}' can't be told what relevance means. Leave 'instruct'"
                " out.",
            ).about(self._name)
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
            asked = [pairs[index] for index in batch]
            with within_memory(self._name, device):
                made = on_device(device, self._scores, asked, device)
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
            if loaded.prompt is not None:
                own = loaded.prompt.length(request.query, request.instruction)
            else:
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
        if loaded.prompt is not None:
            kept = limit if request.truncate else None
            pair: Any = loaded.prompt.encode(request.query, text, request.instruction, kept)
            return self._fitting(request, index, pair, limit, text is not document)
        if request.truncate:
            loaded.tokenizer.enable_truncation(limit, strategy="only_second")
        else:
            loaded.tokenizer.no_truncation()
        pair = loaded.tokenizer.encode_batch_fast([(request.query, text)])[0]
        return self._fitting(request, index, pair, limit, text is not document)

    def _fitting(
        self, request: RerankRequest, index: int, pair: Any, limit: int, is_shortened: bool
    ) -> Any:
        """The pair, if it is no longer than it may be, and nothing is missing of it."""
        if len(pair.ids) > limit or (is_shortened and not request.truncate):
            raise self._too_long("documents", f"Document {index} has, with the query, more than")
        return pair

    def _too_long(self, param: str, what: str) -> APIError:
        return APIError(
            400,
            f"{what} the {self.loaded.max_tokens} tokens that the model '{self._name}' takes."
            " Shorten it.",
            param=param,
            code="context_length_exceeded",
        ).about(self._name)

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
        if self.loaded.verdict is None:
            found = self.loaded.model(**given).logits[:, 0].float()
        else:
            base = self.loaded.model.base_model
            states = base(**given, use_cache=False).last_hidden_state
            last = given["attention_mask"].sum(1) - 1
            states = states[torch.arange(len(pairs), device=device), last]
            found = states.float() @ self.loaded.verdict
        scores: list[float] = found.cpu().tolist()
        return scores


def _relevance(score: float) -> float:
    """From 0 to 1; no number is too large for it."""
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
