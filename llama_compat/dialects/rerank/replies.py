"""Replies with documents in the order of what they have to do with a query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.base import Labels
from llama_compat.dialects.counts import count, members
from llama_compat.dialects.openai.media.usage import amount, parse_usage
from llama_compat.dialects.rerank.shapes import RerankShape
from llama_compat.types import RankedDocument, RerankResponse, Units, Usage


def render_reply(
    response: RerankResponse, shape: RerankShape, labels: Labels, documents: Sequence[str] | None
) -> dict[str, Any]:
    """The reply in the words of `shape`, with all that the clients of any of its vendors read.

    Args:
        response: what was found.
        shape: whose words.
        labels: what it says of itself.
        documents: of the request, if they are given back.
    """
    tokens = response.usage.prompt_tokens
    reply: dict[str, Any] = {
        "id": f"rerank-{labels.unique}",
        "object": "list",
        "model": labels.model,
        shape.results: [_result(each, shape, documents) for each in response.results],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    units = response.usage.units
    if units is not None and units.searches is not None:
        reply["meta"] = {"billed_units": {"search_units": units.searches}}
    return reply


def _result(
    found: RankedDocument, shape: RerankShape, documents: Sequence[str] | None
) -> dict[str, Any]:
    result: dict[str, Any] = {"index": found.index, "relevance_score": found.relevance_score}
    if documents is not None:
        text = documents[found.index]
        result["document"] = text if shape.document_is_text else {"text": text}
    return result


def parse_reply(body: Mapping[str, Any], shape: RerankShape, documents: int) -> RerankResponse:
    """A vendor's reply about so many `documents`.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        found = msgspec.convert(body.get(shape.results), list[_Result])
    except msgspec.ValidationError as error:
        raise ValueError(f"not a reply with ranked documents: {error}") from None
    for each in found:
        if not 0 <= each.index < documents:
            raise ValueError(f"there is no document {each.index}: {documents} were sent")
        if not math.isfinite(each.relevance_score):
            raise ValueError(f"document {each.index} has no score that is a number")
    if len({each.index for each in found}) < len(found):
        raise ValueError("it has a document more than once")
    results = tuple(RankedDocument(each.index, each.relevance_score) for each in found)
    return RerankResponse(results, parse_rerank_usage(body) or Usage())


class _Result(Struct):
    index: int
    relevance_score: float


def parse_rerank_usage(body: Mapping[str, Any]) -> Usage | None:
    """What a reply says that it has cost: Cohere's is in its `meta`."""
    meta = members(body.get("meta"))
    searches = amount(members(meta.get("billed_units")).get("search_units"))
    usage = parse_usage(body.get("usage"), Units(searches=searches))
    tokens = count(members(meta.get("tokens")).get("input_tokens"))
    if tokens and (usage is None or not usage.prompt_tokens):
        return Usage(tokens, units=None if usage is None else usage.units)
    return usage
