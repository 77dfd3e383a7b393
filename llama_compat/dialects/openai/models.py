"""OpenAI's list of models (https://platform.openai.com/docs/api-reference/models/list)."""

from __future__ import annotations

import json
from typing import Any

from llama_compat.dialects.model_names import model_names
from llama_compat.types import ModelInfo


def render_model(model: ModelInfo) -> dict[str, Any]:
    """A `model` object. What is not OpenAI's is called as OpenRouter has it, whose names clients
    look for (https://openrouter.ai/docs/api-reference/list-available-models); what nobody knows is
    left out."""
    rendered: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }
    if model.parent is not None:
        # As vLLM has it.
        rendered |= {"root": model.root, "parent": model.parent}
    if model.shutdown is not None:
        rendered["shutdown_date"] = model.shutdown
    if model.context_length is not None:
        rendered["context_length"] = model.context_length
    if model.max_output_tokens is not None:
        rendered["max_output_tokens"] = model.max_output_tokens
    if model.input is not None and model.output is not None:
        rendered["architecture"] = {
            "input_modalities": [_MODALITIES.get(each, each) for each in model.input],
            "output_modalities": [_MODALITIES.get(each, each) for each in model.output],
        }
    return rendered


_MODALITIES = {"document": "file"}
"""OpenRouter's words."""


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
