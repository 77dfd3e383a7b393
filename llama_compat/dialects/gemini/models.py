"""Gemini's models (https://ai.google.dev/api/models), both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.model_names import model_names
from llama_compat.types import ModelInfo
from llama_compat.wire.malformed import malformed_as

_GENERATES = ("generateContent", "streamGenerateContent", "countTokens")
_EMBEDS = "embedContent"


def model_path(model: str) -> str:
    """The resource name of a model: `models/NAME`, or as it is if it is a path already."""
    return model if "/" in model else f"models/{model}"


def parse_models(body: Mapping[str, Any]) -> list[str]:
    """The names of the models in the answer to `GET /models`, without `models/`.

    Raises:
        ValueError: it is no such list.
    """
    with malformed_as("the answer is no list of models"):
        return model_names((model["name"] for model in body["models"]), "models/")


def parse_publisher_models(body: Mapping[str, Any]) -> list[str]:
    """The names of Gemini models in Vertex AI's list of a publisher's.

    Raises:
        ValueError: it is no such list.
    """
    with malformed_as("the answer is no list of models"):
        names = [model["name"].rpartition("/")[2] for model in body["publisherModels"]]
    return model_names(name for name in names if name.startswith("gemini-"))


def render_model(model: ModelInfo) -> dict[str, Any]:
    """What is told of a model; what nobody knows of it is left out."""
    methods = [*_GENERATES, _EMBEDS] if model.generates else []
    if model.output is not None and "embeddings" in model.output:
        methods = [_EMBEDS]
    rendered: dict[str, Any] = {
        "name": f"models/{model.id}",
        "displayName": model.id,
        "description": f"Offered by {model.owned_by}.",
        "supportedGenerationMethods": methods,
    }
    if model.context_length is not None:
        rendered["inputTokenLimit"] = model.context_length
    if model.max_output_tokens is not None:
        rendered["outputTokenLimit"] = model.max_output_tokens
    return rendered


def render_models(models: Sequence[ModelInfo], page_size: int, page_token: str) -> dict[str, Any]:
    """One page of the list of models.

    Args:
        models: all of them.
        page_size: how many a page has; all of them if 0.
        page_token: which page, as the one before it said; the first if empty.
    """
    begin = int(page_token) if page_token.isdecimal() and len(page_token) < 10 else 0
    end = begin + page_size if page_size > 0 else len(models)
    page: dict[str, Any] = {"models": [render_model(each) for each in models[begin:end]]}
    return {**page, "nextPageToken": str(end)} if end < len(models) else page


def searches(model: str) -> bool:
    """Whether a model takes Google's search: Gemini 2 and later do, but for those that draw or
    speak (https://ai.google.dev/gemini-api/docs/google-search, 2026-11-23)."""
    name = model.rpartition("/")[2]
    others = ("-image", "-tts", "-audio", "-live", "-embedding")
    is_core = name.startswith("gemini-") and not name.startswith("gemini-1")
    return is_core and not any(each in name for each in others)
