"""The `generationConfig` of a client's request: wire -> vocabulary.

Source: https://ai.google.dev/api/generate-content#v1beta.GenerationConfig
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from llama_compat.dialects.base import UNKNOWN
from llama_compat.dialects.counts import MAX_INT32
from llama_compat.dialects.gemini.members import (
    integer_in,
    member,
    object_in,
    spelling,
    the_member,
)
from llama_compat.dialects.gemini.requests import THINKING_BUDGETS
from llama_compat.dialects.gemini.schema import parse_schema
from llama_compat.dialects.openai.parameters import is_neutral, parse_sampling, read_parameter
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import ResponseFormat, SamplingParams, ThinkingForm

CONFIG = "generationConfig"

_SAMPLING = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}

_PARAMETERS = {
    **_SAMPLING,
    "responseLogprobs": "logprobs",
    "logprobs": "top_logprobs",
    "responseMimeType": "response_format",
    "responseSchema": "response_format",
    "responseJsonSchema": "response_format",
    "thinkingConfig": "reasoning_effort",
}
"""OpenAI's names."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "responseMimeType": ("", "text/plain"),
    "responseModalities": ([], ["TEXT"]),
    "enableEnhancedCivicAnswers": (False,),
    "audioTimestamp": (False,),
}
"""Values that ask for what happens anyway, besides those of OpenAI's parameters."""

_ALWAYS_HONOURED = frozenset({"candidateCount"})
_HINTS = frozenset({"mediaResolution"})

_KNOWN = frozenset({*_PARAMETERS, *_NEUTRAL, *_ALWAYS_HONOURED, *_HINTS})

_INTEGERS = frozenset({"topK", "maxOutputTokens", "seed"})

_JSON = "application/json"

_EFFORT_OF_BUDGET = ((0, "none"), (4096, "low"), (16384, "medium"))
"""OpenAI's `reasoning_effort` for so many tokens to think with at most; for more it is `high`."""

_EFFORT_OF_LEVEL = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}

MAX_CANDIDATES = 8


def config_in(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `generationConfig` of a request; empty if it has none.

    Raises:
        APIError: 400, it is no object, or there twice.
    """
    config = the_member(body, CONFIG, CONFIG)
    return {} if config is None else object_in(config, CONFIG)


def config_asked(body: Mapping[str, Any]) -> dict[str, str]:
    """The members of the `generationConfig` that ask something of the provider, by the path that
    the client wrote, and OpenAI's name for each."""
    config: dict[str, Any] | None = member(body, CONFIG)
    if not isinstance(config, dict):
        return {}
    names = {spelling(config, name): name for name in _KNOWN}
    at = spelling(body, CONFIG)
    return {
        f"{at}.{written}": _openai_name(names.get(written, written), value)
        for written, value in config.items()
        if _asks_for_something(names.get(written, written), value, config)
    }


def config_hints(body: Mapping[str, Any]) -> dict[str, str]:
    """The paths of what a `generationConfig` may have of hints, and OpenAI's names for them."""
    config: Any = member(body, CONFIG)
    if not isinstance(config, dict):
        return {}
    at = spelling(body, CONFIG)
    return {f"{at}.{spelling(config, name)}": UNKNOWN for name in _HINTS}


def _openai_name(name: str, value: Any) -> str:
    # Nobody here has a word for other media types, so they are refused or dropped by name.
    if name == "responseMimeType" and value != _JSON:
        return name
    return _PARAMETERS.get(name, name)


def _asks_for_something(name: str, value: Any, config: Mapping[str, Any]) -> bool:
    if value is None or name in _ALWAYS_HONOURED or name in _HINTS:
        return False
    if name == "logprobs" and not member(config, "responseLogprobs"):
        return False
    if name == "thinkingConfig":
        # Not to think asks nothing of a provider that knows of no thinking.
        return isinstance(value, dict) and parse_thinking(config) not in (None, "none")
    if is_neutral(_PARAMETERS.get(name, UNKNOWN), value):
        return False
    return not any(value == neutral for neutral in _NEUTRAL.get(name, ()))


def parse_sampling_config(config: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters.

    Raises:
        APIError: 400 naming the member that is malformed.
    """
    sampling: dict[str, Any] = {}
    for name, openai_name in _SAMPLING.items():
        path = f"{CONFIG}.{name}"
        value = (integer_in if name in _INTEGERS else the_member)(config, name, path)
        sampling[openai_name] = read_parameter(openai_name, value, path)
    return parse_sampling(sampling)


def parse_logprobs_config(config: Mapping[str, Any]) -> int | None:
    """How many alternatives are wanted beside each token's own; None: no log probabilities.

    Raises:
        APIError: 400, `logprobs` is no such number.
    """
    if not member(config, "responseLogprobs"):
        return None
    path = f"{CONFIG}.logprobs"
    return read_parameter("top_logprobs", integer_in(config, "logprobs", path), path) or 0


def parse_max_tokens(config: Mapping[str, Any]) -> int | None:
    """How many tokens each choice may have; None where that is left open.

    Raises:
        APIError: 400, it is no such number.
    """
    path = f"{CONFIG}.maxOutputTokens"
    wanted = integer_in(config, "maxOutputTokens", path)
    limit: int | None = read_parameter("max_tokens", wanted, path)
    return limit


def parse_candidate_count(config: Mapping[str, Any]) -> int:
    """How many choices are wanted.

    Raises:
        APIError: 400, it is no such number.
    """
    path = f"{CONFIG}.candidateCount"
    count = integer_in(config, "candidateCount", path)
    if count is None:
        return 1
    if type(count) is not int or not 1 <= count <= MAX_CANDIDATES:
        raise invalid_parameter(path, f"'{path}' must be an integer from 1 to {MAX_CANDIDATES}.")
    return int(count)


def parse_response_format(config: Mapping[str, Any]) -> ResponseFormat | None:
    """The shape that the text is to have.

    Raises:
        APIError: 400, a schema is malformed.
    """
    if (schema := member(config, "responseJsonSchema")) is not None:
        path = f"{CONFIG}.responseJsonSchema"
        return ResponseFormat("json_schema", "response", object_in(schema, path), path=path)
    if (schema := member(config, "responseSchema")) is not None:
        path = f"{CONFIG}.responseSchema"
        return ResponseFormat("json_schema", "response", parse_schema(schema, path), path=path)
    return ResponseFormat("json_object") if member(config, "responseMimeType") == _JSON else None


def parse_thinking(config: Mapping[str, Any]) -> str | None:
    """OpenAI's `reasoning_effort` for the `thinkingConfig`; None where the model may decide.

    Raises:
        APIError: 400, it is malformed.
    """
    path = f"{CONFIG}.thinkingConfig"
    thinking = member(config, "thinkingConfig")
    thinking = {} if thinking is None else object_in(thinking, path)
    level = member(thinking, "thinkingLevel")
    budget = integer_in(thinking, "thinkingBudget", f"{path}.thinkingBudget")
    if isinstance(level, str) and level.upper() in _EFFORT_OF_LEVEL:
        return _EFFORT_OF_LEVEL[level.upper()]
    if level is not None and level != "THINKING_LEVEL_UNSPECIFIED":
        raise invalid_parameter(
            f"{path}.thinkingLevel",
            f"Invalid value: {level!r}. Supported values are: {', '.join(_EFFORT_OF_LEVEL)}.",
        )
    if budget is None or budget == -1:
        return None
    if type(budget) is not int or not 0 <= budget <= MAX_INT32:
        raise invalid_parameter(
            f"{path}.thinkingBudget",
            f"'thinkingBudget' must be an integer from -1 to {MAX_INT32}.",
        )
    return next((effort for most, effort in _EFFORT_OF_BUDGET if budget <= most), "high")


def effort_in(body: Mapping[str, Any]) -> str | None:
    """How hard a request wants the model to think; None where that is left open, or malformed."""
    try:
        return parse_thinking(config_in(body))
    except APIError:
        return None  # for the vendor to say


def say_effort(body: dict[str, Any], effort: str, form: ThinkingForm) -> Collection[str]:
    """Say in a request how hard to think, in the form that a model takes.

    Returns:
        The names of the members that it changed.
    """
    config = member(body, CONFIG)
    thinking = member(config, "thinkingConfig") if isinstance(config, dict) else None
    if not isinstance(thinking, dict):
        return ()
    before = dict(thinking)
    level, budget = spelling(thinking, "thinkingLevel"), spelling(thinking, "thinkingBudget")
    if form.how == "level":
        thinking.pop(budget, None)
        thinking[level] = effort.upper()
    elif form.how == "budget" and level in thinking:
        thinking.pop(level)
        thinking[budget] = THINKING_BUDGETS.get(effort, THINKING_BUDGETS["high"])
    same = {name: str(value).upper() for name, value in before.items()} == {
        name: str(value).upper() for name, value in thinking.items()
    }
    return () if same else (spelling(body, CONFIG),)


def includes_thoughts(config: Mapping[str, Any]) -> bool:
    """Whether the client wants to see what the model thinks."""
    thinking = member(config, "thinkingConfig")
    return isinstance(thinking, dict) and member(thinking, "includeThoughts") is True
