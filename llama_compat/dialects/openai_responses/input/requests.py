"""A request for a response: what it asks, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.base import UNKNOWN, Labels
from llama_compat.dialects.choices import StreamedChoice
from llama_compat.dialects.members import as_list, as_object, optional_text_in
from llama_compat.dialects.openai.parameters import is_neutral, parse_metadata, parse_sampling
from llama_compat.dialects.openai.usage import parse_service_tier
from llama_compat.dialects.openai_responses.input.hosted import (
    allowed_hosted,
    approved_calls,
    hosted_choice,
    parse_hosted,
)
from llama_compat.dialects.openai_responses.input.items import (
    item_type,
    parse_input,
    unsupported_items,
)
from llama_compat.dialects.openai_responses.input.tools import (
    Toolbox,
    demands_call,
    parse_tool_choice,
    parse_tools,
    unsupported_tools,
)
from llama_compat.dialects.openai_responses.keeping import HOW_TO_KEEP, Keeping, refuse_unkept
from llama_compat.dialects.openai_responses.output.response_object import repeated
from llama_compat.dialects.openai_responses.output.streams import Shown, StreamRenderer
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import (
    ChatCompletionRequest,
    Message,
    ResponseFormat,
    SystemMessage,
)

LOGPROBS = "message.output_text.logprobs"

SOURCES = "web_search_call.action.sources"

RESULTS = "file_search_call.results"

INCLUDABLE = frozenset(
    {
        LOGPROBS,
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        RESULTS,
        "web_search_call.results",
        SOURCES,
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    }
)
"""What `include` may name. Reasoning is sealed in any case."""


class ResponsesCall(StreamedChoice, frozen=True):
    """One request as it came: what is asked of the model, and how to answer."""

    shown: Shown
    keeping: Keeping | None = None

    def stream_renderer(self, labels: Labels) -> StreamRenderer:
        """A renderer of the response's events."""
        return StreamRenderer(self.shown, labels, self.keeping)

    def queued(self, labels: Labels) -> dict[str, Any]:
        """The `response` object before anything has been done for it."""
        return self.stream_renderer(labels).object("queued")


def parse_request(
    body: Mapping[str, Any], model: str, *, keeping: Keeping | None = None
) -> ResponsesCall:
    """The request `body`, its parameters already checked, for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed, or what is not kept here.
    """
    refuse_absent(body, is_kept=keeping is not None)
    offered = parse_toolbox(body)
    taken = {each.tool_name for each in offered.definitions}
    hosted = parse_hosted(body.get("tools"), taken)
    named = hosted_choice(body.get("tool_choice"), hosted)
    if named is None:
        choice, toolbox = parse_tool_choice(body.get("tool_choice"), offered, bool(hosted))
    else:
        choice, toolbox = named, offered
    text = body.get("text") or {}
    reasoning = body.get("reasoning") or {}
    verbosity = optional_text_in(text, "verbosity", "text")
    wants_logprobs = wants_log_probabilities(body)
    request = ChatCompletionRequest(
        model=model,
        messages=parse_messages(body, keeping),
        sampling=parse_sampling({**body, "max_tokens": body.get("max_output_tokens")}),
        tools=toolbox.definitions,
        tool_choice=choice if toolbox.definitions or hosted else None,
        parallel_tool_calls=False if body.get("parallel_tool_calls") is False else None,
        response_format=_parse_format(text.get("format")),
        reasoning_effort=optional_text_in(reasoning, "effort", "reasoning"),
        verbosity=None if verbosity == "medium" else verbosity,
        logprobs=(body.get("top_logprobs") or 0) if wants_logprobs else None,
        stream=bool(body.get("stream")),
        service_tier=parse_service_tier(body),
        user=optional_text_in(body, "user") or None,
        safety_identifier=optional_text_in(body, "safety_identifier") or None,
        metadata=parse_metadata(body),
        prompt_cache_key=optional_text_in(body, "prompt_cache_key"),
        prompt_cache_retention=optional_text_in(body, "prompt_cache_retention"),
        hosted=allowed_hosted(body.get("tool_choice"), hosted),
        approved=approved_calls(body.get("input")),
        max_hosted_calls=body.get("max_tool_calls"),
    )
    shown = Shown(
        said=repeated(body),
        toolbox=toolbox,
        summarizes=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
        with_logprobs=wants_logprobs,
        obfuscate=(body.get("stream_options") or {}).get("include_obfuscation") is True,
        previous_response_id=body.get("previous_response_id"),
        with_sources=SOURCES in (body.get("include") or ()),
        with_results=RESULTS in (body.get("include") or ()),
    )
    return ResponsesCall(request, shown, keeping)


def refuse_absent(body: Mapping[str, Any], *, is_kept: bool) -> None:
    """Refuse what the request asks of stores that are not there.

    Raises:
        APIError: 400.
    """
    if body.get("conversation") is not None:
        raise invalid_parameter(
            "conversation",
            "There are no conversations here. Send the items in 'input', or name the response to go"
            " on from in 'previous_response_id'.",
            "unsupported_parameter",
        )
    if body.get("prompt") is not None:
        raise invalid_parameter(
            "prompt",
            "There are no stored prompts here. Send the text in 'instructions' and 'input'.",
            "unsupported_parameter",
        )
    if not is_kept:
        refuse_unkept(body, "response", HOW_TO_KEEP)


def parse_messages(body: Mapping[str, Any], keeping: Keeping | None) -> tuple[Message, ...]:
    """The conversation: the instructions, what a store has of it, and the input.

    Raises:
        APIError: 400 naming what is malformed.
    """
    messages = parse_input(
        body.get("input"),
        earlier=keeping.earlier if keeping is not None else (),
        references=keeping.references if keeping is not None else None,
    )
    instructions = body.get("instructions")
    if not instructions:
        return messages
    if not isinstance(instructions, str):
        raise invalid_parameter(
            "instructions", "Invalid type for 'instructions': expected a string.", "invalid_type"
        )
    return (SystemMessage(instructions), *messages)


def parse_toolbox(body: Mapping[str, Any]) -> Toolbox:
    """The tools of a request, and those that items of its input add.

    Raises:
        APIError: 400 naming what is malformed.
    """
    tools = parse_tools(body.get("tools"))
    for path, more in added_tools(body):
        tools += parse_tools(more, path)
    return Toolbox(tools)


def added_tools(body: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The tools that items of the input add, and where they are."""
    items = body.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item_type(item) == "additional_tools":
            path = f"input[{index}].tools"
            yield path, as_list(item.get("tools"), path)


def wants_log_probabilities(body: Mapping[str, Any]) -> bool:
    """Whether the request asks for log probabilities, in one of the two ways."""
    return LOGPROBS in (body.get("include") or ()) or bool(body.get("top_logprobs"))


def _parse_format(value: Any) -> ResponseFormat | None:
    match value:
        case None:
            return None
        case {"type": "text" | "json_object" as kind}:
            return ResponseFormat(kind)
        case {"type": "json_schema", "name": str(name), "schema": dict(schema)}:
            strict = value.get("strict")
            if strict is None or isinstance(strict, bool):
                described = optional_text_in(value, "description", "text.format")
                path = "text.format.schema"
                return ResponseFormat("json_schema", name, schema, strict, described, path)
    raise invalid_parameter(
        "text.format",
        "'text.format' must have the type 'text', 'json_object' or 'json_schema', the last with a"
        " 'name' and a 'schema'.",
    )


# --------------------------------------------------------------------------------------------------
# What a request asks of the provider
# --------------------------------------------------------------------------------------------------

HINTS = {
    **{name: name for name in ("user", "safety_identifier", "service_tier")},
    "client_metadata": UNKNOWN,
}
"""OpenAI's names of the hints that are missed where they are gone; `metadata` is kept with the
response, and shown there."""

_NOTHING_ASKED = frozenset(
    {
        "model",
        "input",
        "instructions",
        "stream",
        # What this side of the provider sees to, or refuses itself.
        "store",
        "previous_response_id",
        "conversation",
        "prompt",
        "background",
        "max_tool_calls",
        *HINTS,
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
"""`max_tool_calls` bounds the calls of tools that the server runs."""


_OPENAI_NAMES: Mapping[str, str] = {
    "max_output_tokens": "max_tokens",
    **{
        name: name
        for name in (
            "temperature",
            "top_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
            "top_k",
            "seed",
            "stop",
            "top_logprobs",
            "truncation",
            "parallel_tool_calls",
        )
    },
}
"""Chat's name for what a member asks; nobody knows others."""

_NEUTRAL: Mapping[str, Any] = {
    "truncation": "disabled",
    "n": 1,
    "context_management": [],
    "parallel_tool_calls": True,
}
"""Values that ask for what happens anyway, besides those of chats."""


def parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The members of a request that ask something of the provider, and chat's names for them.

    Raises:
        APIError: 400, one has another shape than it should.
    """
    check_shapes(body)
    asked: dict[str, str] = {}
    for name, value in body.items():
        if value is None or name in _NOTHING_ASKED:
            continue
        if name in _MEMBERS:
            asked.update(_MEMBERS[name](value))
            continue
        known = _OPENAI_NAMES.get(name, UNKNOWN)
        if not (is_neutral(known, value) or (name in _NEUTRAL and value == _NEUTRAL[name])):
            asked[name] = known
    asked.update(dict.fromkeys(unsupported_items(body.get("input")), UNKNOWN))
    for path, tools in added_tools(body):
        for each, known in _asked_by_tools(tools, path):
            asked[each] = known
    if "tools" not in asked:
        for name in ("tool_choice", "parallel_tool_calls"):
            asked.pop(name, None)
    return asked


def _asked_by_tools(value: Any, path: str = "tools") -> Iterator[tuple[str, str]]:
    yield from unsupported_tools(value, path)
    kinds = [tool.get("type") for tool in value if isinstance(tool, dict)]
    if any(kind in kinds for kind in ("function", "custom", "namespace")):
        yield "tools", "tools"


def _asked_by_tool_choice(value: Any) -> Iterator[tuple[str, str]]:
    if demands_call(value):
        yield "tool_choice", "tool_choice"


def _asked_by_text(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if name == "format":
            if member not in (None, {"type": "text"}):
                yield "text.format", "response_format"
        elif name == "verbosity":
            if member not in (None, "medium"):
                yield "text.verbosity", "verbosity"
        elif member is not None:
            yield f"text.{name}", UNKNOWN


def _asked_by_reasoning(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if name == "effort" and member is not None:
            yield "reasoning.effort", "reasoning_effort"
        elif name in ("effort", "summary", "generate_summary"):
            continue
        elif member not in (None, "auto", "standard"):
            yield f"reasoning.{name}", UNKNOWN


def _asked_by_include(value: Sequence[Any]) -> Iterator[tuple[str, str]]:
    if LOGPROBS in value:
        yield "include", "logprobs"


def _asked_by_stream_options(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if member and name != "include_obfuscation":
            yield f"stream_options.{name}", UNKNOWN


def _asked_by_cache_options(value: Any) -> Iterator[tuple[str, str]]:
    # The rest are hints; this one asks for no reply at all.
    if isinstance(value, dict) and value.get("prewarm"):
        yield "prompt_cache_options.prewarm", UNKNOWN


def _asked_by_image(value: Any) -> Iterator[tuple[str, str]]:
    if value not in ({}, {"context_compression": "auto"}, {"context_compression": "disabled"}):
        yield "image", UNKNOWN


_MEMBERS: dict[str, Callable[[Any], Iterator[tuple[str, str]]]] = {
    "tools": _asked_by_tools,
    "tool_choice": _asked_by_tool_choice,
    "text": _asked_by_text,
    "reasoning": _asked_by_reasoning,
    "include": _asked_by_include,
    "stream_options": _asked_by_stream_options,
    "prompt_cache_options": _asked_by_cache_options,
    "image": _asked_by_image,
}


def check_shapes(body: Mapping[str, Any]) -> None:
    """Check the members whose insides `parameters` looks at.

    Raises:
        APIError: 400 naming one that has another shape.
    """
    for name in ("text", "reasoning", "stream_options", "metadata"):
        if body.get(name) is not None:
            as_object(body[name], name)
    for name, value in (body.get("metadata") or {}).items():
        if not isinstance(value, str):
            raise invalid_parameter(f"metadata.{name}", f"'metadata.{name}' must be a string.")
    if body.get("truncation") not in (None, "auto", "disabled"):
        raise invalid_parameter(
            "truncation", "Invalid value for 'truncation': expected 'auto' or 'disabled'."
        )
    for index, included in enumerate(as_list(body.get("include"), "include")):
        if not isinstance(included, str) or included not in INCLUDABLE:
            raise _unknown_include(included, index)
    as_list(body.get("tools"), "tools")


def _unknown_include(included: Any, index: int) -> APIError:
    return invalid_parameter(
        f"include[{index}]",
        f"Invalid value: {included!r}. Supported values are: {', '.join(sorted(INCLUDABLE))}.",
    )
