"""Responses of generateContent: vocabulary -> wire.

What a model thinks is shown to clients that ask for it (`includeThoughts`), and to no others: they
would take it for the answer. Its seal goes out in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import Labels, SaidText
from llama_compat.dialects.gemini.frames import EventFrame, Frame
from llama_compat.dialects.gemini.grounding import ShownGrounding
from llama_compat.dialects.gemini.seals import FAMILY, render_seal
from llama_compat.errors import APIError
from llama_compat.hosted.vocabulary import CitationDelta, HostedCall, HostedCallDelta
from llama_compat.media.images import is_remote, parse_data_url
from llama_compat.tools.calls import arguments_object
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    Delta,
    ImageContent,
    ImageDelta,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    UnparseableToolCall,
    Usage,
)
from llama_compat.wire.json_fields import encode_json

_FINISH_REASONS: Mapping[StopReason, str] = {
    StopReason.end_of_turn: "STOP",
    StopReason.end_of_message: "STOP",
    StopReason.out_of_tokens: "MAX_TOKENS",
    StopReason.content_filter: "SAFETY",
}

Part = dict[str, Any]


def render_response(
    responses: Sequence[ChatCompletionResponse],
    usage: Usage,
    labels: Labels,
    *,
    include_thoughts: bool,
) -> bytes:
    """A whole response with one candidate a choice."""
    candidates = [
        _render_choice(index, response, include_thoughts=include_thoughts)
        for index, response in enumerate(responses)
    ]
    return _encode(candidates, labels, usage)


def _render_choice(
    index: int, response: ChatCompletionResponse, *, include_thoughts: bool
) -> dict[str, Any]:
    message = response.completion_message
    parts = [
        part
        for said in message.parts
        if (part := _render_part(said, include_thoughts=include_thoughts)) is not None
    ]
    grounding = ShownGrounding()
    for number, said in enumerate(message.parts):
        if isinstance(said, TextContent):
            grounding.say(number, said.text)
            for citation in said.citations:
                grounding.cite(number, citation)
        elif isinstance(said, HostedCall):
            grounding.add(said)
    finish = _finish(message.stop_reason or StopReason.end_of_turn)
    return _candidate(index, parts, response.logprobs, {**finish, **grounding.rendered()})


def _render_part(said: MessagePart | Delta, *, include_thoughts: bool) -> Part | None:
    """The part for what was said, if there is one."""
    if isinstance(said, ReasoningContent | ReasoningDelta):
        return _render_thought(said, include_thoughts=include_thoughts)
    if isinstance(said, ToolCallDelta):
        return None if said.tool_call is None else _render_call(said.tool_call)
    if isinstance(said, ToolCall | UnparseableToolCall):
        return _render_call(said)
    if isinstance(said, HostedCall | HostedCallDelta | CitationDelta):
        return None  # They are told beside the text.
    if isinstance(said, ImageDelta):
        said = said.image
    if isinstance(said, ImageContent):
        return _render_image(said.url)
    return {"text": said.text} if said.text else None


def _render_image(url: str) -> Part:
    if is_remote(url):
        return {"fileData": {"fileUri": url}}
    encoded = parse_data_url(url, "images")
    return {"inlineData": {"mimeType": encoded.media_type, "data": encoded.base64}}


def _render_thought(
    thought: ReasoningContent | ReasoningDelta, *, include_thoughts: bool
) -> Part | None:
    seal = render_seal(thought)
    shown = include_thoughts and not (thought.redacted and thought.sealed_by == FAMILY)
    if not shown:
        # Nobody but Gemini takes a seal without the thought that it is on.
        lone = seal is not None and thought.sealed_by == FAMILY
        return {"text": "", "thoughtSignature": seal} if lone else None
    if not thought.text and seal is None:
        return None
    part: Part = {"text": thought.text, "thought": True}
    return part if seal is None else {**part, "thoughtSignature": seal}


def _render_call(call: AnyToolCall) -> Part:
    function = {"id": call.call_id, "name": call.tool_name, "args": arguments_object(call)}
    part: Part = {"functionCall": function}
    if isinstance(call, ToolCall) and call.thought_signature is not None:
        part["thoughtSignature"] = call.thought_signature
    return part


def _finish(reason: StopReason) -> dict[str, Any]:
    return {"finishReason": _FINISH_REASONS[reason]}


def _candidate(
    index: int,
    parts: Sequence[Part],
    logprobs: Sequence[TokenLogProbs] | None = None,
    finish: Mapping[str, Any] = {},
) -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "content": {"parts": parts or [{"text": ""}], "role": "model"},
        **finish,
        "index": index,
    }
    if logprobs:
        candidate["logprobsResult"] = {
            "topCandidates": [
                {"candidates": [_render_token(each) for each in token.top]} for token in logprobs
            ],
            "chosenCandidates": [_render_token(token.chosen) for token in logprobs],
        }
    return candidate


def _render_token(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.token, "logProbability": token.logprob}


def _encode(
    candidates: Sequence[dict[str, Any]], labels: Labels, usage: Usage | None = None
) -> bytes:
    response: dict[str, Any] = {"candidates": candidates}
    if usage is not None:
        response["usageMetadata"] = render_usage(usage)
    response |= {"modelVersion": labels.model, "responseId": labels.unique}
    return encode_json(response)


def render_usage(usage: Usage) -> dict[str, int]:
    """`usageMetadata`: thoughts are counted beside the answer, not as part of it."""
    thoughts = usage.reasoning_tokens or 0
    rendered = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens - thoughts,
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens:
        rendered["cachedContentTokenCount"] = usage.cached_tokens
    if thoughts:
        rendered["thoughtsTokenCount"] = thoughts
    return rendered


def withheld(
    told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
) -> bytes:
    """Ends a stream of events that was relayed and of which no more may be shown."""
    known = [*told, *(each.event for each in texts)]
    frame = {
        name: each[name]
        for each in known
        for name in ("modelVersion", "responseId")
        if name in each
    }
    candidate = _candidate(0, [], finish=_finish(StopReason.content_filter))
    return EventFrame().response(encode_json({"candidates": [candidate], **frame}))


class ResponseRenderer:
    """Renders the events of one reply's choices as responses; the last has the counts.

    Args:
        labels: what every response says.
        frame: what is around them.
        include_thoughts: whether the client wants to see them.
        cites: whether the answer may name what was found in the web.
    """

    def __init__(
        self, labels: Labels, frame: Frame, *, include_thoughts: bool, cites: bool = False
    ) -> None:
        self._cites = cites
        self._labels = labels
        self._frame = frame
        self._include_thoughts = include_thoughts
        self._reasons: dict[int, StopReason] = {}
        self._grounding: defaultdict[int, ShownGrounding] = defaultdict(ShownGrounding)

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """The response that `event` of the choice `choice` makes, if it makes one."""
        if isinstance(event, StreamComplete):
            self._reasons[choice] = event.stop_reason
        if not isinstance(event, StreamProgress):
            return b""
        delta = event.delta
        if isinstance(delta, TextDelta) and self._cites:
            self._grounding[choice].say(event.part, delta.text)
        elif isinstance(delta, HostedCallDelta):
            self._grounding[choice].add(delta.call)
        elif isinstance(delta, CitationDelta):
            self._grounding[choice].cite(event.part, delta.citation)
        part = _render_part(delta, include_thoughts=self._include_thoughts)
        if part is None and not event.logprobs:
            return b""
        candidate = _candidate(choice, [] if part is None else [part], event.logprobs)
        return self._frame.response(_encode([candidate], self._labels))

    def finish(self, usage: Usage) -> bytes:
        """The last response, which says why each candidate ended, and what all of it cost."""
        candidates = [
            _candidate(choice, [], finish={**_finish(reason), **self._grounding[choice].rendered()})
            for choice, reason in sorted(self._reasons.items())
        ]
        return self._frame.response(_encode(candidates, self._labels, usage))

    def fail(self, error: APIError) -> bytes:
        """The error, and the stream's end."""
        return self._frame.fail(error)
