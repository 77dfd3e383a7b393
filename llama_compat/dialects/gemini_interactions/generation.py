"""How a client's request wants the reply to be made: wire -> vocabulary.

Sampling and thinking stand in `generation_config`, and so does the choice among the tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.base import UNKNOWN
from llama_compat.dialects.gemini_interactions.hosted import asked_by_hosted, name_of
from llama_compat.dialects.members import as_list, as_object, optional_text_in, text_in
from llama_compat.dialects.openai.parameters import is_neutral, parse_sampling, read_parameter
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.vocabulary import HostedTool
from llama_compat.types import ResponseFormat, SamplingParams, ToolChoice, ToolDefinition

CONFIG = "generation_config"

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "seed": "seed",
}

_PARAMETERS = {**_SAMPLING, "thinking_level": "reasoning_effort"}
"""OpenAI's names."""

LEVELS = ("minimal", "low", "medium", "high", "xhigh")
"""How much to think, in OpenAI's words too."""

SUMMARIES = ("auto", "none")

_JSON = "application/json"

_MEDIA = ("audio", "image", "video")

AskedMembers = Iterator[tuple[str, str]]


# The configuration --------------------------------------------------------------------------------


def config_in(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `generation_config` of a request; empty if it has none.

    Raises:
        APIError: 400, it is no object.
    """
    config = body.get(CONFIG)
    return {} if config is None else as_object(config, CONFIG)


def asked_by_config(body: Mapping[str, Any]) -> AskedMembers:
    """The members of the `generation_config` that ask something of the provider, and OpenAI's name
    for each."""
    for name, value in config_in(body).items():
        if value is None or name in ("thinking_summaries", "tool_choice"):
            continue
        known = _PARAMETERS.get(name, UNKNOWN)
        if not is_neutral(known, value):
            yield f"{CONFIG}.{name}", known


def parse_sampling_config(config: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters.

    Raises:
        APIError: 400 naming the member that is malformed.
    """
    return parse_sampling(
        {
            openai_name: read_parameter(openai_name, config.get(name), f"{CONFIG}.{name}")
            for name, openai_name in _SAMPLING.items()
        }
    )


def parse_max_tokens(config: Mapping[str, Any]) -> int | None:
    """How many tokens the reply may have; None where that is left open.

    Raises:
        APIError: 400, it is no such number.
    """
    name = "max_output_tokens"
    wanted: int | None = read_parameter("max_tokens", config.get(name), f"{CONFIG}.{name}")
    return wanted


def parse_thinking(config: Mapping[str, Any]) -> str | None:
    """OpenAI's `reasoning_effort`; None where the model may decide.

    Raises:
        APIError: 400, it is none of the levels.
    """
    return _one_of(config, "thinking_level", LEVELS)


def hides_thoughts(config: Mapping[str, Any]) -> bool:
    """Whether the client does not want to read what the model thinks.

    Raises:
        APIError: 400, it says so in no word that is known.
    """
    return _one_of(config, "thinking_summaries", SUMMARIES) == "none"


def _one_of(config: Mapping[str, Any], name: str, words: tuple[str, ...]) -> str | None:
    word = optional_text_in(config, name, CONFIG)
    if word is None:
        return None
    if word.lower() not in words:
        path = f"{CONFIG}.{name}"
        raise invalid_parameter(
            path, f"Invalid value: {word!r}. Supported values are: {', '.join(words)}."
        )
    return word.lower()


# The shape of the text ----------------------------------------------------------------------------


def asked_by_format(body: Mapping[str, Any]) -> AskedMembers:
    """What is asked for by `response_format` and the members that it has taken the place of."""
    if any(each.get("type") in _MEDIA for each in _formats(body)):
        yield "response_format", UNKNOWN
    elif parse_format(body) is not None:
        named = body.get("response_format") is not None
        yield "response_format" if named else "response_mime_type", "response_format"
    if body.get("response_mime_type") not in (None, "", "text/plain", _JSON):
        yield "response_mime_type", UNKNOWN
    modalities = as_list(body.get("response_modalities"), "response_modalities")
    if any(not isinstance(each, str) or each.lower() != "text" for each in modalities):
        yield "response_modalities", UNKNOWN


def parse_format(body: Mapping[str, Any]) -> ResponseFormat | None:
    """The shape that the text is to have; what is no text must have been refused or dropped.

    Raises:
        APIError: 400, it is malformed.
    """
    for each in _formats(body):
        if each.get("type") in _MEDIA:
            continue
        if each.get("type") != "text":
            # The schema itself, as revisions before 2026-05 had it.
            return ResponseFormat("json_schema", "response", each, path="response_format")
        if (schema := each.get("schema")) is not None:
            path = "response_format.schema"
            return ResponseFormat("json_schema", "response", as_object(schema, path), path=path)
        if each.get("mime_type") == _JSON:
            return ResponseFormat("json_object")
    return ResponseFormat("json_object") if body.get("response_mime_type") == _JSON else None


def _formats(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    value, path = body.get("response_format"), "response_format"
    if isinstance(value, dict):
        return [value]
    listed = as_list(value, path)
    return [as_object(each, f"{path}[{index}]") for index, each in enumerate(listed)]


# Tools --------------------------------------------------------------------------------------------


def asked_by_tools(body: Mapping[str, Any]) -> AskedMembers:
    """The tools and the choice among them."""
    tools = [tool for tool in as_list(body.get("tools"), "tools") if isinstance(tool, dict)]
    functions = [tool for tool in tools if tool.get("type") == "function"]
    yield from asked_by_hosted(tools)
    if any(tool.get("defer_loading") for tool in functions):
        yield "tools.defer_loading", UNKNOWN
    if not functions:
        return
    yield "tools", "tools"
    mode, _ = _choice(config_in(body))
    if mode == "validated":
        yield f"{CONFIG}.tool_choice", UNKNOWN
    elif mode != "auto":
        yield f"{CONFIG}.tool_choice", "tool_choice"


def parse_tools(
    body: Mapping[str, Any], hosted: tuple[HostedTool, ...] = ()
) -> tuple[tuple[ToolDefinition, ...], tuple[HostedTool, ...], ToolChoice | None]:
    """The functions that may be called, those of the server's tools that may, and whether one must
    be.

    Of those that are not among the allowed ones the model is told nothing. What Google itself runs
    must have been refused or dropped.

    Args:
        body: the request.
        hosted: the tools that the server is to run.

    Raises:
        APIError: 400 naming what is malformed.
    """
    tools = parse_functions(body)
    mode, allowed = _choice(config_in(body))
    if not tools and not hosted:
        return (), (), None
    if allowed:
        path = f"{CONFIG}.tool_choice.allowed_tools.tools"
        unknown = set(allowed) - {tool.tool_name for tool in tools} - set(map(name_of, hosted))
        if unknown:
            raise invalid_parameter(path, f"'{path}' names '{min(unknown)}', which no tool is.")
        tools = tuple(tool for tool in tools if tool.tool_name in allowed)
        hosted = tuple(tool for tool in hosted if name_of(tool) in allowed)
    if mode in ("auto", "validated"):
        return tools, hosted, None
    if mode == "none":
        return tools, hosted, ToolChoice("none")
    is_one = bool(allowed) and len(tools) == 1 and not hosted
    return tools, hosted, ToolChoice("required", tools[0].tool_name if is_one else None)


def parse_functions(body: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The functions of a request.

    Raises:
        APIError: 400 naming what is malformed.
    """
    return tuple(_functions(body))


def _functions(body: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    for index, each in enumerate(as_list(body.get("tools"), "tools")):
        path = f"tools[{index}]"
        tool = as_object(each, path)
        if text_in(tool, "type", path) != "function":
            continue
        parameters = tool.get("parameters")
        if parameters is not None:
            parameters = as_object(parameters, f"{path}.parameters")
        description = optional_text_in(tool, "description", path)
        yield ToolDefinition(text_in(tool, "name", path), description, parameters)


_MODES = ("auto", "any", "none", "validated")


def _choice(config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The mode, and the names of the tools that may be called; of none all may."""
    choice, path = config.get("tool_choice"), f"{CONFIG}.tool_choice"
    allowed: list[str] = []
    if isinstance(choice, dict):
        inner = as_object(choice.get("allowed_tools") or {}, f"{path}.allowed_tools")
        path = f"{path}.allowed_tools"
        allowed = as_list(inner.get("tools"), f"{path}.tools")
        if not all(isinstance(name, str) for name in allowed):
            raise invalid_parameter(
                f"{path}.tools", f"'{path}.tools' must be an array of strings.", "invalid_type"
            )
        choice, path = inner.get("mode"), f"{path}.mode"
    if choice is None:
        choice = "auto"
    if not isinstance(choice, str) or choice.lower() not in _MODES:
        raise invalid_parameter(
            path, f"Invalid value: {choice!r}. Supported values are: {', '.join(_MODES)}."
        )
    return choice.lower(), allowed
