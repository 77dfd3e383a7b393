"""Requests to rank documents: read from a client, written for a vendor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from llama_compat.dialects.base import Labels
from llama_compat.dialects.counts import MAX_COUNT
from llama_compat.dialects.rerank.replies import render_reply
from llama_compat.dialects.rerank.shapes import COHERES, RerankShape
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import RerankRequest, RerankResponse
from llama_compat.wire.json_fields import encode_json

_ALWAYS_HONOURED = frozenset(
    {"model", "query", "documents", "top_n", "top_k", "return_documents", "rank_fields"}
)
_HINTS = frozenset({"priority", "user"})
"""Members that change nothing about the reply that is due."""


class RerankCall(Struct, frozen=True):
    """One request as it came.

    Attributes:
        request: what is asked.
        shape: whose words it is in.
        returns: whether the documents themselves are given back.
    """

    request: RerankRequest
    shape: RerankShape = COHERES
    returns: bool = False

    def render_reply(self, response: RerankResponse, labels: Labels) -> bytes:
        """The whole reply."""
        documents = self.request.documents if self.returns else None
        return encode_json(render_reply(response, self.shape, labels, documents))


def parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """What asks something of the provider that not every one can do."""
    return {
        name: name
        for name, value in body.items()
        if value is not None
        and name not in _ALWAYS_HONOURED
        and name not in _HINTS
        and (name, value) != ("truncation", True)
    }


def parse_request(body: Mapping[str, Any], model: str, shape: RerankShape) -> RerankCall:
    """The request `body` in the words of `shape`, for the provider's `model`.

    Raises:
        APIError: 400 for what is no text, or no number.
    """
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise invalid_parameter("query", "'query' must be a text.", "invalid_type")
    documents = body.get("documents")
    if not isinstance(documents, list) or not documents:
        raise _wrong("documents", "must be an array of texts, one at least")
    fields = body.get("rank_fields")
    if fields is not None and not _are_texts(fields):
        raise _wrong("rank_fields", "must be an array of names")
    # Each once: what a model reads is no longer than what was sent.
    names = tuple(dict.fromkeys(fields or ()))
    returns = body.get("return_documents")
    request = RerankRequest(
        model=model,
        query=query,
        documents=tuple(_text(index, document, names) for index, document in enumerate(documents)),
        top_n=number_of(body, shape.top),
        truncate=body.get("truncation") is not False,
        max_document_tokens=number_of(body, "max_tokens_per_doc"),
        instruction=_instruction_in(body),
    )
    return RerankCall(request, shape, returns is True)


def _instruction_in(body: Mapping[str, Any]) -> str | None:
    """What relevance means, as SGLang and DashScope call it."""
    value = body.get("instruct")
    if value is not None and not isinstance(value, str):
        raise _wrong("instruct", "must be a text")
    return value or None


def number_of(body: Mapping[str, Any], name: str) -> int | None:
    """The member `name`, of which there can be one or more.

    Raises:
        APIError: 400, it is something else.
    """
    value = body.get(name)
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_COUNT):
        raise _wrong(name, "must be an integer, 1 or more")
    return value


def _text(index: int, document: Any, fields: Sequence[str]) -> str:
    """A document is text, or an object with a `text`, or with the members to rank by."""
    if isinstance(document, str):
        return document
    if isinstance(document, dict):
        if fields:
            return "\n".join(f"{name}: {document[name]}" for name in fields if name in document)
        text = document.get("text")
        if isinstance(text, str):
            return text
    raise _wrong("documents", f"must be texts, or objects with a 'text': number {index} is neither")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _wrong(name: str, why: str) -> APIError:
    return invalid_parameter(name, f"'{name}' {why}.")


def render_request(request: RerankRequest, shape: RerankShape) -> dict[str, Any]:
    """The body of a request in the words of `shape`; `request.model` is the vendor's name."""
    body: dict[str, Any] = {
        "model": request.model,
        "query": request.query,
        "documents": list(request.documents),
    }
    if request.top_n is not None:
        body[shape.top] = request.top_n
    if request.max_document_tokens is not None:
        body["max_tokens_per_doc"] = request.max_document_tokens
    if not request.truncate:
        body["truncation"] = False
    return body


def begins(raw: Raw | None) -> bytes:
    """How the JSON of a member begins; empty where there is none."""
    return b"" if raw is None else bytes(memoryview(raw)[:1])
