"""What a vendor answers who was asked for a response, whole or as a stream: wire -> vocabulary.

Source: openai 3.52.0, types/responses/response_output_item.py and response_stream_event.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.base import MALFORMED
from llama_compat.dialects.content_blocks import parse_whole_call
from llama_compat.dialects.openai.logprobs import parse_logprobs
from llama_compat.dialects.openai.usage import parse_service_tier
from llama_compat.dialects.openai_responses.output.response_object import (
    is_search,
    response_usage,
)
from llama_compat.events import ReplyParts, reply_events
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    CitationDelta,
    HostedCall,
    HostedCallDelta,
    WebSource,
)
from llama_compat.text.surrogates import SurrogateJoiner, joined
from llama_compat.tools.calls import ToolCallAssembler, arguments_text
from llama_compat.types import (
    EMPTY_PARTS,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
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

_CUT_SHORT = {
    "max_output_tokens": StopReason.out_of_tokens,
    "content_filter": StopReason.content_filter,
}
"""Why a response is incomplete."""

_ENDS = frozenset({"response.completed", "response.incomplete"})


# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_reply(response: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in a `response` object.

    Raises:
        ValueError: it is not such an object.
    """
    try:
        return _parse_response(response)
    except MALFORMED as error:
        raise ValueError(f"the reply is not a response: {error!r}") from error


def _parse_response(response: Mapping[str, Any]) -> ChatCompletionResponse:
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
            yield from map(_parse_content, item["content"])
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


def _parse_content(part: Mapping[str, Any]) -> MessagePart:
    if part["type"] == "refusal":
        return RefusalContent(joined(part["refusal"]))
    text = joined(part["text"])
    cited = (_parse_citation(each, text) for each in part.get("annotations") or ())
    return TextContent(text, tuple(each for each in cited if each is not None))


def _parse_citation(annotation: Mapping[str, Any], text: str) -> Citation | None:
    """The place that an annotation names in `text`, as far as that has come; None for what is about
    something else than the web."""
    start, end, url = (annotation.get(each) for each in ("start_index", "end_index", "url"))
    if annotation.get("type") != "url_citation" or not isinstance(url, str):
        return None
    if not (isinstance(start, int) and isinstance(end, int) and start >= 0):
        return None
    end = min(end, len(text))
    source = WebSource(url, str(annotation.get("title") or ""))
    return Citation(start, end, source, text[start:end])


def _parse_search(item: Mapping[str, Any]) -> HostedCall:
    action = item.get("action") or {}
    query = action.get("query") or next(iter(action.get("queries") or ()), None)
    found = action.get("sources") or ()
    return HostedCall(
        str(item["id"]),
        WEB_SEARCH,
        WEB_SEARCH,
        arguments_text({} if query is None else {"query": query}),
        status="failed" if item.get("status") == "failed" else "completed",
        sources=tuple(WebSource(each["url"]) for each in found if each.get("url")),
        model_name=WEB_SEARCH,
    )


def _has_call(items: Sequence[Mapping[str, Any]]) -> bool:
    return any(item["type"] == "function_call" for item in items)


def _stop_reason(response: Mapping[str, Any], *, called: bool) -> StopReason:
    if response.get("status") == "incomplete":
        why = str((response.get("incomplete_details") or {}).get("reason"))
        return _CUT_SHORT.get(why, StopReason.out_of_tokens)
    return StopReason.end_of_message if called else StopReason.end_of_turn


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamParser:
    """Parses the events of one response's stream. One that reports an error is for whoever reads
    the stream to raise.

    What comes in no piece of its own (not every server that has this API sends all events) is taken
    from the event that has all of it.
    """

    def __init__(self) -> None:
        self._text = SurrogateJoiner()
        self._parts = ReplyParts()
        self._calls = ToolCallAssembler()
        self._written: set[int] = set()
        self._said: list[str] = []
        self._cited = 0
        self._thought = False
        self._called = False
        self._begun = False
        self._ended = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The vocabulary's events for one of the vendor's; kinds that are not known give none.

        Raises:
            ValueError: it is not an event of this API.
        """
        try:
            return self._push(event)
        except MALFORMED as error:
            raise ValueError(f"the event is not one of a response: {error!r}") from error

    def finish(self) -> Iterator[StreamEvent]:
        """What is due at the end of the stream.

        Raises:
            ValueError: it broke off; the tool calls that it broke off in have failed before.
        """
        if not self._ended:
            for delta in self._calls.finish(cut=True):
                yield self._parts.progress(delta)
            raise ValueError("the stream broke off before its response.completed")

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
        if kind == "response.output_text.delta":
            logprobs = parse_logprobs({"content": event.get("logprobs") or ()})
            said = self._say(self._text.push(event["delta"]))
            return [*events, *(self._parts.progress(each, logprobs or None) for each in said)]
        return [*events, *map(self._parts.progress, self._deltas(kind, event))]

    def _deltas(self, kind: Any, event: Mapping[str, Any]) -> Sequence[Delta]:
        match kind:
            case "response.content_part.added":
                self._parts.end_part()
                self._said, self._cited = [], 0
            case "response.output_text.annotation.added":
                return self._cite([event["annotation"]])
            case "response.refusal.delta":
                return self._say(event["delta"], RefusalDelta)
            case "response.content_part.done":
                return self._end_part(event["part"])
            case "response.reasoning_summary_part.added":
                self._parts.end_part()
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                self._thought = True
                return [ReasoningDelta(event["delta"])]
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
        self._said.append(text)
        return [kind(text)]

    def _cite(self, annotations: Sequence[Mapping[str, Any]]) -> Sequence[Delta]:
        self._cited += len(annotations)
        text = "".join(self._said)
        cited = (_parse_citation(each, text) for each in annotations)
        return [CitationDelta(each) for each in cited if each is not None]

    def _end_part(self, part: Mapping[str, Any]) -> Sequence[Delta]:
        if part["type"] == "refusal":
            return [] if self._said else self._say(joined(part["refusal"]), RefusalDelta)
        if part["type"] != "output_text":
            return []
        said = self._say(self._text.flush() if self._said else joined(part["text"]))
        return [*said, *self._cite((part.get("annotations") or ())[self._cited :])]

    def _begin(self, index: int, item: Mapping[str, Any]) -> Sequence[Delta]:
        if item["type"] == "reasoning":
            self._thought = False
            self._parts.end_part()
        if item["type"] != "function_call":
            return []
        self._called = True
        return self._calls.push(index=index, call_id=item["call_id"], tool_name=item["name"])

    def _done(self, index: int, item: Mapping[str, Any]) -> Sequence[Delta]:
        if is_search(item):
            return [HostedCallDelta(_parse_search(item))]
        if item["type"] == "reasoning" and not self._thought:
            return [ReasoningDelta(each.text) for each in _thoughts(item)]
        if item["type"] != "function_call":
            return []
        deltas: list[Delta] = []
        if index not in self._written:
            deltas += self._calls.push(index=index, arguments=item["arguments"])
        # Whether the tokens have run out in one that is not whole the end of the response says.
        if item.get("status") != "incomplete":
            deltas += self._calls.end(index)
        return deltas

    def _end(self, response: Mapping[str, Any]) -> Iterator[StreamEvent]:
        self._ended = True
        reason = _stop_reason(response, called=self._called)
        cut = reason is StopReason.out_of_tokens
        for delta in (*self._say(self._text.flush()), *self._calls.finish(cut=cut)):
            yield self._parts.progress(delta)
        yield StreamComplete(
            reason,
            response_usage(response) or Usage(),
            service_tier=parse_service_tier(response),
        )
