"""The list of models of Anthropic's API (https://platform.claude.com/docs/en/api/models-list)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.model_names import model_names
from llama_compat.dialects.moments import utc_text
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import ModelInfo
from llama_compat.wire.malformed import malformed_as

DEFAULT_LIMIT = 20
MAX_LIMIT = 1000


def parse_models(body: Mapping[str, Any]) -> list[str]:
    """The ids of the models in the answer to `GET /v1/models`.

    Raises:
        ValueError: it is no such list.
    """
    with malformed_as("the answer is no list of models"):
        return model_names(model["id"] for model in body["data"])


def render_model(model: ModelInfo) -> dict[str, Any]:
    """One model; the context's length is there where it is known."""
    rendered: dict[str, Any] = {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": utc_text(model.created),
        "lifecycle": "active",
    }
    if model.context_length is not None:
        rendered["max_input_tokens"] = model.context_length
    if model.max_output_tokens is not None:
        rendered["max_tokens"] = model.max_output_tokens
    if model.shutdown is not None:
        rendered["lifecycle"] = "deprecated"
        rendered["retires_at"] = f"{model.shutdown}T00:00:00Z"
    return rendered


def render_models(models: Sequence[ModelInfo], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of `models` that `query` asks for: `limit` of them, after or before an id.

    Raises:
        APIError: 400, there is no such page.
    """
    limit = _limit(query.get("limit"))
    begin, end = 0, len(models)
    if "after_id" in query:
        begin = _place(models, "after_id", query) + 1
        page = models[begin : begin + limit]
        has_more = begin + limit < len(models)
    elif "before_id" in query:
        end = _place(models, "before_id", query)
        page = models[max(end - limit, 0) : end]
        has_more = end > limit
    else:
        page = models[:limit]
        has_more = limit < len(models)
    return render_page([render_model(model) for model in page], more=has_more)


def render_page(shown: Sequence[Mapping[str, Any]], *, more: bool) -> dict[str, Any]:
    """A page of a list of Anthropic's API.

    Args:
        shown: its objects, each of which has its `id`.
        more: whether the list goes on behind them, the way that it is read.
    """
    return {
        "data": list(shown),
        "has_more": more,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }


def _limit(value: str | None) -> int:
    if value is None:
        return DEFAULT_LIMIT
    if value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= MAX_LIMIT:
        return int(value)
    raise invalid_parameter("limit", f"'limit' must be an integer from 1 to {MAX_LIMIT}.")


def _place(models: Sequence[ModelInfo], name: str, query: Mapping[str, str]) -> int:
    for place, model in enumerate(models):
        if model.id == query[name]:
            return place
    raise _no_such_place(name)


def _no_such_place(name: str) -> APIError:
    return invalid_parameter(name, f"'{name}' is no id of this list.")
