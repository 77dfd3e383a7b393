"""Requests made into prompt tokens: chat templates, text, token ids."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from msgspec import structs

from llama_compat.dialects.openai.chat import render_tool
from llama_compat.errors import (
    UnsupportedHere,
    invalid_parameter,
    shutting_down,
    unsupported_content,
)
from llama_compat.tools.call_ids import alphanumeric_id, with_call_ids
from llama_compat.tools.formats import ToolFormat, plain_messages
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Content,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
    content_text,
    media_in,
)
from providers.local.limits import check_length, check_tokens
from providers.local.media.files import kind_of, media_files, media_of
from providers.local.media.limits import MediaLimits
from providers.local.media.medium import Kind, MediumFile, SentKind
from providers.local.media.placing import Layout, PlacedMedium, SensedFiles, expanded, placed
from providers.local.prompts.control_tokens import Marker, encode_pieces
from providers.local.prompts.templates.renderer import (
    RESERVED,
    RendererClosed,
    TemplateBrokenOff,
)
from providers.local.prompts.thinking import variables_for
from providers.local.replies.call_rules import CallRules, call_openings

if TYPE_CHECKING:
    from providers.local.engine import LocalModel, Tokenizer


log = logging.getLogger(__name__)

ControlTokens = Literal["none", "completions", "all"]
"""Where a control token that a client's text spells out is that token: nowhere, in the prompts of
completions, which are all that the model gets, or in chats as well."""


class ChatPrompt(NamedTuple):
    """A conversation as the chat template writes it.

    Attributes:
        text: as it was written.
        token_ids: the same as tokens.
        openings: for each tool of which one has to be called: what the call begins with.
        media: where they are among the tokens.
    """

    text: str
    token_ids: tuple[int, ...]
    openings: dict[str, str]
    media: tuple[PlacedMedium, ...] = ()


def chat_prompt(
    model: LocalModel,
    request: ChatCompletionRequest,
    rules: CallRules,
    spoken: ControlTokens = "none",
    limits: MediaLimits | None = None,
) -> ChatPrompt:
    """The conversation of `request` as the model's own chat template writes it.

    A template that knows nothing of tools gets them as text, in the format of the model.

    Args:
        model: whose template it is.
        request: the conversation.
        rules: what it says of tools.
        spoken: which control tokens clients may spell out.
        limits: of its media, which have been fetched.

    Raises:
        APIError: 400; there is no chat template, it can't write these messages, they are too long,
            or a medium in them can't be shown to it. 500; it had to be broken off. 503; the model
            is being stopped.
    """
    if not model.tokenizer.chat_template:
        raise UnsupportedHere(
            400,
            f"The model '{model.name}' has no chat template, so it can't answer chat completions."
            " Use /completions, or put a chat_template.jinja into the model's folder.",
            code="no_chat_template",
        ).about(model.name)
    size = sum(len(content_text(message.content)) for message in request.messages)
    check_length(size, request, model, "messages")
    media = _media(model, request, limits or MediaLimits())
    marker = Marker(frozenset() if spoken == "all" else model.tokenizer.control_tokens)
    request = _marked(request, marker)
    template_tools = None
    if not takes_tools(model.tokenizer):
        messages = _without_tools(model, request)
    else:
        messages = _with_short_ids(request.messages, model.tool_format)
        offered = request.tools if rules.tools else ()
        template_tools = [render_tool(tool) for tool in offered] or None
    own = _own_variables(model, request)
    pieces = marker.pieces(_rendered(model, messages, template_tools, own))
    text = "".join(pieces)
    openings = call_openings(model.tool_format, rules, text) if model.tool_format else {}
    check_length(len(text), request, model, "messages")
    for each in media:
        pieces = expanded(pieces, each)
    # The template writes the beginning-of-text token itself, where the model wants one.
    token_ids = _encode(model, pieces, request, "messages", add_special_tokens=False)
    token_ids = token_ids or _beginning(model, "messages")
    return ChatPrompt(text, token_ids, openings, placed(token_ids, media))


def _rendered(
    model: LocalModel,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None,
    own: Mapping[str, Any],
) -> str:
    try:
        rendered = render_messages(messages, in_parts=wants_parts(model.tokenizer))
        return model.tokenizer.render_chat(rendered, tools, own)
    except TemplateBrokenOff as error:
        said = f"The chat template of the model '{model.name}' had to be broken off: {error}."
        log.warning("%s", said)
        # Nothing has reached the model, and another's template may take what this one can't.
        raise UnsupportedHere(
            500,
            f"{said} Send another conversation. If none goes well the template has to be mended:"
            " choose another model, and tell who runs this server.",
            code="chat_template_failed",
        ).about(model.name) from error
    except RendererClosed as error:
        raise shutting_down() from error
    except Exception as error:  # it says itself what it does not take
        raise UnsupportedHere(
            400,
            f"The chat template of the model '{model.name}' can't render these messages: {error}",
            param="messages",
            code="invalid_value",
        ).about(model.name) from error


def _own_variables(model: LocalModel, request: ChatCompletionRequest) -> dict[str, Any]:
    """What only some templates read: how hard to think, and what the client gives its own.

    Raises:
        APIError: 400; the client gives one that has its value from the request.
    """
    given = request.template_variables or {}
    for name in given:
        if name in RESERVED or name.endswith("_token"):
            raise invalid_parameter(
                f"chat_template_kwargs.{name}",
                f"'{name}' is given to chat templates by the server itself; leave it out.",
            )
    told = variables_for(request.reasoning_effort, model.tokenizer.chat_template or "")
    return {**told, **given}


# Media --------------------------------------------------------------------------------------------

_TAKES: Mapping[SentKind, str] = {"image": "sees", "audio": "hears", "document": "reads it"}
"""What a model does that takes media of a kind."""


def refuse_media(model: LocalModel, messages: Sequence[Message]) -> None:
    """Refuse media for a model that takes none of their kind.

    Raises:
        APIError: 400; there are some.
    """
    for medium, param in media_of(messages):
        kind = kind_of(medium)
        if kind not in model.senses:
            taken = " and ".join(model.inputs) if model.senses else "text alone"
            raise unsupported_content(
                param,
                f"This model takes {taken}; leave the {kind} out or choose a model that"
                f" {_TAKES[kind]}.",
            )


def _media(
    model: LocalModel, request: ChatCompletionRequest, limits: MediaLimits
) -> list[SensedFiles]:
    """Those of a conversation by their kind, and how each comes into its prompt.

    Raises:
        APIError: 400; the model takes none, or not these, or not so many.
    """
    refuse_media(model, request.messages)
    found: dict[Kind, tuple[list[MediumFile], list[Layout]]] = {}
    tokens = 0
    for file in media_files(request.messages, limits):
        layout = model.senses[file.kind].layout(file)
        tokens += layout.tokens
        check_tokens(tokens, request, model, "messages")
        files, layouts = found.setdefault(file.kind, ([], []))
        files.append(file)
        layouts.append(layout)
    return [SensedFiles(model.senses[kind], *each) for kind, each in found.items()]


# Text ---------------------------------------------------------------------------------------------


def text_prompt(
    model: LocalModel, request: CompletionRequest, spoken: ControlTokens
) -> tuple[int, ...]:
    """The tokens of a text, or token ids as they are.

    Args:
        model: whose tokens they are.
        request: of which it is the prompt.
        spoken: which control tokens clients may spell out.

    Raises:
        APIError: 400; a token id is not the model's, the text is too long, or there is nothing to
            continue.
    """
    prompt = request.prompt
    if isinstance(prompt, str):
        check_length(len(prompt), request, model, "prompt")
        marker = Marker(model.tokenizer.control_tokens if spoken == "none" else frozenset())
        pieces = marker.pieces(marker.text(prompt))
        token_ids = _encode(model, pieces, request, "prompt", add_special_tokens=True)
        return token_ids or _beginning(model, "prompt")
    for token_id in prompt:
        if token_id >= model.vocab_size:
            raise invalid_parameter(
                "prompt",
                f"Invalid token id in 'prompt': {token_id}. The model '{model.name}' has the ids 0"
                f" to {model.vocab_size - 1}.",
            ).about(model.name)
    return prompt or _beginning(model, "prompt")


SLICE_CHARACTERS = 1 << 16
"""A longer text is made into tokens so many characters at a time first: if they are too many, that
is seen before there are tokens of all of it."""

SLICE_EXCESS = 64
"""A slice has no more tokens than this over what the same characters have in the whole text."""


def _encode(
    model: LocalModel,
    pieces: Sequence[str],
    request: ChatCompletionRequest | CompletionRequest,
    param: str,
    *,
    add_special_tokens: bool,
) -> tuple[int, ...]:
    encode = partial(model.tokenizer.encode, add_special_tokens=False)
    first = partial(model.tokenizer.encode, add_special_tokens=add_special_tokens)
    text = "".join(pieces)
    if len(text) > SLICE_CHARACTERS:
        least = 0
        for begin in range(0, len(text), SLICE_CHARACTERS):
            slice_tokens = len(encode(text[begin : begin + SLICE_CHARACTERS]))
            least += max(0, slice_tokens - SLICE_EXCESS)
            check_tokens(least, request, model, param)
    return encode_pieces(pieces, first, encode)


def _marked(request: ChatCompletionRequest, marker: Marker) -> ChatCompletionRequest:
    choice = request.tool_choice
    if choice is not None and choice.tool_name is not None:
        choice = structs.replace(choice, tool_name=marker.text(choice.tool_name))
    return structs.replace(
        request,
        messages=tuple(map(marker.message, request.messages)),
        tools=tuple(_marked_tool(tool, marker) for tool in request.tools),
        template_variables=marker.value(request.template_variables),
        tool_choice=choice,
    )


def _marked_tool(tool: ToolDefinition, marker: Marker) -> ToolDefinition:
    return structs.replace(
        tool,
        tool_name=marker.text(tool.tool_name),
        description=marker.value(tool.description),
        parameters=marker.value(tool.parameters),
    )


def _beginning(model: LocalModel, param: str) -> tuple[int, ...]:
    """The prompt that an empty one stands for."""
    token_id = model.tokenizer.first_token
    if token_id is None:
        raise invalid_parameter(
            param,
            f"'{param}' is empty, and the model '{model.name}' has no beginning-of-text token to"
            " start from.",
        ).about(model.name)
    return (token_id,)


# Tools and templates ------------------------------------------------------------------------------


def takes_tools(tokenizer: Tokenizer) -> bool:
    """Whether the chat template can offer tools to the model."""
    return re.search(r"\btools\b", tokenizer.chat_template or "") is not None


def _without_tools(model: LocalModel, request: ChatCompletionRequest) -> Sequence[Message]:
    """The conversation with tools, calls and answers as text."""
    if model.tool_format is not None:
        return plain_messages(
            model.tool_format, request.messages, request.tools, request.tool_choice
        )
    for index, message in enumerate(request.messages):
        if isinstance(message, ToolResponseMessage) or (
            isinstance(message, CompletionMessage) and message.tool_calls
        ):
            raise unsupported_content(
                f"messages[{index}]",
                f"The chat template of the model '{model.name}' can't render tool calls and what"
                " tools answered. Leave them out, or set 'tool_format' for the provider.",
            ).about(model.name)
    return request.messages


def _with_short_ids(
    messages: Sequence[Message], tool_format: ToolFormat | None
) -> Sequence[Message]:
    """The messages with ids of calls that the model's template takes.

    Mistral's templates refuse every id that has not 9 letters and digits.
    """
    if tool_format is None or tool_format.name != "mistral":
        return messages
    return with_call_ids(messages, partial(alphanumeric_id, length=9))


# What chat templates read -------------------------------------------------------------------------


_parts_wanted: WeakKeyDictionary[Tokenizer, bool] = WeakKeyDictionary()

_PROBE = "Is anybody there"


def wants_parts(tokenizer: Tokenizer) -> bool:
    """Whether the chat template reads what a message says as a list of parts, and as nothing else.

    Most take a text, and a list of parts as well if the model takes media. SmolVLM's and some
    others write nothing at all of a text. It is tried, once.

    Raises:
        TemplateBrokenOff, RendererClosed: see `Tokenizer.render_chat`.
    """
    found = _parts_wanted.get(tokenizer)
    if found is None:
        found = not _writes(tokenizer, _PROBE) and _writes(
            tokenizer, [{"type": "text", "text": _PROBE}]
        )
        _parts_wanted[tokenizer] = found
    return found


def _writes(tokenizer: Tokenizer, content: object) -> bool:
    try:
        return _PROBE in tokenizer.render_chat([{"role": "user", "content": content}], None)
    except (RendererClosed, TemplateBrokenOff):
        raise
    except Exception:  # whatever a template has against it
        return False


def render_messages(messages: Sequence[Message], *, in_parts: bool = False) -> list[dict[str, Any]]:
    """The messages as the dictionaries that chat templates expect.

    Args:
        messages: of the conversation.
        in_parts: whether what each says is a list of parts, as it is where there are media.
    """
    tool_names = {
        call.call_id: call.tool_name
        for message in messages
        if isinstance(message, CompletionMessage)
        for call in message.tool_calls
    }
    return [_render_message(message, tool_names, in_parts) for message in messages]


def _render_message(message: Message, tool_names: dict[str, str], in_parts: bool) -> dict[str, Any]:
    content = _render_content(message.content, in_parts)
    rendered: dict[str, Any]
    match message:
        case SystemMessage():
            # Templates know no 'developer', which is OpenAI's newer word for the same.
            return _named({"role": "system", "content": content}, message.name)
        case UserMessage():
            return _named({"role": "user", "content": content}, message.name)
        case ToolResponseMessage():
            content = _render_content(message.told, in_parts)
            rendered = {"role": "tool", "content": content, "tool_call_id": message.call_id}
            return _named(rendered, tool_names.get(message.call_id))
        case CompletionMessage():
            said = message.content or message.refusal or ""
            rendered = {"role": "assistant", "content": _render_content(said, in_parts)}
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


def _render_content(content: Content, in_parts: bool) -> str | list[dict[str, str]]:
    if not in_parts and not media_in(content):
        return content_text(content)
    parts = (TextContent(content),) if isinstance(content, str) else content
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextContent)
        else {"type": kind_of(part)}
        for part in parts
    ]
