"""How a language model that ranks is asked about a query and a document.

It is asked whether a document meets the query, and says yes or no: its reply is not generated, what
counts is how much likelier the one is than the other. How it is asked is in its folder, as
sentence-transformers keeps it (a chat template with the roles `query` and `document`), or on its
card, as for Qwen3-Reranker (https://huggingface.co/Qwen/Qwen3-Reranker-0.6B).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from providers.local.torch_engine.texts.pooling import settings_in

_QUERY = f"query-{secrets.token_hex(16)}"
_DOCUMENT = f"document-{secrets.token_hex(16)}"
_PLACES = re.compile(f"({_QUERY}|{_DOCUMENT})")

CARD_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
CARD_BEGINNING = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
CARD_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
CARD_TOKENS = 8192
"""So long are a query and a document together on the card, at most."""

_OURS = frozenset({"restore_suffix", "truncation", "max_length", "padding", "return_tensors"})
"""What sentence-transformers takes for itself of what a folder has for its chat template."""

Written = Callable[[str | None], Sequence[str]]
"""An instruction, or None for the model's own, to a prompt in parts that are tokenized by
themselves, with `_QUERY` and `_DOCUMENT` in the places of both."""


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A query and a document: their tokens, and of which of the two each is."""

    ids: Sequence[int]
    type_ids: Sequence[int]


class PairPrompt:
    """Writes a query and a document into a model's prompt.

    No text of theirs is taken for the control tokens of the prompt.

    Args:
        tokenizer: of the `tokenizers` library.
        written: the prompt.
    """

    def __init__(self, tokenizer: Any, written: Written) -> None:
        self._tokenizer = tokenizer
        self._written = written
        control = sorted(
            (each.content for each in tokenizer.get_added_tokens_decoder().values()),
            key=len,
            reverse=True,
        )
        self._control = re.compile(f"({'|'.join(map(re.escape, control))})") if control else None
        self._segments = lru_cache(16)(self._cut)

    def encode(
        self, query: str, document: str, instruction: str | None, limit: int | None
    ) -> EncodedPair:
        """The tokens of a prompt, of which there are `limit` at most: what is more is cut off the
        end of what the document stands in; None for as many as there are.

        The query has to leave room for that; see `length`.
        """
        parts = list(self._tokens(query, document, instruction))
        if limit is not None:
            too_many = sum(len(ids) for ids, _ in parts) - limit
            parts = [
                (
                    ids[: max(0, len(ids) - too_many)] if has_document and too_many > 0 else ids,
                    False,
                )
                for ids, has_document in parts
            ]
        ids = [token_id for part, _ in parts for token_id in part]
        return EncodedPair(ids, [0] * len(ids))

    def length(self, query: str, instruction: str | None) -> int:
        """The tokens of a prompt with a document that says nothing."""
        return len(self.encode(query, "", instruction, None).ids)

    def _tokens(
        self, query: str, document: str, instruction: str | None
    ) -> Iterator[tuple[Sequence[int], bool]]:
        texts = {_QUERY: query, _DOCUMENT: document}
        for fixed, words in self._segments(instruction):
            if not words:
                yield fixed, False
            else:
                text = "".join(texts.get(each, each) for each in words)
                yield self._of_text(text), _DOCUMENT in words

    def _of_text(self, text: str) -> Sequence[int]:
        found: Sequence[int]
        found = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return found

    def _cut(self, instruction: str | None) -> Sequence[tuple[Sequence[int], Sequence[str]]]:
        """The prompt in parts: tokens that are always the same, or texts that are tokenized
        together, the query's or the document's among them."""
        segments: list[tuple[Sequence[int], Sequence[str]]] = []
        for part in self._written(instruction):
            pieces = [part] if self._control is None else self._control.split(part)
            for place, piece in enumerate(pieces):
                words = tuple(filter(None, _PLACES.split(piece)))
                if place % 2:
                    segments.append(([self._tokenizer.token_to_id(piece)], ()))
                elif len(words) > 1 or _PLACES.fullmatch(piece):
                    segments.append(([], words))
                elif piece:
                    segments.append((self._of_text(piece), ()))
        return segments


def pair_prompt_in(folder: Path, tokenizer: Any) -> PairPrompt | None:
    """How the model in `folder` is asked; None where it reads the pair as it is.

    Args:
        folder: the model's.
        tokenizer: transformers', with its chat template.
    """
    from providers.local.torch_engine.kinds import is_qwen3_reranker, reads_messages

    written: Written
    if reads_messages(folder):
        written = _by_template(folder, tokenizer)
    elif is_qwen3_reranker(folder):
        written = _by_card
    else:
        return None
    return PairPrompt(tokenizer.backend_tokenizer, written)


def _by_card(instruction: str | None) -> Sequence[str]:
    asked = instruction or CARD_INSTRUCTION
    question = f"<Instruct>: {asked}\n<Query>: {_QUERY}\n<Document>: {_DOCUMENT}"
    return (CARD_BEGINNING, question, CARD_END)


def _by_template(folder: Path, tokenizer: Any) -> Written:
    settings = settings_in(folder / "sentence_bert_config.json")
    options = (settings.get("processing_kwargs") or {}).get("chat_template") or {}
    format_ = ((settings.get("modality_config") or {}).get("message") or {}).get("format")
    prompts = settings_in(folder / "config_sentence_transformers.json")
    default = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name"))

    def written(instruction: str | None) -> Sequence[str]:
        said = [("query", _QUERY), ("document", _DOCUMENT)]
        if system := str(instruction or default or ""):
            said.insert(0, ("system", system))
        messages = [
            {
                "role": role,
                "content": [{"type": "text", "text": text}] if format_ == "structured" else text,
            }
            for role, text in said
        ]
        rendered = tokenizer.apply_chat_template(
            messages, tokenize=False, **{k: v for k, v in options.items() if k not in _OURS}
        )
        return (str(rendered),)

    # What the template can't do is said when the model is loaded.
    if not all(place in written(None)[0] for place in (_QUERY, _DOCUMENT)):
        raise ValueError("its chat template has no place for a 'query' and a 'document'")
    return written


def scored_tokens(folder: Path, tokenizer: Any) -> tuple[int, int | None] | None:
    """The tokens for yes and for no, of a language model that ranks; None where it has a head for
    that. Of some only the first counts.

    Raises:
        ValueError: its tokenizer has no such tokens.
    """
    from providers.local.torch_engine.kinds import is_language_model, logit_score_folder

    if not is_language_model(folder):
        return None
    scores = logit_score_folder(folder)
    if scores is not None:
        named = json.loads((scores / "config.json").read_text("utf-8"))
        no = named.get("false_token_id")
        return int(named["true_token_id"]), None if no is None else int(no)
    yes, no = (tokenizer.backend_tokenizer.token_to_id(word) for word in ("yes", "no"))
    if yes is None or no is None:
        raise ValueError("its tokenizer has no tokens 'yes' and 'no'")
    return yes, no
