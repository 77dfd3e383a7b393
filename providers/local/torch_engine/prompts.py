"""Requests made into prompt tokens: chat templates, text, token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import (
    AnyToolCall,
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

if TYPE_CHECKING:
    from providers.local.torch_engine.loader import LoadedModel


def chat_prompt(loaded: LoadedModel, messages: Sequence[Message]) -> tuple[int, ...]:
    """The tokens of a conversation as the model's own chat template writes it.

    Raises:
        APIError: 400; there is no chat template, or it can't write these messages.
    """
    if not loaded.tokenizer.chat_template:
        raise APIError(
            400,
            f"The model '{loaded.name}' has no chat template, so it can't answer chat completions."
            " Use /completions, or put a chat_template.jinja into the model's folder.",
            code="no_chat_template",
        )
    rendered = render_messages(messages)
    try:
        text = loaded.tokenizer.apply_chat_template(
            rendered, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # a template is a program, and may fail in any way
        raise invalid_parameter(
            "messages",
            f"The chat template of the model '{loaded.name}' can't render these messages: {error}",
        ) from error
    # The template writes the beginning-of-text token itself, where the model wants one.
    return _encode(loaded, text, add_special_tokens=False) or _beginning(loaded, "messages")


def text_prompt(loaded: LoadedModel, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
    """The tokens of a text, or token ids as they are.

    Raises:
        APIError: 400; a token id is not the model's, or there is nothing to continue.
    """
    if isinstance(prompt, str):
        return _encode(loaded, prompt, add_special_tokens=True) or _beginning(loaded, "prompt")
    for token_id in prompt:
        if token_id >= loaded.vocab_size:
            raise invalid_parameter(
                "prompt",
                f"Invalid token id in 'prompt': {token_id}. The model '{loaded.name}' has the ids 0"
                f" to {loaded.vocab_size - 1}.",
            )
    return prompt or _beginning(loaded, "prompt")


def _encode(loaded: LoadedModel, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
    backend = loaded.tokenizer.backend_tokenizer
    return tuple(backend.encode(text, add_special_tokens=add_special_tokens).ids)


def _beginning(loaded: LoadedModel, param: str) -> tuple[int, ...]:
    """The prompt that an empty one stands for."""
    token_id = loaded.tokenizer.bos_token_id
    if token_id is None:
        raise invalid_parameter(
            param,
            f"'{param}' is empty, and the model '{loaded.name}' has no beginning-of-text token to"
            " start from.",
        )
    return (token_id,)


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
            rendered = {"role": "tool", "content": text, "tool_call_id": message.call_id}
            return _named(rendered, tool_names.get(message.call_id))
        case CompletionMessage():
            rendered = {"role": "assistant", "content": text or message.refusal or ""}
            if message.reasoning is not None:
                rendered["reasoning_content"] = message.reasoning
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
