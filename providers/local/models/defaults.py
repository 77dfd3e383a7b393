"""How a model's own makers want it sampled, where a request says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import structs

from llama_compat.dialects.ollama.options import parse_options
from llama_compat.errors import APIError
from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    SamplingStrategy,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from providers.base import ProviderStartError
from providers.local.models.sources.ollama import PARAMS_NAME

NOTHING = SamplingParams()
"""No defaults but those of OpenAI's API."""

_APART = frozenset({"strategy", "stated"})
"""Fields that are no value of one parameter."""


def defaults_beside(file: Path) -> SamplingParams:
    """What the parameters beside the GGUF `file` say, if it came from Ollama's library.

    Raises:
        ProviderStartError: they make no sense.
    """
    try:
        return parse_options(_options(file))
    except APIError as error:
        raise _malformed(file, error.message) from error


def context_beside(file: Path) -> int | None:
    """How many tokens its makers let the GGUF `file` hold; None where they don't say.

    Raises:
        ProviderStartError: it is no such number.
    """
    found = _options(file).get("num_ctx")
    if found is not None and (type(found) is not int or found < 1):
        raise _malformed(file, f"'num_ctx' is {found!r}")
    return found


def with_defaults(asked: SamplingParams, defaults: SamplingParams) -> SamplingParams:
    """What was asked for, and what the defaults say of the rest."""
    if defaults == NOTHING:
        return asked
    filled = {
        each.name: getattr(defaults, each.name)
        for each in structs.fields(SamplingParams)
        if each.name not in _APART
        and each.name not in asked.stated
        and getattr(asked, each.name) == getattr(NOTHING, each.name)
    }
    return structs.replace(asked, strategy=_strategy(asked, defaults.strategy), **filled)


def _strategy(asked: SamplingParams, default: SamplingStrategy) -> SamplingStrategy:
    mine = asked.strategy
    if isinstance(mine, GreedySamplingStrategy):
        return mine
    says_temperature = mine.temperature != 1.0 or "temperature" in asked.stated
    if isinstance(default, GreedySamplingStrategy):
        return mine if says_temperature else default
    says_top_p = mine.top_p != 1.0 or "top_p" in asked.stated
    temperature = mine.temperature if says_temperature else default.temperature
    top_p = mine.top_p if says_top_p else default.top_p
    top_k = next(
        (each.top_k for each in (mine, default) if isinstance(each, TopKSamplingStrategy)), None
    )
    if top_k is None:
        return TopPSamplingStrategy(temperature, top_p)
    return TopKSamplingStrategy(top_k, temperature, top_p)


def _options(file: Path) -> dict[str, Any]:
    beside = file.with_name(PARAMS_NAME)
    if not beside.is_file():
        return {}
    try:
        found = json.loads(beside.read_bytes())
    except (OSError, ValueError) as error:
        raise _malformed(file, str(error)) from error
    if not isinstance(found, dict):
        raise _malformed(file, "they are no object")
    return found


def _malformed(file: Path, why: str) -> ProviderStartError:
    return ProviderStartError(
        f"The parameters in {file.with_name(PARAMS_NAME)} can't be read: {why}. Remove the model"
        " with 'llama-compat rm' and pull it again."
    )
