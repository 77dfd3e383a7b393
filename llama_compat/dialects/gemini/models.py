"""The names of Gemini's models (https://ai.google.dev/api/models)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def model_path(model: str) -> str:
    """The resource name of a model: `models/NAME`, or as it is if it is a path already."""
    return model if "/" in model else f"models/{model}"


def parse_models(body: Mapping[str, Any]) -> Sequence[str]:
    """The names of the models in the answer to `GET /models`, without `models/`.

    Raises:
        ValueError: it is no such list.
    """
    try:
        return [model["name"].removeprefix("models/") for model in body["models"]]
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"the answer is no list of models: {error!r}") from error
