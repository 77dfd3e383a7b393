"""Requests made into prompt tokens: chat templates, text, token ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from llama_compat.dialects.openai.chat import render_tool
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.tools.formats import ToolFormat, plain_messages
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    Content,
    ImageContent,
    Message,
    SystemMessage,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
    content_text,
)
from providers.local.call_rules import CallRules, call_openings

if TYPE_CHECKING:
    from providers.local.engine import LocalModel, Tokenizer


class ChatPrompt(NamedTuple):
    """A conversation as the chat template writes it.

    Attributes:
        text: as it was written.
        token_ids: the same as tokens.
        openings: for each tool of which one has to be called: what the call begins with.
    """

    text: str
    token_ids: tuple[int, ...]
    openings: dict[str, str]


def chat_prompt(model: LocalModel, request: ChatCompletionRequest, rules: CallRules) -> ChatPrompt:
    """The conversation of `request` as the model's own chat template writes it.

    A template that knows nothing of tools gets them as text, in the format of the model.

    Raises:
        APIError: 400; there is no chat template, or it can't write these messages.
    """
    if not model.tokenizer.chat_template:
        raise APIError(
            400,
            f"The model '{model.name}' has no chat template, so it can't answer chat completions."
            " Use /completions, or put a chat_template.jinja into the model's folder.",
            code="no_chat_template",
        )
    template_tools = None
    if not takes_tools(model.tokenizer):
        messages = _without_tools(model, request, rules)
    else:
        messages = _with_short_ids(request.messages, model.tool_format)
        template_tools = [render_tool(tool) for tool in rules.tools] or None
    rendered = render_messages(messages)
    try:
        text = model.tokenizer.render_chat(rendered, template_tools)
    except Exception as error:  # a template is a program, and may fail in any way
        raise invalid_parameter(
            "messages",
            f"The chat template of the model '{model.name}' can't render these messages: {error}",
        ) from error
    openings = call_openings(model.tool_format, rules, text) if model.tool_format else {}
    # The template writes the beginning-of-text token itself, where the model wants one.
    token_ids = _encode(model, text, add_special_tokens=False)
    return ChatPrompt(text, token_ids or _beginning(model, "messages"), openings)


def text_prompt(model: LocalModel, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
    """The tokens of a text, or token ids as they are.

    Raises:
        APIError: 400; a token id is not the model's, or there is nothing to continue.
    """
    if isinstance(prompt, str):
        return _encode(model, prompt, add_special_tokens=True) or _beginning(model, "prompt")
    for token_id in prompt:
        if token_id >= model.vocab_size:
            raise invalid_parameter(
                "prompt",
                f"Invalid token id in 'prompt': {token_id}. The model '{model.name}' has the ids 0"
                f" to {model.vocab_size - 1}.",
            )
    return prompt or _beginning(model, "prompt")


def _encode(model: LocalModel, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
    return model.tokenizer.encode(text, add_special_tokens=add_special_tokens)


def _beginning(model: LocalModel, param: str) -> tuple[int, ...]:
    """The prompt that an empty one stands for."""
    token_id = model.tokenizer.first_token
    if token_id is None:
        raise invalid_parameter(
            param,
            f"'{param}' is empty, and the model '{model.name}' has no beginning-of-text token to"
            " start from.",
        )
    return (token_id,)


# Tools and templates ------------------------------------------------------------------------------


def takes_tools(tokenizer: Tokenizer) -> bool:
    """Whether the chat template can offer tools to the model."""
    return re.search(r"\btools\b", tokenizer.chat_template or "") is not None


def _without_tools(
    model: LocalModel, request: ChatCompletionRequest, rules: CallRules
) -> Sequence[Message]:
    """The conversation with tools, calls and answers as text."""
    if model.tool_format is not None:
        return plain_messages(model.tool_format, request.messages, rules.tools, request.tool_choice)
    for index, message in enumerate(request.messages):
        if isinstance(message, ToolResponseMessage) or (
            isinstance(message, CompletionMessage) and message.tool_calls
        ):
            raise invalid_parameter(
                f"messages[{index}]",
                f"The chat template of the model '{model.name}' can't render tool calls and what"
                " tools answered. Leave them out, or set 'tool_format' for the provider.",
                "unsupported_content",
            )
    return request.messages


def _with_short_ids(
    messages: Sequence[Message], tool_format: ToolFormat | None
) -> Sequence[Message]:
    """The messages with ids of calls that the model's template takes.

    Mistral's templates refuse every id that has not 9 letters and digits.
    """
    if tool_format is None or tool_format.name != "mistral":
        return messages
    return [_with_short_id(message) for message in messages]


def _with_short_id(message: Message) -> Message:
    match message:
        case CompletionMessage(tool_calls=calls):
            short = {
                id(call): structs.replace(call, call_id=_short_id(call.call_id)) for call in calls
            }
            parts = tuple(short.get(id(part), part) for part in message.parts)
            return structs.replace(message, parts=parts)
        case ToolResponseMessage(call_id=call_id):
            return structs.replace(message, call_id=_short_id(call_id))
    return message


def _short_id(call_id: str) -> str:
    if re.fullmatch("[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


# What chat templates read -------------------------------------------------------------------------


def render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as the dictionaries that chat templates expect.

    Raises:
        APIError: 400 for an image.
    """
    tool_names = {
        call.call_id: call.tool_name
        for message in messages
        if isinstance(message, CompletionMessage)
        for call in message.tool_calls
    }
    return [
        _render_message(message, f"messages[{index}]", tool_names)
        for index, message in enumerate(messages)
    ]


def _render_message(message: Message, path: str, tool_names: dict[str, str]) -> dict[str, Any]:
    text = _text_only(message.content, path)
    rendered: dict[str, Any]
    match message:
        case SystemMessage():
            # Templates know no 'developer', which is OpenAI's newer word for the same.
            return _named({"role": "system", "content": text}, message.name)
        case UserMessage():
            return _named({"role": "user", "content": text}, message.name)
        case ToolResponseMessage():
            text = _text_only(message.told, path)
            rendered = {"role": "tool", "content": text, "tool_call_id": message.call_id}
            return _named(rendered, tool_names.get(message.call_id))
        case CompletionMessage():
            rendered = {"role": "assistant", "content": text or message.refusal or ""}
            if message.unsealed_reasoning is not None:
                rendered["reasoning_content"] = message.unsealed_reasoning
            if message.tool_calls:
                rendered["tool_calls"] = [_render_call(call) for call in message.tool_calls]
            return _named(rendered, message.name)


def _render_call(call: AnyToolCall) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call, ToolCall) else call.arguments_json
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.tool_name, "arguments": arguments},
    }


def _named(rendered: dict[str, Any], name: str | None) -> dict[str, Any]:
    return rendered if name is None else {**rendered, "name": name}


def _text_only(content: Content, path: str) -> str:
    if not isinstance(content, str):
        for index, part in enumerate(content):
            if isinstance(part, ImageContent):
                raise invalid_parameter(
                    f"{path}.content[{index}]",
                    "This model takes text alone; leave the image out or choose a model that sees.",
                    "unsupported_content",
                )
    return content_text(content)
