"""Requests to Gemini's generateContent: vocabulary -> wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from llama_compat.dialects.alternating import OPENING, empty_message, no_turn, with_a_turn
from llama_compat.dialects.gemini.grounding import SEARCH
from llama_compat.dialects.gemini.models import model_path
from llama_compat.dialects.gemini.schema import render_schema
from llama_compat.dialects.gemini.seals import ANY_SIGNATURE, FAMILY
from llama_compat.dialects.sampling import rendered_parameters, sampling_members
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.media.documents import encoded_in, seen_alone, with_names_told
from llama_compat.media.images import images_in, misplaced_image, parse_data_url
from llama_compat.tools.answers import tool_answered
from llama_compat.tools.calls import arguments_object
from llama_compat.types import (
    AnyToolCall,
    AudioContent,
    ChatCompletionRequest,
    CompletionMessage,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
    content_text,
    media_in,
)

THINKING_BUDGETS = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 24576,
}
"""Tokens to think with for OpenAI's `reasoning_effort`, as Google's OpenAI endpoint has them."""

THINKING_LEVELS = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}
"""What Gemini 3 and later take in place of a number of tokens; they can't be told not to think."""

MODELS_WITH_BUDGETS = ("gemini-2", "gemini-1")

_WITHOUT_MEDIA_IN_RESULTS = MODELS_WITH_BUDGETS
"""400 "`function_response.parts` is not supported for this model" (google-gemini/gemini-cli#19436,
2026-11-28): they take what a tool shows beside its answer."""

TIERS = frozenset({"flex", "priority"})
"""OpenAI's words for the tiers besides the usual one, which are Google's as well
(https://ai.google.dev/gemini-api/docs/priority-inference, 2026-11-28)."""


def parse_tier(value: Any) -> str | None:
    """OpenAI's word for the `serviceTier` of a request; it is a hint, so that None is all else."""
    tier = value.lower().removeprefix("service_tier_") if isinstance(value, str) else None
    return tier if tier in TIERS else None


def render_request(request: ChatCompletionRequest) -> dict[str, Any]:
    """The body of `POST {model}:generateContent` and `:streamGenerateContent`.

    Images and documents have to be there as `data:` URLs: the API takes no others.

    Raises:
        APIError: 400 naming what the API has no form for.
    """
    messages = with_a_turn(request.messages)
    nested = not any(name in request.model for name in _WITHOUT_MEDIA_IN_RESULTS)
    body: dict[str, Any] = {"contents": _render_contents(messages, nested=nested)}
    system = _render_system(messages)
    if system:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        declarations = [_render_tool(tool) for tool in request.tools]
        body["tools"] = [{"functionDeclarations": declarations}]
        if request.tool_choice is not None:
            body["toolConfig"] = {"functionCallingConfig": _render_tool_choice(request)}
    if request.vendor_search is not None:
        body.setdefault("tools", []).append(dict(SEARCH))
    config = _render_generation_config(request)
    if config:
        body["generationConfig"] = config
    if request.service_tier in TIERS:
        body["serviceTier"] = request.service_tier
    return body


def render_count_request(request: ChatCompletionRequest) -> dict[str, Any]:
    """The body of `POST {model}:countTokens`.

    Raises:
        APIError: as `render_request`.
    """
    whole = {"model": model_path(request.model), **render_request(request)}
    whole.pop("serviceTier", None)
    return {"generateContentRequest": whole}


_COUNTED = ("contents", "systemInstruction", "tools", "generationConfig")


def render_vertex_count_request(request: ChatCompletionRequest) -> dict[str, Any]:
    """The same on Vertex AI, whose members are those of google-genai 3.4 (2026-11-23).

    Raises:
        APIError: as `render_request`.
    """
    body = render_request(request)
    return {name: body[name] for name in _COUNTED if name in body}


# Messages -----------------------------------------------------------------------------------------


def _render_system(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [
        part
        for index, message in enumerate(messages)
        if isinstance(message, SystemMessage)
        for part in _render_text(message.content, f"messages[{index}].content")
    ]


def _render_contents(messages: Sequence[Message], *, nested: bool) -> list[dict[str, Any]]:
    """The contents, of which each is by the other side than the one before: answers to the calls of
    one turn have to stand together, and a "function call turn comes immediately after a user turn
    or after a function response turn". What tools show is `nested` in their answers, or after them.
    """
    contents: list[dict[str, Any]] = []
    tool_names: dict[str, str] = {}
    turn = _current_turn(messages)
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if isinstance(message, SystemMessage):
            continue
        if isinstance(message, ToolResponseMessage):
            role, parts = "user", _render_tool_response(message, tool_names, path, nested=nested)
        elif isinstance(message, CompletionMessage):
            tool_names.update((call.call_id, call.tool_name) for call in message.tool_calls)
            role, parts = "model", _render_completion(message, path, in_current_turn=index >= turn)
        else:
            role, parts = "user", _render_user(message, path)
        if parts and role == "model" and not contents:
            # "Please ensure that single turn requests end with a user role", and no call is first.
            contents.append({"role": "user", "parts": [{"text": OPENING}]})
        if parts and contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        elif parts:
            contents.append({"role": role, "parts": parts})
    for before, content in pairwise(contents):
        _put_in_order(content["parts"], before["parts"])
    if not contents:
        raise no_turn("Gemini")
    return contents


def _put_in_order(parts: list[dict[str, Any]], before: Sequence[dict[str, Any]]) -> None:
    """Answers as their calls are, by whose places some tell them apart (`functionResponse.id does
    not match functionCall.id`, router-for-me/CLIProxyAPI#5063, 2026-11-28); all else after them."""
    ids = [part["functionCall"]["id"] for part in before if "functionCall" in part]
    places = {call_id: place for place, call_id in enumerate(ids)}
    if places:
        last = len(places)
        parts.sort(key=lambda part: places.get(part.get("functionResponse", {}).get("id"), last))


def _current_turn(messages: Sequence[Message]) -> int:
    """Where the model's current turn begins: after the last thing that the user said."""
    users = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    return users[-1] + 1 if users else 0


def _render_user(message: UserMessage, path: str) -> list[dict[str, Any]]:
    parts = _render_content(message.content, f"{path}.content")
    if not parts:
        raise empty_message(f"{path}.content", "Gemini")
    return parts


def _render_completion(
    message: CompletionMessage, path: str, *, in_current_turn: bool
) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for said in message.parts:
        _add_part(parts, said, f"{path}.content")
    if not parts and message.refusal:
        parts.append({"text": message.refusal})
    calls = [part for part in parts if "functionCall" in part]
    if calls and in_current_turn:
        # Of calls that were made at once only the first is signed.
        calls[0].setdefault("thoughtSignature", ANY_SIGNATURE)
    return parts


def _add_part(parts: list[dict[str, Any]], said: MessagePart, path: str) -> None:
    match said:
        case TextContent(text):
            if text:
                parts.append({"text": text})
        case ReasoningContent(text, signature, sealed_by, redacted):
            if signature is None or sealed_by != FAMILY:
                return
            if not redacted:
                parts.append({"text": text, "thought": True, "thoughtSignature": signature})
            elif parts and parts[-1].keys() == {"text"}:
                parts[-1]["thoughtSignature"] = signature
            else:
                parts.append({"text": "", "thoughtSignature": signature})
        case ToolCall() | UnparseableToolCall():
            parts.append(_render_call(said))
        case ImageContent():
            raise misplaced_image(path, "Gemini's API")


def _render_call(call: AnyToolCall) -> dict[str, Any]:
    function = {"id": call.call_id, "name": call.tool_name, "args": arguments_object(call)}
    part: dict[str, Any] = {"functionCall": function}
    if isinstance(call, ToolCall) and call.thought_signature is not None:
        part["thoughtSignature"] = call.thought_signature
    return part


def _render_tool_response(
    message: ToolResponseMessage, tool_names: Mapping[str, str], path: str, *, nested: bool
) -> list[dict[str, Any]]:
    name = tool_answered(message, tool_names, path)
    text = content_text(with_names_told(message.content))
    response: dict[str, Any] = {
        "id": message.call_id,
        "name": name,
        "response": {"error" if message.is_error else "output": text},
    }
    media = [_render_part(each, f"{path}.content") for each in media_in(message.content)]
    if media and nested:
        response["parts"] = media
        media = []
    return [{"functionResponse": response}, *media]


def _render_content(content: Content, path: str) -> list[dict[str, Any]]:
    return [_render_part(part, path) for part in told_parts(content)]


def told_parts(content: Content) -> list[ContentPart]:
    """What Google is told of a message's content: text that is empty is left out."""
    told = with_names_told(content)
    parts = (TextContent(told),) if isinstance(told, str) else told
    return [part for part in parts if not isinstance(part, TextContent) or part.text]


def _render_text(content: Content, path: str) -> list[dict[str, Any]]:
    content = seen_alone(content, path, "a system instruction of Gemini's API")
    if images_in(content):
        raise misplaced_image(path, "Gemini's API")
    return _render_content(content, path)


def _render_part(part: ContentPart, path: str) -> dict[str, Any]:
    match part:
        case TextContent(text):
            return {"text": text}
        case AudioContent(media_type, base64):
            return {"inlineData": {"mimeType": media_type, "data": base64}}
        case ImageContent(url):
            encoded = parse_data_url(url, path)
        case DocumentContent():
            encoded = encoded_in(part, path, "Gemini's API")
    return {"inlineData": {"mimeType": encoded.media_type, "data": encoded.base64}}


# Tools --------------------------------------------------------------------------------------------


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.tool_name}
    if tool.description is not None:
        declaration["description"] = tool.description
    taken = taken_by(tool)
    if taken is not None:
        declaration.update(_render_schema(taken, "parameters", "parametersJsonSchema"))
    return declaration


def taken_by(tool: ToolDefinition) -> Mapping[str, Any] | None:
    """The schema of what a tool takes; None where that is nothing, for which Google has no word."""
    schema = tool.parameters
    return schema if schema and schema.get("properties") != {} else None


def _render_schema(schema: Mapping[str, Any], field: str, json_field: str) -> dict[str, Any]:
    rendered = render_schema(schema)
    return {json_field: schema} if rendered is None else {field: rendered}


_TOOL_CHOICES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


def _render_tool_choice(request: ChatCompletionRequest) -> dict[str, Any]:
    choice = request.tool_choice
    assert choice is not None
    if choice.tool_name is not None:
        return {"mode": "ANY", "allowedFunctionNames": [choice.tool_name]}
    return {"mode": _TOOL_CHOICES[choice.mode]}


# Generation ---------------------------------------------------------------------------------------


_SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
}
"""Its words for OpenAI's, but for those that are said elsewhere."""

LARGEST_SEED = (1 << 31) - 1
"""They are 32 bits wide (https://ai.google.dev/api/generate-content#generationconfig, 2026-11-28:
`integer`, and not `string (int64 format)`), and OpenAI's 64."""

RENDERED_PARAMETERS = rendered_parameters(
    _SAMPLING, "frequency_penalty", "logprobs", "presence_penalty", "top_logprobs"
)
"""What `render_request` has words for."""


def _render_generation_config(request: ChatCompletionRequest) -> dict[str, Any]:
    sampling = request.sampling
    config = sampling_members(sampling, _SAMPLING, largest_seed=LARGEST_SEED)
    # There are models that refuse any, be it none.
    if sampling.presence_penalty:
        config["presencePenalty"] = sampling.presence_penalty
    if sampling.frequency_penalty:
        config["frequencyPenalty"] = sampling.frequency_penalty
    if request.logprobs is not None:
        config["responseLogprobs"] = True
        if request.logprobs:
            config["logprobs"] = request.logprobs
    wanted = request.response_format
    if wanted is not None and wanted.type != "text":
        config["responseMimeType"] = "application/json"
        schema = wanted.told_schema
        if schema is not None:
            config.update(_render_schema(schema, "responseSchema", "responseJsonSchema"))
    if request.reasoning_effort is not None:
        config["thinkingConfig"] = _render_thinking(request, request.reasoning_effort)
    return config


def _thinking_words(request: ChatCompletionRequest) -> tuple[str, Mapping[str, Any]]:
    """The member that says how hard the model is to think, and its words for OpenAI's."""
    form = request.thinking
    if form is not None and form.how is not None:
        has_budgets = form.how == "budget"
    else:
        has_budgets = any(name in request.model for name in MODELS_WITH_BUDGETS)
    if has_budgets:
        return "thinkingBudget", THINKING_BUDGETS
    return "thinkingLevel", THINKING_LEVELS


def _render_thinking(request: ChatCompletionRequest, effort: str) -> dict[str, Any]:
    member, efforts = _thinking_words(request)
    if effort not in efforts:
        raise unknown_effort(effort, request.model, efforts)
    config: dict[str, Any] = {member: efforts[effort]}
    if effort != "none":
        config["includeThoughts"] = True
    return config


def unknown_effort(effort: str, model: str, known: Iterable[str]) -> APIError:
    """400: `effort` is none of OpenAI's words that the model has one for."""
    return invalid_parameter(
        "reasoning_effort",
        f"Invalid value: {effort!r}. Supported values for '{model}' are:"
        f" {', '.join(map(repr, known))}.",
    )


def always_thinks(request: ChatCompletionRequest) -> Mapping[str, str]:
    """OpenAI's name of the wish not to think, where the model has no word for it: why."""
    if request.reasoning_effort != "none" or "none" in _thinking_words(request)[1]:
        return {}
    return ALWAYS_THINKS


ALWAYS_THINKS: Mapping[str, str] = {"reasoning_effort": "the model always thinks"}
