"""Messages, and what they are made of: texts, media, thoughts and calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeVar

from msgspec import Struct

from llama_compat.hosted.vocabulary import Citation, HostedCall


class TextContent(Struct, frozen=True, tag="text"):
    """A piece of text; `citations` are the places in it at which a reply names its sources."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImageContent(Struct, frozen=True, tag="image"):
    """An image: an `http(s)://` URL or a `data:` URL that holds it in base64.

    `detail` is OpenAI's hint (`auto`, `low`, `high`), kept for the providers that understand it.
    """

    url: str
    detail: str | None = None


class AudioContent(Struct, frozen=True, tag="audio"):
    """Sound: the bytes of a file in `base64`, and its media type, such as `audio/wav`."""

    media_type: str
    base64: str


class DocumentContent(Struct, frozen=True, tag="document"):
    """A document that is no plain text, a PDF for one: an `http(s)://` URL or a `data:` URL that
    holds it in base64. Plain text is a `TextContent`.

    `name` is that of its file, or its title.
    """

    url: str
    name: str | None = None


Medium = ImageContent | AudioContent | DocumentContent
SeenPart = TextContent | ImageContent
SeenContent = str | tuple[SeenPart, ...]
"""What models say as well, and what those take who hear nothing and read no documents."""

ReadPart = SeenPart | DocumentContent
ReadContent = str | tuple[ReadPart, ...]
"""What those take who hear nothing."""

ContentPart = ReadPart | AudioContent
Content = str | tuple[ContentPart, ...]
AnyContent = TypeVar("AnyContent", Content, SeenContent)


def media_in(content: Content) -> list[Medium]:
    """All of a message that is no text."""
    return (
        [] if isinstance(content, str) else [each for each in content if isinstance(each, Medium)]
    )


def content_text(content: Content) -> str:
    """The text of `content`, its parts joined with nothing between them; all else is left out."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextContent))


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """A call that the model asks for.

    `arguments_json` is the text as the model wrote it; `arguments` is what it parses to.
    `thought_signature` is sealed reasoning that the vendor wants back with the call. `server_tool`
    is the label of an MCP server and its own name for the tool, where the call was of one of its.
    """

    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    arguments_json: str
    thought_signature: str | None = None
    server_tool: tuple[str, str] | None = None


class UnparseableToolCall(Struct, frozen=True, tag="unparseable_tool_call"):
    """A call whose arguments are not a JSON object; the text is kept so that nothing is lost.
    `server_tool` as in `ToolCall`."""

    call_id: str
    tool_name: str
    arguments_json: str
    server_tool: tuple[str, str] | None = None


AnyToolCall = ToolCall | UnparseableToolCall


class SystemMessage(Struct, frozen=True, tag="system"):
    """Instructions; `role` is the word that the caller used for them."""

    content: Content
    role: Literal["system", "developer"] = "system"
    name: str | None = None


class UserMessage(Struct, frozen=True, tag="user"):
    """What the user says."""

    content: Content
    name: str | None = None


class ReasoningContent(Struct, frozen=True, tag="reasoning"):
    """What the model thought.

    `signature` is the seal that its maker wants back with the text, byte for byte; `sealed_by` is
    the family of models whose seal it is (`anthropic`, ...), and means nothing to others. The maker
    of a `redacted` part keeps the text to itself: the seal is all there is.
    """

    text: str
    signature: str | None = None
    sealed_by: str = ""
    redacted: bool = False


class RefusalContent(Struct, frozen=True, tag="refusal"):
    """What the model says in place of an answer that it refuses."""

    text: str


MessagePart = (
    TextContent
    | ImageContent
    | ReasoningContent
    | RefusalContent
    | ToolCall
    | UnparseableToolCall
    | HostedCall
)

EMPTY_PARTS: Sequence[MessagePart] = (TextContent(""), ReasoningContent(""))
"""Parts that say nothing, which a whole reply may have and a stream has not."""


class StopReason(StrEnum):
    """Why generation ended.

    `end_of_turn`: the model had said what it wanted, or met a stop string. `end_of_message`: it
    waits for the answer to a tool call. `out_of_tokens`: `max_tokens` or the context ran out.
    `content_filter`: the provider withheld the rest.
    """

    end_of_turn = "end_of_turn"
    end_of_message = "end_of_message"
    out_of_tokens = "out_of_tokens"
    content_filter = "content_filter"

    def with_calls(self, called: bool) -> StopReason:
        """The same of a reply that has `called` tools, or has not: where one has, and ended its
        turn, it waits for their answers, whatever the word of who made it is."""
        return StopReason.end_of_message if called and self is StopReason.end_of_turn else self


class CompletionMessage(Struct, frozen=True, tag="assistant"):
    """What the model says, its `parts` in the order in which it said them, and why it stopped.

    `stop_string` is the one of the request's stop strings that ended it, where that is known.
    """

    parts: tuple[MessagePart, ...] = ()
    stop_reason: StopReason | None = None
    stop_string: str | None = None
    name: str | None = None

    @classmethod
    def of(
        cls,
        content: SeenContent = "",
        tool_calls: Sequence[AnyToolCall] = (),
        *,
        reasoning: str | None = None,
        refusal: str | None = None,
        stop_reason: StopReason | None = None,
        stop_string: str | None = None,
        name: str | None = None,
    ) -> CompletionMessage:
        """A message from a source that tells its parts apart but not their order."""
        parts: list[MessagePart] = [] if reasoning is None else [ReasoningContent(reasoning)]
        parts += (
            ([TextContent(content)] if content else []) if isinstance(content, str) else content
        )
        parts += [] if refusal is None else [RefusalContent(refusal)]
        return cls((*parts, *tool_calls), stop_reason, stop_string, name)

    @property
    def content(self) -> SeenContent:
        """The text, joined, or the parts of it if there are images."""
        said = tuple(each for each in self.parts if isinstance(each, SeenPart))
        return said if media_in(said) else content_text(said)

    @property
    def tool_calls(self) -> tuple[AnyToolCall, ...]:
        """The calls."""
        return tuple(
            each for each in self.parts if isinstance(each, ToolCall | UnparseableToolCall)
        )

    @property
    def reasoning(self) -> str | None:
        """All reasoning, joined; None where there is none that can be read."""
        thoughts = [part for part in self.parts if isinstance(part, ReasoningContent)]
        return "".join(part.text for part in thoughts if not part.redacted) or None

    @property
    def unsealed_reasoning(self) -> str | None:
        """The reasoning that can be given to any model, joined; None where there is none.

        What a family of models has sealed is for models of that family alone.
        """
        thoughts = [part for part in self.parts if isinstance(part, ReasoningContent)]
        return "".join(part.text for part in thoughts if not part.sealed_by) or None

    @property
    def refusal(self) -> str | None:
        """The refusal, if it is one."""
        texts = [part.text for part in self.parts if isinstance(part, RefusalContent)]
        return "".join(texts) if texts else None


class ToolResponseMessage(Struct, frozen=True, tag="tool"):
    """What a tool answered to the call `call_id`, or that it failed (`is_error`)."""

    call_id: str
    content: Content
    is_error: bool = False

    @property
    def told(self) -> Content:
        """The content for a model that can be told in words alone that the call failed."""
        if not self.is_error:
            return self.content
        if isinstance(self.content, str):
            return f"Error: {self.content}"
        return (TextContent("Error: "), *self.content)


Message = SystemMessage | UserMessage | CompletionMessage | ToolResponseMessage
