"""How to generate, both ways: `options`, `format` and `think`.

Source: https://github.com/ollama/ollama/blob/main/docs/modelfile.mdx (the options' meaning).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.openai.parameters import is_neutral, parse_sampling, read_parameter
from llama_compat.dialects.sampling import sampling_members
from llama_compat.errors import invalid_parameter
from llama_compat.types import ResponseFormat, SamplingParams

THINK: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""OpenAI's `reasoning_effort` as `think`."""

_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "max": "xhigh"}
"""The other way round."""

OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""OpenAI's names of the options."""

_OPTION_NAMES = {name: option for option, name in OPTIONS.items()}
"""The other way round."""

_INTEGERS = frozenset({"num_predict", "seed", "top_k"})
"""Clients write them as `40.0` too."""

_HINTS = frozenset(
    {
        "draft_num_predict",
        "embedding_only",
        "f16_kv",
        "logits_all",
        "low_vram",
        "main_gpu",
        "num_batch",
        "num_ctx",
        "num_gpu",
        "num_keep",
        "num_thread",
        "numa",
        "use_mlock",
        "use_mmap",
        "vocab_only",
    }
)
"""Options for whoever loads the model, which here is the template's doing."""

_UNSET: dict[str, range] = {
    "num_predict": range(-2, 1),
    "top_k": range(-1, 1),
    "seed": range(-1, 0),
}
"""Numbers that say what no number says: without end (-2: until the context is full), all tokens,
any seed."""

_NEUTRAL: dict[str, Any] = {
    "typical_p": 1,
    "tfs_z": 1,
    "mirostat": 0,
}
"""Values that ask for what happens anyway, besides those of OpenAI's parameters."""

_DETAILS_OF = {
    "repeat_last_n": "repeat_penalty",
    "penalize_newline": "repeat_penalty",
    "mirostat_tau": "mirostat",
    "mirostat_eta": "mirostat",
}
"""Options that mean something only where another one does."""

# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def options_asked(options: Any) -> dict[str, str]:
    """The options that ask something of the provider, by path, and OpenAI's name for each."""
    asked = _asked(options) if isinstance(options, dict) else ()
    return {f"options.{name}": OPTIONS.get(name, name) for name in asked}


def _asked(options: Mapping[str, Any]) -> Iterator[str]:
    for name in options:
        if name in _HINTS or _is_neutral(options, name):
            continue
        if name not in _DETAILS_OF or not _is_neutral(options, _DETAILS_OF[name]):
            yield name


def _is_neutral(options: Mapping[str, Any], name: str) -> bool:
    value = _option(options, name)
    if value is None or _is_unset(name, value):
        return True
    if name in OPTIONS:
        return is_neutral(OPTIONS[name], value)
    return name in _NEUTRAL and bool(value == _NEUTRAL[name])


def _is_unset(name: str, value: Any) -> bool:
    return name in _UNSET and type(value) is int and value in _UNSET[name]


def parse_options(options: Any) -> SamplingParams:
    """The `options` of a request.

    Raises:
        APIError: 400 naming the option that is malformed.
    """
    if options is None:
        return SamplingParams()
    if not isinstance(options, dict):
        raise invalid_parameter("options", "'options' must be an object.", "invalid_type")
    return parse_sampling(
        {openai_name: _parse(options, name) for name, openai_name in OPTIONS.items()}
    )


def parse_max_tokens(options: Mapping[str, Any]) -> int | None:
    """How many tokens the `options` of a request allow; None where that is left open.

    Raises:
        APIError: 400, it is no such number.
    """
    limit: int | None = _parse(options, "num_predict")
    return limit


def _option(options: Mapping[str, Any], name: str) -> Any:
    value = options.get(name)
    if name in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _parse(options: Mapping[str, Any], name: str) -> Any:
    """What the option `name` says, checked; None where it says nothing."""
    value, path = _option(options, name), f"options.{name}"
    if _is_unset(name, value):
        return None
    return read_parameter(OPTIONS[name], value, path)


def parse_format(value: Any) -> ResponseFormat | None:
    """The `format` of a request: `json`, or a JSON Schema.

    Raises:
        APIError: 400, it is neither.
    """
    if value is None or value == "":
        return None
    if value == "json":
        return ResponseFormat("json_object")
    if isinstance(value, dict):
        return ResponseFormat("json_schema", "response", value, path="format")
    raise invalid_parameter("format", "'format' must be 'json' or a JSON Schema.")


def parse_think(value: Any) -> str | None:
    """OpenAI's `reasoning_effort` for the `think` of a request.

    Raises:
        APIError: 400, it is neither a boolean nor one of the levels.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "medium" if value else "none"
    if isinstance(value, str) and value in _EFFORTS:
        return _EFFORTS[value]
    raise invalid_parameter(
        "think", f"Invalid value: {value!r}. 'think' must be a boolean, {', '.join(_EFFORTS)}."
    )


# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_options(sampling: SamplingParams, context_length: int | None) -> dict[str, Any]:
    """The `options` that say `sampling`; what nobody set is left out."""
    options = sampling_members(sampling, _OPTION_NAMES)
    if context_length is not None:
        options["num_ctx"] = context_length
    return options


def render_format(wanted: ResponseFormat | None) -> str | dict[str, Any] | None:
    """The `format`; None where any text will do."""
    if wanted is None or wanted.type == "text":
        return None
    return "json" if wanted.told_schema is None else wanted.told_schema


def render_think(reasoning_effort: str) -> bool | str:
    """The `think` of OpenAI's `reasoning_effort`.

    Raises:
        APIError: 400, it is unknown.
    """
    if reasoning_effort not in THINK:
        raise invalid_parameter(
            "reasoning_effort",
            f"Invalid value: {reasoning_effort!r}. Supported values are: {', '.join(THINK)}.",
        )
    return THINK[reasoning_effort]
