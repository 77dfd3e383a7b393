"""Models, both ways: `/api/tags`, `/api/show` and `/api/ps`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.model_names import model_names
from llama_compat.dialects.moments import exact_utc_text
from llama_compat.types import ModelInfo

API_VERSION = "0.35.1"
"""What an Ollama of October 2026 says: clients look at it for what they may ask, and turn away from
one that is older than they want. Some read it number by number, so there is nothing beside them."""

DEFAULT_TAG = ":latest"
"""What Ollama's names of models end with that are asked for without a tag."""

_CAPABILITIES = {"tools": "tools", "reasoning_effort": "thinking"}
"""What Ollama calls a provider's parameters."""

_NEVER = "2318-01-01T00:00:00Z"
"""When a model is unloaded that stays: Ollama's answer for `keep_alive: -1` is as far away."""


class _Tag(Struct):
    name: str


class _Tags(Struct):
    models: list[_Tag]


def parse_models(reply: Mapping[str, Any]) -> list[str]:
    """The names of the models that `/api/tags` lists.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        return model_names(tag.name for tag in msgspec.convert(reply, _Tags).models)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a list of models: {error}") from None


def other_names(model: str) -> Sequence[str]:
    """What else `model` may be called: with the tag that goes without saying, or without it."""
    if model.endswith(DEFAULT_TAG):
        return (model.removesuffix(DEFAULT_TAG),)
    return () if ":" in model.rpartition("/")[2] else (model + DEFAULT_TAG,)


def render_tag(model: ModelInfo) -> dict[str, Any]:
    """One of the models that `/api/tags` lists; no file has its size or digest, so none is told."""
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": exact_utc_text(model.created),
        "size": 0,
        "digest": hashlib.sha256(model.id.encode()).hexdigest(),
        "details": _details(model),
    }


NO_SIZE = {"size": 0, "size_vram": 0}
"""The members of a line of `/api/ps` that say what a model takes, where another line does."""


def render_running(
    model: ModelInfo, *, sizes: Mapping[str, int] | None = None, expires: float | None = None
) -> dict[str, Any]:
    """One of the models that `/api/ps` lists.

    Args:
        model: which one.
        sizes: what it takes of each device, where somebody counts it.
        expires: when it is unloaded, in seconds since 1970; None for never.
    """
    tag = render_tag(model)
    del tag["modified_at"]
    sizes = sizes or {}
    return {
        **tag,
        "size": sum(sizes.values()),
        "expires_at": _NEVER if expires is None else exact_utc_text(expires),
        "size_vram": sum(size for device, size in sizes.items() if device != "cpu"),
        "context_length": model.context_length or 0,
    }


def render_show(model: ModelInfo, parameters: Collection[str]) -> dict[str, Any]:
    """What `/api/show` says of a model.

    Args:
        model: which one.
        parameters: OpenAI's names of what its provider honours of requests for it.
    """
    family = model.owned_by
    info: dict[str, Any] = {"general.architecture": family, "general.basename": model.id}
    if model.context_length is not None:
        info[f"{family}.context_length"] = model.context_length
    known = ["completion"] if model.generates else []
    if model.output is not None and "embeddings" in model.output:
        known.append("embedding")
    if model.generates:
        known += [word for name, word in _CAPABILITIES.items() if name in parameters]
    if model.input is not None and "image" in model.input:
        known.append("vision")
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(model),
        "model_info": info,
        "capabilities": known,
        "modified_at": exact_utc_text(model.created),
    }


def _details(model: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": model.parent or "",
        "format": "",
        "family": model.owned_by,
        "families": [model.owned_by],
        "parameter_size": "",
        "quantization_level": "",
    }
