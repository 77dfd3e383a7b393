"""The events of a stream: one StreamStart, any number of StreamProgress, one StreamComplete."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from llama_compat.hosted.vocabulary import CitationDelta, HostedCallDelta
from llama_compat.types.messages import AnyToolCall, ImageContent, StopReason
from llama_compat.types.replies import TokenLogProbs, Usage


class TextDelta(Struct, frozen=True, tag="text"):
    """More of the text."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More of the model's reasoning; its seal comes with the part's last delta.

    `signature`, `sealed_by` and `redacted` as in `ReasoningContent`.
    """

    text: str
    signature: str | None = None
    sealed_by: str = ""
    redacted: bool = False


class RefusalDelta(Struct, frozen=True, tag="refusal"):
    """More of what the model says in place of an answer that it refuses."""

    text: str


class ImageDelta(Struct, frozen=True, tag="image"):
    """An image, which comes whole."""

    image: ImageContent


class ToolCallParseStatus(StrEnum):
    """Where a streamed tool call stands."""

    started = "started"
    in_progress = "in_progress"
    succeeded = "succeeded"
    failed = "failed"


class ToolCallDelta(Struct, frozen=True, tag="tool_call"):
    """News of the tool call `index`, counted from 0 in the order in which calls began.

    `started` carries `call_id` and `tool_name`, `in_progress` more of the arguments' text in
    `arguments`, `succeeded` and `failed` the whole `tool_call` (an `UnparseableToolCall` where it
    failed).
    """

    index: int
    parse_status: ToolCallParseStatus
    call_id: str = ""
    tool_name: str = ""
    arguments: str = ""
    tool_call: AnyToolCall | None = None


Delta = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ImageDelta
    | ToolCallDelta
    | HostedCallDelta
    | CitationDelta
)


class StreamStart(Struct, frozen=True, tag="start"):
    """The prompt was accepted and counted (0 where the provider counts only at the end).

    `token_ids` are the prompt's, where they were asked for. `dropped` names what of the request the
    model was not given, and `adapted` what it was told in another way, as
    `llama_compat.exchange.Reply` does.
    """

    prompt_tokens: int = 0
    token_ids: tuple[int, ...] | None = None
    dropped: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()


EARLIER_THOUGHTS = "messages.thinking"
"""What `dropped` calls thoughts of earlier turns that the model was not given back."""


class StreamProgress(Struct, frozen=True, tag="progress"):
    """More of the reply, and the log probabilities and ids of the tokens that it came from.

    `completion_tokens` is how many tokens have been generated so far (0 where the provider counts
    only at the end). `part` is the place of the part that it belongs to, counted from 0 in the
    order in which parts began; `llama_compat.events.ReplyParts` counts.
    """

    delta: Delta
    logprobs: tuple[TokenLogProbs, ...] | None = None
    completion_tokens: int = 0
    part: int = 0
    token_ids: tuple[int, ...] | None = None


class StreamComplete(Struct, frozen=True, tag="complete"):
    """The end: why, by which of the request's stop strings if it was one, and what was counted.

    `service_tier` is OpenAI's word for the tier in which the vendor served it, if it says so.
    """

    stop_reason: StopReason
    usage: Usage = Usage()
    stop_string: str | None = None
    service_tier: str | None = None


StreamEvent = StreamStart | StreamProgress | StreamComplete
