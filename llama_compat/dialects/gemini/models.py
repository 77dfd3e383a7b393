"""The names of Gemini's models (https://ai.google.dev/api/models)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.model_names import model_names


def model_path(model: str) -> str:
    """The resource name of a model: `models/NAME`, or as it is if it is a path already."""
    return model if "/" in model else f"models/{model}"


def parse_models(body: Mapping[str, Any]) -> list[str]:
    """The names of the models in the answer to `GET /models`, without `models/`.

    Raises:
        ValueError: it is no such list.
    """
    try:
        return model_names((model["name"] for model in body["models"]), "models/")
    except (TypeError, KeyError) as error:
        raise ValueError(f"the answer is no list of models: {error!r}") from error
