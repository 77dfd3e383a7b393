"""The list of models of Anthropic's API (https://platform.claude.com/docs/en/api/models-list)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.model_names import model_names


def parse_models(body: Mapping[str, Any]) -> list[str]:
    """The ids of the models in the answer to `GET /v1/models`.

    Raises:
        ValueError: it is no such list.
    """
    try:
        return model_names(model["id"] for model in body["data"])
    except (TypeError, KeyError) as error:
        raise ValueError(f"the answer is no list of models: {error!r}") from error
