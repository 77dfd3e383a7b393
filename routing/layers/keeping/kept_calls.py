"""The APIs whose replies are kept, as the layer that keeps them needs to know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Raw

from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini_interactions import operations as interactions
from llama_compat.dialects.gemini_interactions.call import InteractionCall
from llama_compat.dialects.gemini_interactions.input import as_steps
from llama_compat.dialects.openai_responses import operations as responses
from llama_compat.dialects.openai_responses.input.items import described_items
from llama_compat.dialects.openai_responses.input.requests import ResponsesCall
from llama_compat.wire.json_fields import unicode_from_raw
from routing.storage.kept import INTERACTIONS_KEPT, RESPONSES_KEPT, KeptAPI
from routing.storage.kept_rows import Items

KeptCall = ResponsesCall | InteractionCall
"""A translation whose reply may be kept."""


@dataclass(frozen=True, slots=True)
class KeptCalls:
    """The calls of one API.

    Attributes:
        api: how the store knows it.
        operation: the call whose replies are kept; those of others only go on from them.
        items: what a request's `input` holds; what is malformed is for the parser to refuse.
        described: the items as they are kept, given what sets the request apart.
        sent: the items of the store as another server may have them.
    """

    api: KeptAPI
    operation: Operation
    items: Callable[[Mapping[str, Raw]], Items]
    described: Callable[[Items, str], Items]
    sent: Callable[[Items], Items]


def _response_items(fields: Mapping[str, Raw]) -> Items:
    value = unicode_from_raw(fields["input"]) if "input" in fields else None
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _without_ids(items: Items) -> Items:
    # Ids of items mean nothing to another server; the relay sees to what is sealed.
    return [{name: each[name] for name in each if name != "id"} for each in items]


def _steps(fields: Mapping[str, Raw]) -> Items:
    return as_steps(unicode_from_raw(fields["input"])) if "input" in fields else []


KEPT_CALLS: Mapping[str, KeptCalls] = {
    responses.RESPONSES_API.name: KeptCalls(
        RESPONSES_KEPT,
        responses.RESPONSES,
        _response_items,
        # Another last word than those of the output's ids.
        lambda items, unique: described_items(items, f"{unique}f"),
        _without_ids,
    ),
    interactions.INTERACTIONS_API.name: KeptCalls(
        INTERACTIONS_KEPT,
        interactions.INTERACTIONS,
        _steps,
        lambda steps, unique: steps,
        lambda steps: steps,
    ),
}
"""By the name of the dialect."""
