"""Names of tools as an API takes them, and the way back.

Anthropic's tools have names of 128 characters, OpenAI's, Google's and Amazon's of 64; Google takes
dots and colons, which the others refuse; Ollama takes anything. A client has the names that its own
API takes, which Claude Code makes of those of plugins, servers and their tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import aclosing
from hashlib import blake2b

from msgspec import Struct, structs

from llama_compat.fan_out import Events
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    MessagePart,
    StreamEvent,
    StreamProgress,
    ToolCall,
    ToolCallDelta,
    UnparseableToolCall,
)

_DIGEST = 8


class NameForm(Struct, frozen=True):
    """The names that an API takes.

    Attributes:
        characters: of which they are, as in the brackets of a regular expression.
        length: of how many at most, more than 9.
        begins: of which the first is.
    """

    characters: str = "A-Za-z0-9_-"
    length: int = 64
    begins: str = "A-Za-z0-9_-"

    def takes(self, name: str) -> bool:
        """Whether the API takes `name` as it is."""
        if len(name) > self.length:
            return False
        return re.fullmatch(f"[{self.begins}][{self.characters}]*", name) is not None

    def fitted(self, name: str) -> str:
        """`name` where the API takes it, else one that can be read as it, with a digest: the same
        for the same, as vendors cache it, and for no others."""
        if self.takes(name):
            return name
        plain = re.sub(f"[^{self.characters}]", "_", name)
        if not re.match(f"[{self.begins}]", plain):
            plain = f"_{plain}"
        digest = blake2b(name.encode(errors="surrogatepass"), digest_size=_DIGEST // 2).hexdigest()
        return f"{plain[: self.length - _DIGEST - 1]}_{digest}"


OPENAI_NAMES = NameForm()
"""`Invalid 'tools[3].function.name': string too long. Expected a string with maximum length 64`
(danny-avila/LibreChat#7435), and `^[a-zA-Z0-9_-]+$`. Amazon's are the same: `[a-zA-Z0-9_-]+`, 64 at
most (botocore 1.44, bedrock-runtime, ToolName; 2026-11-28)."""

ANTHROPIC_NAMES = NameForm(length=128)
"""`tools.18.custom.name: String should have at most 128 characters` (anthropics/claude-code#96152,
2026-11-28)."""

GEMINI_NAMES = NameForm(characters="A-Za-z0-9_.:-", begins="A-Za-z_")
"""`Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores (_),
dots (.), colons (:), or dashes (-), with a maximum length of 64` (kaitranntt/ccs#219, 2026-11-28).
"""


def with_fitting_names(request: ChatCompletionRequest, form: NameForm) -> ChatCompletionRequest:
    """`request` with names of tools of which each fits; the very same, if they do."""
    if all(map(form.takes, _names(request))):
        return request
    choice = request.tool_choice
    if choice is not None and choice.tool_name is not None:
        choice = structs.replace(choice, tool_name=form.fitted(choice.tool_name))
    return structs.replace(
        request,
        tools=tuple(
            structs.replace(tool, tool_name=form.fitted(tool.tool_name)) for tool in request.tools
        ),
        tool_choice=choice,
        messages=tuple(_renamed(message, form) for message in request.messages),
    )


async def with_own_names(events: Events, request: ChatCompletionRequest, form: NameForm) -> Events:
    """`events` with the names that `request` has, said by a model that was asked with those of
    `with_fitting_names(request, form)`."""
    own = {form.fitted(name): name for name in _names(request)}
    async with aclosing(events) as stream:
        async for event in stream:
            yield _with_own_name(event, own)


def _with_own_name(event: StreamEvent, own: dict[str, str]) -> StreamEvent:
    delta = event.delta if isinstance(event, StreamProgress) else None
    if not isinstance(delta, ToolCallDelta) or not isinstance(event, StreamProgress):
        return event
    call = delta.tool_call
    if call is not None:
        call = structs.replace(call, tool_name=own.get(call.tool_name, call.tool_name))
    name = own.get(delta.tool_name, delta.tool_name)
    return structs.replace(event, delta=structs.replace(delta, tool_name=name, tool_call=call))


def _names(request: ChatCompletionRequest) -> Iterator[str]:
    for tool in request.tools:
        yield tool.tool_name
    for message in request.messages:
        if isinstance(message, CompletionMessage):
            yield from (call.tool_name for call in message.tool_calls)


def _renamed(message: Message, form: NameForm) -> Message:
    if not isinstance(message, CompletionMessage) or not message.tool_calls:
        return message
    return structs.replace(
        message, parts=tuple(_renamed_part(part, form) for part in message.parts)
    )


def _renamed_part(part: MessagePart, form: NameForm) -> MessagePart:
    if not isinstance(part, ToolCall | UnparseableToolCall):
        return part
    return structs.replace(part, tool_name=form.fitted(part.tool_name))
