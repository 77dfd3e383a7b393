"""Requests for an interaction: vocabulary -> wire.

The whole conversation goes along every time, and nothing is kept at Google's: a vendor's store
would hold what the client has not asked it to, for 55 days as of 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.alternating import empty_message, no_turn, with_a_turn
from llama_compat.dialects.gemini import FAMILY
from llama_compat.dialects.gemini.requests import (
    ALWAYS_THINKS,
    LARGEST_SEED,
    TIERS,
    taken_by,
    told_parts,
    unknown_effort,
)
from llama_compat.dialects.gemini_interactions.generation import LEVELS
from llama_compat.dialects.gemini_interactions.hosted import SEARCH
from llama_compat.dialects.gemini_interactions.input import InteractionStep
from llama_compat.dialects.sampling import rendered_parameters, sampling_members
from llama_compat.media.documents import encoded_in, seen_alone
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
    ReasoningContent,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UnparseableToolCall,
    content_text,
    media_in,
)


def render_request(request: ChatCompletionRequest) -> dict[str, Any]:
    """The body of `POST /interactions`.

    Images and documents have to be there as `data:` URLs, as for generateContent.

    Raises:
        APIError: 400 naming what the API has no form for.
    """
    messages = with_a_turn(request.messages)
    body: dict[str, Any] = {
        "model": request.model.removeprefix("models/"),
        "input": _render_steps(messages),
        "store": False,
    }
    if request.stream:
        body["stream"] = True
    system = _render_system(messages)
    if system:
        body["system_instruction"] = system
    if request.tools:
        body["tools"] = [_render_tool(tool) for tool in request.tools]
    if request.vendor_search is not None:
        body.setdefault("tools", []).append(dict(SEARCH))
    config = _render_config(request)
    if config:
        body["generation_config"] = config
    wanted = request.response_format
    if wanted is not None and wanted.type != "text":
        shape: dict[str, Any] = {"type": "text", "mime_type": "application/json"}
        if wanted.told_schema is not None:
            shape["schema"] = wanted.told_schema
        body["response_format"] = shape
    if request.service_tier in TIERS:
        body["service_tier"] = request.service_tier
    return body


# Steps --------------------------------------------------------------------------------------------


def _render_system(messages: Sequence[Message]) -> str:
    texts = []
    for index, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            path = f"messages[{index}].content"
            content = seen_alone(message.content, path, "a system instruction of Gemini's API")
            if images_in(content):
                raise misplaced_image(path, "Gemini's API")
            texts.append(content_text(content))
    return "\n\n".join(text for text in texts if text)


def _render_steps(messages: Sequence[Message]) -> list[InteractionStep]:
    steps: list[InteractionStep] = []
    tool_names: dict[str, str] = {}
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if isinstance(message, SystemMessage):
            continue
        if isinstance(message, ToolResponseMessage):
            steps.append(_render_result(message, tool_names, path))
        elif isinstance(message, CompletionMessage):
            tool_names.update((call.call_id, call.tool_name) for call in message.tool_calls)
            steps += _render_said(message, f"{path}.content")
        else:
            content = _render_content(message.content, f"{path}.content")
            if not content:
                raise empty_message(f"{path}.content", "Google")
            steps.append({"type": "user_input", "content": content})
    if not steps:
        raise no_turn("Google")
    return steps


def _render_said(message: CompletionMessage, path: str) -> list[InteractionStep]:
    steps: list[InteractionStep] = []
    seals: set[str | None] = {None}
    for said in message.parts:
        if isinstance(said, ReasoningContent):
            if said.signature is not None and said.sealed_by == FAMILY:
                seals.add(said.signature)
                steps.append(_render_thought(said.signature, said.text))
        elif isinstance(said, TextContent | ImageContent):
            content = _render_content((said,), path)
            if content and steps and steps[-1]["type"] == "model_output":
                steps[-1]["content"] += content
            elif content:
                steps.append({"type": "model_output", "content": content})
        elif isinstance(said, ToolCall | UnparseableToolCall):
            if isinstance(said, ToolCall) and said.thought_signature not in seals:
                # Another API has it on the call; here it stands before that.
                steps.append(_render_thought(str(said.thought_signature), ""))
            steps.append(_render_call(said))
    if not steps and message.refusal:
        content = [{"type": "text", "text": message.refusal}]
        steps.append({"type": "model_output", "content": content})
    return steps


def _render_thought(signature: str, text: str) -> InteractionStep:
    thought: InteractionStep = {"type": "thought", "signature": signature}
    if text:
        thought["summary"] = [{"type": "text", "text": text}]
    return thought


def _render_call(call: AnyToolCall) -> InteractionStep:
    return {
        "type": "function_call",
        "id": call.call_id,
        "name": call.tool_name,
        "arguments": arguments_object(call),
    }


def _render_result(
    message: ToolResponseMessage, tool_names: Mapping[str, str], path: str
) -> InteractionStep:
    name = tool_answered(message, tool_names, path)
    result: Any = content_text(message.content)
    if media_in(message.content):
        result = _render_content(message.content, f"{path}.content")
    step = {"type": "function_result", "call_id": message.call_id, "name": name, "result": result}
    return {**step, "is_error": True} if message.is_error else step


def _render_content(content: Content, path: str) -> list[dict[str, Any]]:
    return [_render_part(part, path) for part in told_parts(content)]


def _render_part(part: ContentPart, path: str) -> dict[str, Any]:
    if isinstance(part, TextContent):
        return {"type": "text", "text": part.text}
    if isinstance(part, AudioContent):
        return {"type": "audio", "data": part.base64, "mime_type": part.media_type}
    if isinstance(part, DocumentContent):
        file = encoded_in(part, path, "Gemini's API")
        return {"type": "document", "data": file.base64, "mime_type": file.media_type}
    encoded = parse_data_url(part.url, path)
    return {"type": "image", "data": encoded.base64, "mime_type": encoded.media_type}


# Tools and generation -----------------------------------------------------------------------------


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"type": "function", "name": tool.tool_name}
    if tool.description is not None:
        function["description"] = tool.description
    taken = taken_by(tool)
    return function if taken is None else {**function, "parameters": taken}


_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "stop": "stop_sequences",
    "seed": "seed",
}
"""Its words for OpenAI's, but for those that are said elsewhere."""

RENDERED_PARAMETERS = rendered_parameters(_SAMPLING)
"""What `render_request` has words for."""

_LEVELS = {**{level: level for level in LEVELS}, "max": LEVELS[-1]}
"""What OpenAI's words for how hard to think come to: there is no level for not at all."""


def always_thinks(request: ChatCompletionRequest) -> Mapping[str, str]:
    """OpenAI's name of the wish not to think, for which there is no level: why."""
    return ALWAYS_THINKS if request.reasoning_effort == "none" else {}


_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def _render_config(request: ChatCompletionRequest) -> dict[str, Any]:
    config = sampling_members(request.sampling, _SAMPLING, largest_seed=LARGEST_SEED)
    choice = request.tool_choice
    if request.tools and choice is not None:
        config["tool_choice"] = (
            _TOOL_CHOICES[choice.mode]
            if choice.tool_name is None
            else {"allowed_tools": {"mode": "any", "tools": [choice.tool_name]}}
        )
    effort = request.reasoning_effort
    if effort is not None:
        if effort not in _LEVELS:
            raise unknown_effort(effort, request.model, _LEVELS)
        config |= {"thinking_level": _LEVELS[effort], "thinking_summaries": "auto"}
    return config
