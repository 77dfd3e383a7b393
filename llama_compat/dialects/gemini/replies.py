"""What Gemini's generateContent answers: wire -> vocabulary.

A stream's events are whole responses, each with more parts; one response is a stream of one event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.counts import count, members, told_count
from llama_compat.dialects.gemini.grounding import Grounding, with_searches
from llama_compat.dialects.gemini.seals import FAMILY
from llama_compat.dialects.replies import EventParser, parsed, reasoning_deltas, text_deltas
from llama_compat.dialects.seals import parse_seal
from llama_compat.events import collected
from llama_compat.hosted.vocabulary import CitationDelta, HostedCallDelta
from llama_compat.media.encoded import EncodedFile
from llama_compat.tools.calls import arguments_text, new_call_id, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    Delta,
    ImageContent,
    ImageDelta,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
)

STOP_REASONS = {
    "STOP": StopReason.end_of_turn,
    "MAX_TOKENS": StopReason.out_of_tokens,
    "SAFETY": StopReason.content_filter,
    "RECITATION": StopReason.content_filter,
    "LANGUAGE": StopReason.content_filter,
    "BLOCKLIST": StopReason.content_filter,
    "PROHIBITED_CONTENT": StopReason.content_filter,
    "SPII": StopReason.content_filter,
    "IMAGE_SAFETY": StopReason.content_filter,
    "IMAGE_PROHIBITED_CONTENT": StopReason.content_filter,
    "IMAGE_RECITATION": StopReason.content_filter,
    "IMAGE_OTHER": StopReason.content_filter,
    "NO_IMAGE": StopReason.content_filter,
    "MODEL_ARMOR": StopReason.content_filter,
    "ESCALATION": StopReason.content_filter,
    "OTHER": StopReason.content_filter,
}

FAILURES = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
"""Finish reasons of replies that are none: asking again may help."""

_NO_REASON = (None, "", "FINISH_REASON_UNSPECIFIED")

_MEMBERS = frozenset({"candidates", "promptFeedback", "usageMetadata"})
"""Of these a response has at least one."""


def parse_reply(body: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in a whole response.

    Raises:
        ValueError: it is not a response, or the model failed to make one.
    """
    return collected(parsed(StreamParser(), [body])).chat_completion()


class StreamParser(EventParser):
    """Parses the responses of one stream, of which only the first candidate counts."""

    event = "a response of generateContent"
    end = "finishReason"

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._called = 0
        self._grounding = Grounding()
        self._stop_reason: StopReason | None = None
        self._usage = Usage()
        self._model: Any = None

    @property
    def complete(self) -> bool:
        """Whether the model has come to its end: there is no event for that of the stream."""
        return self._stop_reason is not None

    def finish(self) -> Iterator[StreamEvent]:
        """The events that are due at the end of the stream.

        Raises:
            ValueError: it broke off.
        """
        yield from self._progress(
            [
                *reasoning_deltas(self._reasoning.flush()),
                *text_deltas(self._text.flush()),
            ]
        )
        if self._stop_reason is None:
            raise self._broken_off()
        yield from self._progress(map(HostedCallDelta, self._grounding.searches()))
        reason = self._stop_reason.with_calls(self._called > 0)
        usage = with_searches(self._usage, self._grounding.queries, self._model)
        yield StreamComplete(reason, usage)

    def _push(self, response: Mapping[str, Any]) -> list[StreamEvent]:
        if response.keys().isdisjoint(_MEMBERS):
            raise ValueError("not a response of generateContent")
        events: list[StreamEvent] = []
        self._usage = parse_usage(response.get("usageMetadata")) or self._usage
        self._model = response.get("modelVersion") or self._model
        if not self._started:
            self._started = True
            events.append(StreamStart(self._usage.prompt_tokens))
        deltas: list[Delta] = []
        logprobs, metadata = None, None
        for candidate in (response.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                deltas.extend(self._parse_part(part))
            logprobs = _parse_logprobs(candidate.get("logprobsResult"))
            metadata = candidate.get("groundingMetadata")
            self._end(candidate)
        feedback = response.get("promptFeedback") or {}
        if feedback.get("blockReason"):
            self._stop_reason = StopReason.content_filter
            deltas.append(RefusalDelta(_why_blocked(feedback)))
        if logprobs and not any(isinstance(delta, TextDelta) for delta in deltas):
            deltas.append(TextDelta(""))
        cited = len(events)
        for delta in deltas:
            if isinstance(delta, TextDelta):
                said = self._parts.progress(delta, logprobs)
                events.append(said)
                self._grounding.say(said.part, delta.text)
                cited = len(events)
                logprobs = None
            else:
                events.append(self._parts.progress(delta))
                if isinstance(delta, ReasoningDelta) and delta.signature is not None:
                    self._parts.end_part()
        if metadata is not None:
            # Behind the text, and before its seal, which ends the part.
            events[cited:cited] = [
                StreamProgress(CitationDelta(citation), part=part)
                for part, citation in self._grounding.citations(metadata)
            ]
        return events

    def _parse_part(self, part: Mapping[str, Any]) -> Sequence[Delta]:
        if "functionCall" in part:
            call = _parse_call(part)
            self._called += 1
            succeeded = isinstance(call, ToolCall)
            status = ToolCallParseStatus.succeeded if succeeded else ToolCallParseStatus.failed
            return [ToolCallDelta(self._called - 1, status, tool_call=call)]
        if (data := part.get("inlineData")) is not None and not part.get("thought"):
            return [*text_deltas(self._text.flush()), _parse_image(data)]
        text, signature = part.get("text") or "", parse_seal(part.get("thoughtSignature"))
        if part.get("thought"):
            thought = self._reasoning.push(text)
            if signature is not None:
                return [ReasoningDelta(thought + self._reasoning.flush(), signature, FAMILY)]
            return reasoning_deltas(thought)
        said = text_deltas(self._text.push(text))
        if signature is None:
            return said
        # The seal of a text is a thought of its own here, of which nothing else is shown.
        return [*said, ReasoningDelta("", signature, FAMILY, redacted=True)]

    def _end(self, candidate: Mapping[str, Any]) -> None:
        reason = ended_with(candidate)
        if reason in FAILURES:
            message = candidate.get("finishMessage")
            raise ValueError(f"the model failed with {reason}{f': {message}' if message else ''}")
        if reason is not None:
            self._stop_reason = STOP_REASONS.get(reason, StopReason.end_of_turn)


def ended_with(candidate: Mapping[str, Any]) -> Any:
    """Why a candidate has come to its end; None where it has not."""
    reason = candidate.get("finishReason")
    return None if reason in _NO_REASON else reason


def _parse_image(data: Mapping[str, Any]) -> ImageDelta:
    kind = data["mimeType"]
    if not kind.startswith("image/"):
        raise ValueError(f"the reply holds '{kind}', which is neither text nor an image")
    return ImageDelta(ImageContent(EncodedFile(kind, data["data"]).data_url))


def _parse_call(part: Mapping[str, Any]) -> AnyToolCall:
    """A call, which always comes whole."""
    function = part["functionCall"]
    call = parse_tool_call(
        function.get("id") or new_call_id(),
        function["name"],
        arguments_text(function.get("args") or {}),
    )
    signature = parse_seal(part.get("thoughtSignature"))
    if signature is not None and isinstance(call, ToolCall):
        return structs.replace(call, thought_signature=signature)
    return call


def _parse_logprobs(result: Mapping[str, Any] | None) -> tuple[TokenLogProbs, ...] | None:
    if not result:
        return None
    chosen = [_parse_token(token) for token in result.get("chosenCandidates") or ()]
    top = [
        tuple(_parse_token(token) for token in each.get("candidates") or ())
        for each in result.get("topCandidates") or ()
    ]
    top += [()] * (len(chosen) - len(top))
    return tuple(TokenLogProbs(token, others) for token, others in zip(chosen, top, strict=False))


def _parse_token(token: Mapping[str, Any]) -> TokenLogProb:
    # Numbers and texts that are zero or empty are not sent at all.
    text = token.get("token") or ""
    return TokenLogProb(text, text.encode(errors="replace"), token.get("logProbability") or 0.0)


def parse_usage(usage: Any) -> Usage | None:
    """A vendor's `usageMetadata`; None where it tells none. Gemini counts thoughts beside the
    answer, OpenAI as part of it."""
    usage = members(usage)
    if not usage:
        return None
    thoughts = count(usage.get("thoughtsTokenCount"))
    return Usage(
        prompt_tokens=(count(usage.get("promptTokenCount")) or 0)
        + (count(usage.get("toolUsePromptTokenCount")) or 0),
        completion_tokens=(count(usage.get("candidatesTokenCount")) or 0) + (thoughts or 0),
        cached_tokens=count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


def _why_blocked(feedback: Mapping[str, Any]) -> str:
    message = feedback.get("blockReasonMessage")
    return message or f"The prompt was blocked: {feedback['blockReason']}."


def parse_token_count(body: Mapping[str, Any]) -> int:
    """The tokens in a reply of countTokens.

    Raises:
        ValueError: it is no such reply.
    """
    return told_count(body, "totalTokens")
