"""What a request to the Messages API asks besides its conversation: wire -> vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from llama_compat.dialects.anthropic_messages.requests import (
    EFFORTS,
    MIN_THINKING_BUDGET,
    THINKING_BUDGETS,
    USUAL_EFFORT,
)
from llama_compat.dialects.base import CITED_DOCUMENTS, HOSTED_SETTING, HOSTED_TOOLS, UNKNOWN
from llama_compat.dialects.counts import MAX_INT32
from llama_compat.dialects.members import (
    as_object,
    object_in,
    objects_among,
    optional_flag_in,
    optional_integer_in,
    optional_number_in,
    optional_text_in,
    text_in,
    wrong_type,
)
from llama_compat.dialects.openai.parameters import parse_sampling
from llama_compat.dialects.stop_lists import checked_stops
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.hosted.asked.common import unread_settings
from llama_compat.types import (
    ResponseFormat,
    SamplingParams,
    ThinkingForm,
    ToolChoice,
    ToolDefinition,
)

_ALWAYS_HONOURED = frozenset({"model", "messages", "system", "stream"})

_REFUSED = frozenset({"thread"})
"""Fields that a request is refused for when it is parsed: with them it is not all of what it says,
so they can't be left out."""

_HINTS = frozenset(
    {
        "cache_control",
        "context_management",
        "diagnostics",
        "metadata",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    }
)
"""Fields that say something about a request and change nothing about the reply that is due. (A
server that can't edit a context keeps all of it.)"""

_NAMES = {
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "output_format": "response_format",
}
"""OpenAI's names of the fields that are one parameter each."""

_IN_PARTS = frozenset({"output_config", "thinking", "tool_choice", "tools"})

_OUTPUT_NAMES = {"effort": "reasoning_effort", "format": "response_format"}


TOLD_HINTS = {
    **dict.fromkeys(sorted(_HINTS - {"cache_control", "metadata"}), UNKNOWN),
    "metadata.user_id": "user",
    "service_tier": "service_tier",
}
"""OpenAI's names of the hints that are missed where they are gone."""


def parameters_asked(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The fields of a request that ask something of the provider, and OpenAI's names for them.

    A tool that Anthropic's own servers run is named by its type, such as
    `tools.web_search_20250305`. Adaptive thinking leaves it to the model whether it thinks, so it
    asks for nothing. Thinking that is off has no word that all other models know, so it is a
    parameter that nobody honours.
    """
    asked = {
        name: _NAMES.get(name, name)
        for name, value in body.items()
        if value is not None
        and value != []
        and name not in _ALWAYS_HONOURED
        and name not in _HINTS
        and name not in _REFUSED
        and name not in _IN_PARTS
    }
    asked.update(_tool_parameters(body))
    if any(_wants_citations(message) for message in objects_among(body.get("messages"))):
        asked["messages.citations"] = CITED_DOCUMENTS
    thinking, output = body.get("thinking"), body.get("output_config")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind in ("enabled", "disabled"):
        asked["thinking"] = "reasoning_effort" if kind == "enabled" else "thinking"
    for name, value in output.items() if isinstance(output, dict) else ():
        if value is not None:
            asked[f"output_config.{name}"] = _OUTPUT_NAMES.get(name, f"output_config.{name}")
    return asked


def _wants_citations(block: Mapping[str, Any]) -> bool:
    """Whether a reply is to cite what is in a message, or in a block of one."""
    citations = block.get("citations")
    if isinstance(citations, dict) and citations.get("enabled"):
        return True
    return any(map(_wants_citations, objects_among(block.get("content"))))


def usual_parameters(body: Mapping[str, Any]) -> Collection[str]:
    """Those of `parameters_asked` that ask for what is so at Anthropic without them."""
    thinking, output = body.get("thinking"), body.get("output_config")
    usual = []
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        usual.append("thinking")
    if isinstance(output, dict) and output.get("effort") == USUAL_EFFORT:
        usual.append("output_config.effort")
    # "On a model that doesn't support fallbacks, the request runs on the requested model alone."
    if body.get("fallbacks") == "default":
        usual.append("fallbacks")
    return usual


def _tool_parameters(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tools, choice = body.get("tools"), body.get("tool_choice")
    tools = tools if isinstance(tools, list) else []
    for index, tool in enumerate(tools):
        if isinstance(tool, dict) and not _is_clients(tool):
            yield f"tools.{tool['type']}", HOSTED_TOOLS
            for each in unread_settings(tool, f"tools[{index}]"):
                yield each, HOSTED_SETTING
    if not any(isinstance(tool, dict) and _is_clients(tool) for tool in tools):
        return
    yield "tools", "tools"
    if isinstance(choice, dict):
        if choice.get("type") != "auto":
            yield "tool_choice", "tool_choice"
        if choice.get("disable_parallel_tool_use"):
            yield "tool_choice.disable_parallel_tool_use", "parallel_tool_calls"


def _is_clients(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is the client's own, rather than one of Anthropic's servers or models."""
    return tool.get("type") in (None, "custom")


def parse_settings(body: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters of a request.

    Raises:
        APIError: 400 with the name of the one that is malformed.
    """
    return parse_sampling(
        {
            "max_tokens": optional_integer_in(body, "max_tokens", "", 1),
            "temperature": optional_number_in(body, "temperature", "", 0, 1),
            "top_p": optional_number_in(body, "top_p", "", 0, 1),
            "top_k": optional_integer_in(body, "top_k", "", 0, MAX_INT32),
            "stop": _parse_stop_sequences(body.get("stop_sequences")),
        }
    )


def _parse_stop_sequences(value: Any) -> list[str]:
    if value is None:
        return []
    name = "stop_sequences"
    return checked_stops(
        value,
        name,
        malformed=lambda: wrong_type(name, "an array of strings"),
        empty=lambda: invalid_parameter(name, f"'{name}': none of them can be empty."),
    )


_TIERS = {"auto": "auto", "standard_only": "default"}


def parse_service_tier(value: Any) -> str | None:
    """OpenAI's word for the tier that is wanted; it is a hint, so that None is anything else."""
    return _TIERS.get(value) if isinstance(value, str) else None


def parse_tools(value: Any) -> tuple[ToolDefinition, ...]:
    """The client's own tools among `tools`; for the others see `parameters_asked`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_type("tools", "an array")
    tools = [(as_object(tool, f"tools[{index}]"), index) for index, tool in enumerate(value)]
    return tuple(_parse_tool(tool, f"tools[{index}]") for tool, index in tools if _is_clients(tool))


def _parse_tool(tool: Mapping[str, Any], path: str) -> ToolDefinition:
    return ToolDefinition(
        text_in(tool, "name", path),
        optional_text_in(tool, "description", path),
        object_in(tool, "input_schema", path),
        optional_flag_in(tool, "strict", path),
    )


def parse_tool_choice(value: Any) -> tuple[ToolChoice | None, bool | None]:
    """The `tool_choice` of a request, and whether several calls at a time may be made.

    Raises:
        APIError: 400, it is none.
    """
    if value is None:
        return None, None
    choice = as_object(value, "tool_choice")
    limited = optional_flag_in(choice, "disable_parallel_tool_use", "tool_choice")
    parallel = False if limited else None
    match choice:
        case {"type": "auto" | "none" as mode}:
            return ToolChoice(mode), parallel
        case {"type": "any"}:
            return ToolChoice("required"), parallel
        case {"type": "tool"}:
            return ToolChoice("required", text_in(choice, "name", "tool_choice")), parallel
    raise invalid_parameter(
        "tool_choice.type",
        f"Invalid value for 'tool_choice.type': {choice.get('type')!r}. Supported values are:"
        " 'auto', 'any', 'tool' and 'none'.",
    )


_UNASKED = frozenset({"adaptive", "between_tools", "disabled"})
"""Kinds of thinking that leave it to the model, or want none."""


def parse_adaptive(body: Mapping[str, Any]) -> bool:
    """Whether the model is to think as hard as it sees fit, and nothing says how hard."""
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "adaptive"


def parse_user(value: Any) -> str | None:
    """Who asks, by the `metadata` of a request; it is a hint, so that None is anything else."""
    user = value.get("user_id") if isinstance(value, dict) else None
    return user if isinstance(user, str) and user else None


def parse_effort(body: Mapping[str, Any]) -> str | None:
    """How hard to think, in OpenAI's word; an effort counts for more than a budget of tokens, but
    for the one that is usual.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    effort = optional_text_in(_output_config(body), "effort", "output_config")
    if effort is not None and effort not in EFFORTS:
        known = ", ".join(repr(each) for each in EFFORTS if each not in ("none", "minimal"))
        raise invalid_parameter(
            "output_config.effort",
            f"Invalid value for 'output_config.effort': {effort!r}. Supported values are: {known}.",
        )
    if effort is not None and effort != USUAL_EFFORT:
        return effort
    return _effort_of_thinking(body.get("thinking")) or effort


def _output_config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = body.get("output_config")
    return {} if config is None else as_object(config, "output_config")


def _effort_of_thinking(value: Any) -> str | None:
    if value is None:
        return None
    thinking = as_object(value, "thinking")
    kind = optional_text_in(thinking, "type", "thinking")
    if kind in _UNASKED:
        return None
    if kind != "enabled":
        raise invalid_parameter(
            "thinking.type",
            f"Invalid value for 'thinking.type': {kind!r}. Supported values are: 'enabled',"
            f" {', '.join(map(repr, sorted(_UNASKED)))}.",
        )
    budget = optional_integer_in(thinking, "budget_tokens", "thinking", MIN_THINKING_BUDGET)
    wanted = MIN_THINKING_BUDGET if budget is None else budget
    # Not every vendor knows the efforts past `high`, which mean as much as there is.
    return next(each for each in ("high", "medium", "low") if wanted >= THINKING_BUDGETS[each])


def effort_in(body: Mapping[str, Any]) -> str | None:
    """How hard to think, `none` for not at all; None where that is left open, or malformed."""
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") in ("disabled", "between_tools"):
        return "none"
    try:
        return parse_effort(body)
    except APIError:
        return None  # for the vendor to say


def say_effort(body: dict[str, Any], effort: str, form: ThinkingForm) -> Collection[str]:
    """Say in a request how hard to think, in the form that a model takes.

    Returns:
        The names of the members that it changed.
    """
    before = {name: body.get(name) for name in ("thinking", "output_config")}
    thinking, output = body.get("thinking") or {}, body.get("output_config") or {}
    kind = thinking.get("type")
    shown = {name: thinking[name] for name in ("display",) if name in thinking}
    others = {name: value for name, value in output.items() if name != "effort"}
    if effort == "none":
        if form.off is not None:
            body["thinking"] = {} if form.off == "omitted" else {"type": form.off}
    elif form.how == "budget" and (kind == "adaptive" or "effort" in output):
        limit = body.get("max_tokens")
        budget = THINKING_BUDGETS[effort]
        if isinstance(limit, int):
            budget = min(budget, limit - 1)
        body["output_config"] = others
        fits = budget >= MIN_THINKING_BUDGET
        body["thinking"] = {"type": "enabled", "budget_tokens": budget, **shown} if fits else {}
    elif form.how == "adaptive" and (kind in ("enabled", "disabled") or "effort" in output):
        body["output_config"] = {**others, "effort": EFFORTS[effort]}
        if kind == "enabled":
            body["thinking"] = {"type": "adaptive", **shown}
        elif kind == "disabled":
            body["thinking"] = {}
    for name in before:
        if not body.get(name):
            body.pop(name, None)
    return [name for name, value in before.items() if body.get(name) != value]


def parse_format(body: Mapping[str, Any]) -> ResponseFormat | None:
    """The shape that the text is to have; `output_format` is the older place for it.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    wanted, path = _output_config(body).get("format"), "output_config.format"
    if wanted is None:
        wanted, path = body.get("output_format"), "output_format"
    if wanted is None:
        return None
    described = as_object(wanted, path)
    if described.get("type") != "json_schema":
        raise invalid_parameter(
            f"{path}.type",
            f"Invalid value for '{path}.type': {described.get('type')!r}. It has to be"
            " 'json_schema'.",
        )
    schema = object_in(described, "schema", path)
    return ResponseFormat("json_schema", "response", schema, path=f"{path}.schema")
