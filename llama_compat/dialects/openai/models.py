"""OpenAI's list of models (https://platform.openai.com/docs/api-reference/models/list)."""

from __future__ import annotations

import json
from typing import Any

from llama_compat.dialects.model_names import model_names
from llama_compat.types import ModelInfo


def render_model(model: ModelInfo) -> dict[str, Any]:
    """A `model` object; the context's length, where it is known, is an extension that many have."""
    rendered: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }
    if model.context_length is not None:
        rendered["context_length"] = model.context_length
    return rendered


def parse_models(body: bytes, prefix: str = "") -> list[str]:
    """The ids in a vendor's answer to `GET /models`, without `prefix`.

    The shape is `{"data": [{"id": ...}]}`; Together leaves out the object around the list
    (https://docs.together.ai/reference/models-1).

    Raises:
        ValueError: it is no such list.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list):
        raise ValueError("answered with something that is not a list of models")
    return model_names((model.get("id") for model in value if isinstance(model, dict)), prefix)
