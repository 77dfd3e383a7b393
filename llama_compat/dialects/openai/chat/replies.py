"""Whole chat replies: vocabulary -> wire (`render_reply`), wire -> vocabulary (`parse_reply`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.openai.chat.content import render_image
from llama_compat.dialects.openai.chat.hosted import parse_citations, render_citations
from llama_compat.dialects.openai.chat.requests import thought_signature
from llama_compat.dialects.openai.chat.tools.asked import FUNCTIONS, CallForm
from llama_compat.dialects.openai.chunks import token_ids
from llama_compat.dialects.openai.finish_reasons import matched_stop_string, stop_reason
from llama_compat.dialects.openai.logprobs import parse_logprobs, render_chat_logprobs
from llama_compat.dialects.openai.shapes import check_reply
from llama_compat.dialects.openai.usage import (
    parse_service_tier,
    parse_usage,
    render_usage,
    service_tier,
)
from llama_compat.media.images import images_in
from llama_compat.text.surrogates import joined
from llama_compat.tools.calls import arguments_text, new_call_id, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    ImageContent,
    StopReason,
    TextContent,
    ToolCall,
    Usage,
    content_text,
)
from llama_compat.wire.malformed import malformed_as

# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_reply(
    responses: Sequence[ChatCompletionResponse],
    usage: Usage,
    *,
    reply_id: str,
    model: str,
    created: int,
    form: CallForm = FUNCTIONS,
) -> dict[str, Any]:
    """A `chat.completion` object with one choice a response, whose calls are in this form."""
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_render_choice(index, each, form) for index, each in enumerate(responses)],
        "usage": render_usage(usage),
        **service_tier(responses[0].service_tier),
        **token_ids(None, prompt=responses[0].prompt_token_ids),
    }


def _render_choice(index: int, response: ChatCompletionResponse, form: CallForm) -> dict[str, Any]:
    message = response.completion_message
    calls = message.tool_calls
    text, images = content_text(message.content), images_in(message.content)
    without_content = not text and (calls or images or message.refusal is not None)
    rendered: dict[str, Any] = {
        "role": "assistant",
        "content": None if without_content else text,
        "refusal": message.refusal,
    }
    if message.reasoning is not None:
        rendered["reasoning_content"] = message.reasoning
    if cited := list(render_citations(message.parts)):
        rendered["annotations"] = cited
    if images:
        # OpenAI has no place for them; this is OpenRouter's.
        rendered["images"] = [render_image(image) for image in images]
    rendered |= form.members(calls)
    reason = message.stop_reason or StopReason.end_of_turn
    return {
        "index": index,
        "message": rendered,
        "logprobs": render_chat_logprobs(response.logprobs),
        "finish_reason": form.finish_reason(reason, called=bool(calls)),
        **token_ids(response.token_ids),
    }


# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any]) -> list[ChatCompletionResponse]:
    """The choices of a vendor's `chat.completion` object, each with the reply's usage.

    Raises:
        ValueError: it is not such an object; the message says where.
    """
    with malformed_as("the reply is not a chat completion"):
        check_reply(body)
        usage = parse_usage(body.get("usage"))
        choices = body.get("choices")
        if not choices:
            raise ValueError("the reply has no choices")
        tier = parse_service_tier(body)
        return [_parse_choice(choice, usage, tier) for choice in choices]


def _parse_choice(
    choice: Mapping[str, Any], usage: Usage, tier: str | None
) -> ChatCompletionResponse:
    message = choice.get("message")
    if message is None:
        raise ValueError("the reply has a choice without a message")
    text, reasoning = map(joined, parse_text(message))
    calls = tuple(_parse_call(call) for call in tool_call_fragments(message))
    images = parse_images(message)
    said = TextContent(text, tuple(parse_citations(message, text)))
    return ChatCompletionResponse(
        completion_message=CompletionMessage.of(
            content=(*([said] if text else []), *images),
            tool_calls=calls,
            reasoning=reasoning or None,
            refusal=joined(message.get("refusal") or "") or None,
            stop_reason=parse_stop_reason(choice.get("finish_reason"), called_tools=bool(calls)),
            stop_string=matched_stop_string(choice),
        ),
        logprobs=parse_logprobs(choice.get("logprobs")),
        usage=usage,
        service_tier=tier,
    )


def _parse_call(call: Mapping[str, Any]) -> AnyToolCall:
    function = call.get("function") or {}
    parsed = parse_tool_call(
        call_id_of(call) or new_call_id(),
        function.get("name") or "",
        arguments_text(function.get("arguments")),
    )
    signature = thought_signature(call)
    if signature is not None and isinstance(parsed, ToolCall):
        return structs.replace(parsed, thought_signature=signature)
    return parsed


def call_id_of(call: Mapping[str, Any]) -> str | None:
    """A call's id, which some vendors number."""
    return None if call.get("id") is None else str(call["id"])


def parse_stop_reason(reason: Any, *, called_tools: bool) -> StopReason:
    """Why a choice ended that called tools, or did not."""
    return stop_reason(reason).with_calls(called_tools)


def parse_text(message: Mapping[str, Any]) -> tuple[str, str]:
    """The text and the reasoning of a message or of a stream's delta.

    Reasoning comes as `reasoning_content` (DeepSeek, vLLM), as `reasoning` (OpenRouter, Groq), or
    as a content part of the type `thinking` (Mistral).
    """
    reasoning = message.get("reasoning_content")
    if reasoning is None:
        reasoning = message.get("reasoning")
    content = message.get("content")
    if isinstance(content, list):
        thought = "".join(_thinking(part) for part in content)
        return "".join(part.get("text") or "" for part in content), (reasoning or "") + thought
    return content or "", reasoning if isinstance(reasoning, str) else ""


def parse_images(message: Mapping[str, Any]) -> Sequence[ImageContent]:
    """What the model drew, in a message or in a stream's delta: OpenRouter's `images`."""
    return [ImageContent(image["image_url"]["url"]) for image in message.get("images") or ()]


def _thinking(part: Mapping[str, Any]) -> str:
    thinking = part.get("thinking") or ""
    if isinstance(thinking, str):
        return thinking
    return "".join(inner.get("text") or "" for inner in thinking)


def tool_call_fragments(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The `tool_calls` of a message or delta; the older `function_call` as one of them."""
    calls: Sequence[Mapping[str, Any]] | None = message.get("tool_calls")
    if not calls and message.get("function_call"):
        return [{"index": 0, "function": message["function_call"]}]
    return calls or ()
