"""What a vendor answers who was asked for a response, whole or as a stream: wire -> vocabulary.

Source: openai 3.52.0, types/responses/response_output_item.py and response_stream_event.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.counts import count, members
from llama_compat.dialects.openai.logprobs import parse_logprobs
from llama_compat.dialects.openai.usage import parse_service_tier
from llama_compat.dialects.openai_responses.output.response_object import (
    is_search,
    response_usage,
)
from llama_compat.dialects.replies import EventParser, parse_whole_call, reasoning_deltas
from llama_compat.events import reply_events
from llama_compat.hosted.citations import CitedText, Sliced, cited_place
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    CitationDelta,
    HostedCall,
    HostedCallDelta,
    WebSource,
)
from llama_compat.text.surrogates import joined
from llama_compat.tools.calls import arguments_text
from llama_compat.types import (
    EMPTY_PARTS,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    MessagePart,
    ReasoningContent,
    RefusalContent,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextContent,
    TextDelta,
    TokenLogProbs,
    Usage,
)
from llama_compat.wire.malformed import malformed_as

_CUT_SHORT = {
    "max_output_tokens": StopReason.out_of_tokens,
    "content_filter": StopReason.content_filter,
}
"""Why a response is incomplete."""

_ENDS = frozenset({"response.completed", "response.incomplete"})

_NO_REPLY = frozenset({"failed", "cancelled", "queued", "in_progress"})
"""What a response is that is none yet, or never will be."""


# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_reply(response: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in a `response` object.

    Raises:
        ValueError: it is not such an object.
    """
    with malformed_as("the reply is not a response"):
        return _parse_response(response)


def _parse_response(response: Mapping[str, Any]) -> ChatCompletionResponse:
    if response.get("status") in _NO_REPLY:
        raise ValueError(f"the response is '{response['status']}', and says no more of that")
    items = response["output"]
    parts: list[MessagePart] = []
    logprobs: list[TokenLogProbs] = []
    for item in items:
        parts += _parse_item(item)
        for text in item.get("content") or () if item["type"] == "message" else ():
            logprobs += parse_logprobs({"content": text.get("logprobs") or ()}) or ()
    reason = _stop_reason(response, called=_has_call(items))
    return ChatCompletionResponse(
        CompletionMessage(tuple(each for each in parts if each not in EMPTY_PARTS), reason),
        logprobs=tuple(logprobs) or None,
        usage=response_usage(response) or Usage(),
        service_tier=parse_service_tier(response),
    )


def _parse_item(item: Mapping[str, Any]) -> Iterator[MessagePart]:
    match item["type"]:
        case "message":
            yield from _parse_contents(item)
        case "reasoning":
            yield from _thoughts(item)
        case "function_call":
            cut = item.get("status") == "incomplete"
            yield parse_whole_call(item["call_id"], item["name"], item["arguments"], cut=cut)
        case _ if is_search(item):
            yield _parse_search(item)


def _thoughts(item: Mapping[str, Any]) -> Iterator[ReasoningContent]:
    for part in item.get("content") or item.get("summary") or ():
        yield ReasoningContent(joined(part["text"]))


def _parse_contents(message: Mapping[str, Any]) -> Iterator[TextContent | RefusalContent]:
    """What a message says; kinds that are not known are left out."""
    for part in message["content"]:
        if part["type"] == "refusal":
            yield RefusalContent(joined(part["refusal"]))
        elif part["type"] == "output_text":
            text = joined(part["text"])
            cited = (_parse_citation(each, text) for each in part.get("annotations") or ())
            yield TextContent(text, tuple(each for each in cited if each is not None))


def _parse_citation(annotation: Any, text: Sliced) -> Citation | None:
    """The place that an annotation names in `text`; None for what is about something else than the
    web."""
    told = members(annotation)
    if told.get("type") != "url_citation" or count(told.get("end_index")) is None:
        return None
    return cited_place(told, text)


def _parse_search(item: Mapping[str, Any]) -> HostedCall:
    action = members(item.get("action"))
    query = action.get("query") or next(iter(action.get("queries") or ()), None)
    found = map(members, action.get("sources") or ())
    return HostedCall(
        str(item["id"]),
        WEB_SEARCH,
        WEB_SEARCH,
        arguments_text({} if query is None else {"query": query}),
        status="failed" if item.get("status") == "failed" else "completed",
        sources=tuple(WebSource(each["url"]) for each in found if isinstance(each.get("url"), str)),
        model_name=WEB_SEARCH,
    )


def _has_call(items: Sequence[Mapping[str, Any]]) -> bool:
    return any(item["type"] == "function_call" for item in items)


def _stop_reason(response: Mapping[str, Any], *, called: bool) -> StopReason:
    if response.get("status") == "incomplete":
        why = str((response.get("incomplete_details") or {}).get("reason"))
        return _CUT_SHORT.get(why, StopReason.out_of_tokens)
    return StopReason.end_of_turn.with_calls(called)


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamParser(EventParser):
    """Parses the events of one response's stream. One that reports an error is for whoever reads
    the stream to raise.

    What comes in no piece of its own (not every server that has this API sends all events) is taken
    from the event that has all of it.
    """

    event = "one of a response"
    end = "response.completed"

    def __init__(self) -> None:
        super().__init__()
        self._written: set[int] = set()
        self._said = CitedText()
        self._cited = 0
        self._ahead: list[Any] = []
        self._has_text = False
        self._has_parts = False
        self._thought = False
        self._called = False
        self._begun = False

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        kind = event.get("type")
        if kind is None and event.get("object") == "response":
            # All of it, from a server that ignores that a stream was asked for.
            self._ended = True
            return list(reply_events(parse_reply(event)))
        events: list[StreamEvent] = [] if self._begun else [StreamStart()]
        self._begun = True
        if kind in _ENDS:
            return [*events, *self._end(event["response"])]
        logprobs: tuple[TokenLogProbs, ...] = ()
        if kind == "response.output_text.delta":
            logprobs = parse_logprobs({"content": event.get("logprobs") or ()}) or ()
        for delta in self._deltas(kind, event):
            self._has_parts = True
            events.append(self._parts.progress(delta, logprobs or None))
        return events

    def _deltas(self, kind: Any, event: Mapping[str, Any]) -> Iterable[Delta]:
        match kind:
            case "response.content_part.added":
                return self._begin_part()
            case "response.output_text.delta":
                return self._say(self._text.push(event["delta"]))
            case "response.output_text.annotation.added":
                return self._cite([event["annotation"]])
            case "response.refusal.delta":
                return self._say(self._text.push(event["delta"]), RefusalDelta)
            case "response.content_part.done":
                return self._end_part(event["part"])
            case "response.reasoning_summary_part.added":
                self._parts.end_part()
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                self._thought = True
                return reasoning_deltas(self._reasoning.push(event["delta"]))
            case "response.reasoning_text.done" | "response.reasoning_summary_text.done":
                return reasoning_deltas(self._reasoning.flush())
            case "response.function_call_arguments.delta":
                self._written.add(event["output_index"])
                return self._calls.push(index=event["output_index"], arguments=event["delta"])
            case "response.output_item.added":
                return self._begin(event["output_index"], event["item"])
            case "response.output_item.done":
                return self._done(event["output_index"], event["item"])
        return []

    def _say(
        self, text: str, kind: type[TextDelta | RefusalDelta] = TextDelta
    ) -> Sequence[TextDelta | RefusalDelta]:
        if not text:
            return []
        self._said.say(text)
        self._has_text = True
        return [kind(text)]

    def _cite(self, annotations: Sequence[Any], *, is_whole: bool = False) -> Sequence[Delta]:
        """The places that are named; those of text that has not come wait for the end of the part,
        when it `is_whole`."""
        text = self._said
        self._cited += len(annotations)
        if is_whole:
            annotations, self._ahead = [*self._ahead, *annotations], []
        cited: list[Delta] = []
        for each in annotations:
            if not is_whole and (count(members(each).get("end_index")) or 0) > len(text):
                self._ahead.append(each)
            elif (place := _parse_citation(each, text)) is not None:
                cited.append(CitationDelta(place))
        return cited

    def _begin_part(self) -> Iterator[Delta]:
        yield from self._say(self._text.flush())
        yield from self._cite([], is_whole=True)
        self._parts.end_part()
        self._said, self._cited = CitedText(), 0

    def _end_part(self, part: Mapping[str, Any]) -> Sequence[Delta]:
        if part["type"] == "refusal":
            left = self._text.flush() if self._said else joined(part["refusal"])
            return self._say(left, RefusalDelta)
        if part["type"] != "output_text":
            return []
        said = self._say(self._text.flush() if self._said else joined(part["text"]))
        named = (part.get("annotations") or ())[self._cited :]
        return [*said, *self._cite(named, is_whole=True)]

    def _begin(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if item["type"] == "reasoning":
            self._thought = False
            self._parts.end_part()
        elif item["type"] == "message":
            self._has_text = False
            return self._begin_part()
        elif item["type"] == "function_call":
            return self._call(index, item)
        return []

    def _call(self, index: int, item: Mapping[str, Any], arguments: str = "") -> Sequence[Delta]:
        self._called = True
        call_id, name = item["call_id"], item["name"]
        return self._calls.push(index=index, call_id=call_id, tool_name=name, arguments=arguments)

    def _done(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if is_search(item):
            return [HostedCallDelta(_parse_search(item))]
        if item["type"] == "message":
            return self._end_message(item)
        if item["type"] == "reasoning":
            return self._end_thoughts(item)
        if item["type"] != "function_call":
            return []
        left = "" if index in self._written else arguments_text(item["arguments"])
        deltas = self._call(index, item, left)
        # Whether the tokens have run out in one that is not whole the end of the response says.
        return deltas if item.get("status") == "incomplete" else [*deltas, *self._calls.end(index)]

    def _end_thoughts(self, item: Mapping[str, Any]) -> Iterator[Delta]:
        yield from reasoning_deltas(self._reasoning.flush())
        for each in () if self._thought else _thoughts(item):
            self._parts.end_part()
            yield from reasoning_deltas(each.text)
        self._thought = False

    def _end_message(self, message: Mapping[str, Any]) -> Iterator[Delta]:
        if not self._has_text:
            for part in message["content"]:
                yield from self._begin_part()
                yield from self._end_part(part)
        self._has_text = False

    def _end(self, response: Mapping[str, Any]) -> Iterator[StreamEvent]:
        self._ended = True
        if not self._has_parts:
            yield from list(reply_events(_parse_response(response)))[1:]
            return
        reason = _stop_reason(response, called=self._called)
        yield from self._progress(
            [
                *reasoning_deltas(self._reasoning.flush()),
                *self._say(self._text.flush()),
                *self._cite([], is_whole=True),
                *self._calls.finish(cut=reason is StopReason.out_of_tokens),
            ]
        )
        yield StreamComplete(
            reason,
            response_usage(response) or Usage(),
            service_tier=parse_service_tier(response),
        )
