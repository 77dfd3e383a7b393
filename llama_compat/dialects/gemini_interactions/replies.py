"""What the Interactions API answers: wire -> vocabulary.

A stream's events are its steps as they come; a whole interaction is a stream whose steps are whole
where they begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import WireReplies
from llama_compat.dialects.gemini import FAMILY
from llama_compat.dialects.gemini_interactions.errors import CONTENT_BLOCKED
from llama_compat.dialects.gemini_interactions.events import interaction_events
from llama_compat.dialects.gemini_interactions.hosted import SearchSteps, parse_citation
from llama_compat.dialects.gemini_interactions.usage import parse_usage
from llama_compat.dialects.replies import (
    EventParser,
    objects_in,
    parsed,
    reasoning_deltas,
    text_deltas,
)
from llama_compat.dialects.seals import parse_seal
from llama_compat.events import collected
from llama_compat.hosted.citations import CitedText
from llama_compat.hosted.vocabulary import CitationDelta, HostedCallDelta
from llama_compat.media.encoded import EncodedFile
from llama_compat.tools.calls import arguments_text
from llama_compat.types import (
    ChatCompletionResponse,
    Delta,
    ImageContent,
    ImageDelta,
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    Usage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import from_raw, parse_fields, parse_object

_STOP_REASONS = {
    "completed": StopReason.end_of_turn,
    "requires_action": StopReason.end_of_message,
    "incomplete": StopReason.out_of_tokens,
    "requires_continuation": StopReason.out_of_tokens,
    "budget_exceeded": StopReason.out_of_tokens,
}
"""Of all other statuses a reply is none."""

_FAILED = frozenset({"failed", "cancelled"})

LAST_STATUSES = _FAILED | _STOP_REASONS.keys()
"""Those that an interaction does not leave any more."""


def parse_reply(body: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in a whole interaction.

    Raises:
        ValueError: it is none, or has come to no end, or to a bad one.
    """
    return collected(parsed(StreamParser(), [body])).chat_completion()


class StreamParser(EventParser):
    """Parses the events of one interaction's stream."""

    event = "one of an interaction"
    end = "interaction.completed"

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[int, str] = {}
        self._searches = SearchSteps()
        self._said = CitedText()
        self._inputs: dict[int, Any] = {}
        self._signatures: dict[int, str | None] = {}
        self._seal: str | None = None
        self._thought = False
        self._called = False

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        if "event_type" not in event and "status" in event:
            return [said for each in interaction_events(event) for said in self._push(each)]
        match event["event_type"]:
            case "step.delta":
                return self._progress(self._parse_delta(event["index"], event["delta"]))
            case "step.start":
                return self._progress(self._begin_step(event["index"], event["step"]))
            case "step.stop":
                return self._progress(self._end_step(event["index"]))
            case "interaction.created":
                return [StreamStart()]
            case "interaction.completed":
                return self._complete(event["interaction"])
            case "interaction.status_update":
                if event["status"] in _FAILED:
                    raise ValueError(f"the interaction ended as {event['status']}")
        return []

    # Steps ----------------------------------------------------------------------------------------

    def _begin_step(self, index: int, step: Mapping[str, Any]) -> Iterable[Delta]:
        kind = self._kinds[index] = step["type"]
        self._searches.begin(index, step)
        if kind == "model_output":
            self._refuse_error(step)
            self._begin_text()
            return self._parse_contents(step.get("content") or ())
        if kind == "thought":
            self._signatures[index] = step.get("signature")
            self._thought = False
            self._parts.end_part()
            return self._think("".join(map(_summary_text, step.get("summary") or ())))
        if kind == "function_call":
            self._called = True
            self._inputs[index] = step.get("arguments")
            seal, self._seal = self._seal, None
            return self._calls.push(
                index=index,
                call_id=step["id"],
                tool_name=step["name"],
                thought_signature=seal,
            )
        # What the vendor's own tools do is nothing that is said.
        return ()

    def _parse_delta(self, index: int, delta: Mapping[str, Any]) -> Sequence[Delta]:
        match delta["type"]:
            case "arguments_delta" if index in self._inputs:
                arguments = delta.get("arguments") or ""
                if arguments:
                    self._inputs[index] = None
                return self._calls.push(index=index, arguments=arguments)
            case "thought_signature":
                self._signatures[index] = delta.get("signature")
            case "thought_summary":
                return self._think(_summary_text(delta.get("content") or {}))
            case "text_annotation_delta":
                return self._cite(delta.get("annotations"))
            case _ if self._kinds.get(index) == "model_output":
                return self._parse_content(delta)
        self._searches.tell(index, delta)
        return ()

    def _end_step(self, index: int) -> list[Delta]:
        kind = self._kinds.get(index)
        deltas: list[Delta] = [HostedCallDelta(each) for each in self._searches.end(index)]
        if kind == "thought":
            signature = parse_seal(self._signatures.pop(index, None) or None)
            text = self._reasoning.flush()
            if signature is not None:
                # Clients whose API has thoughts nowhere else send it back with the call.
                self._seal = signature
                redacted = not (self._thought or text)
                deltas.append(ReasoningDelta(text, signature, FAMILY, redacted))
            else:
                deltas += reasoning_deltas(text)
        elif kind == "model_output":
            deltas += self._say(self._text.flush())
        elif index in self._inputs:
            given = self._inputs.pop(index)
            if given:
                deltas += self._calls.push(index=index, arguments=arguments_text(given))
            deltas += self._calls.end(index)
        return deltas

    def _think(self, text: str) -> Sequence[Delta]:
        self._thought = self._thought or bool(text)
        return reasoning_deltas(self._reasoning.push(text))

    def _parse_content(self, content: Mapping[str, Any]) -> Sequence[Delta]:
        kind = content["type"]
        if kind == "text":
            said = self._say(self._text.push(content.get("text") or ""))
            return [*said, *self._cite(content.get("annotations"))]
        if kind == "image":
            left, self._said = self._say(self._text.flush()), CitedText()
            return [*left, _parse_image(content)]
        if kind in ("audio", "video", "document"):
            raise ValueError(f"the reply holds '{kind}', which is neither text nor an image")
        return ()

    def _say(self, text: str) -> list[Delta]:
        self._said.say(text)
        return text_deltas(text)

    def _begin_text(self) -> None:
        """Places are counted from here."""
        self._said = CitedText()
        self._parts.end_part()

    def _parse_contents(self, contents: Sequence[Mapping[str, Any]]) -> Iterator[Delta]:
        for content in contents:
            self._begin_text()
            yield from self._parse_content(content)

    def _cite(self, annotations: Any) -> list[Delta]:
        if not isinstance(annotations, list) or not annotations:
            return []
        cited = (parse_citation(each, self._said) for each in annotations)
        return [CitationDelta(each) for each in cited if each is not None]

    def _refuse_error(self, step: Mapping[str, Any]) -> None:
        error = step.get("error")
        if error:
            raise ValueError(f"the model failed: {error.get('message') or error}")

    # The end --------------------------------------------------------------------------------------

    def _complete(self, interaction: Mapping[str, Any]) -> list[StreamEvent]:
        status = interaction["status"]
        errors = interaction.get("errors") or []
        if any(error.get("code") == CONTENT_BLOCKED for error in errors):
            reason = StopReason.content_filter
        elif status in _STOP_REASONS:
            reason = _STOP_REASONS[status]
        else:
            why = "; ".join(str(error.get("message")) for error in errors)
            raise ValueError(f"the interaction ended as {status}{f': {why}' if why else ''}")
        self._ended = True
        left = [
            *reasoning_deltas(self._reasoning.flush()),
            *self._say(self._text.flush()),
            *map(HostedCallDelta, self._searches.rest()),
            *self._calls.finish(cut=reason is StopReason.out_of_tokens),
        ]
        usage = parse_usage(interaction.get("usage")) or Usage()
        return [*self._progress(left), StreamComplete(reason.with_calls(self._called), usage)]


# Of replies that were relayed ---------------------------------------------------------------------


def _finished(body: bytes, streamed: bool, choices: int) -> bool:
    interaction = parse_fields(sse.last_data(body) if streamed else body)
    if streamed:
        if interaction.get("event_type") != _COMPLETED:
            return False
        interaction = parse_object(interaction.get("interaction", _NULL))
    errors = interaction.get("errors", _NULL)
    return interaction.get("status") in _OWN_END and errors in (_NULL, _NONE)


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse:
    if not streamed:
        return parse_reply(from_raw(Raw(body)))
    return collected(parsed(StreamParser(), objects_in(body))).chat_completion()


_COMPLETED = Raw(b'"interaction.completed"')
_OWN_END = (Raw(b'"completed"'), Raw(b'"requires_action"'))
_NONE, _NULL = Raw(b"[]"), Raw(b"null")

REPLIES = WireReplies(finished=_finished, said=_said)


def _summary_text(content: Mapping[str, Any]) -> str:
    # A thought may be drawn, too, for which there is no place.
    return str(content.get("text") or "") if content.get("type") == "text" else ""


def _parse_image(content: Mapping[str, Any]) -> ImageDelta:
    if content.get("data"):
        media_type = content.get("mime_type") or "image/png"
        return ImageDelta(ImageContent(EncodedFile(media_type, content["data"]).data_url))
    uri = content["uri"]
    if not isinstance(uri, str):
        raise TypeError("the address of an image is no text")
    return ImageDelta(ImageContent(uri))
