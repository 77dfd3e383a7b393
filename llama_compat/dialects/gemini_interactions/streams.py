"""An interaction and its stream: vocabulary -> wire.

The order of the events is that of https://ai.google.dev/gemini-api/docs/streaming, read on
2026-11-22: created, a status; of every step its start, its deltas, its stop; and completed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from llama_compat.dialects.base import Labels, SaidText
from llama_compat.dialects.gemini import FAMILY, render_seal
from llama_compat.dialects.gemini_interactions.errors import (
    CONTENT_BLOCKED,
    error_object,
    render_stream_error,
)
from llama_compat.dialects.gemini_interactions.events import encode_event
from llama_compat.dialects.gemini_interactions.hosted import (
    OWN_IDS,
    render_call,
    render_citation,
    render_result,
    shows,
)
from llama_compat.dialects.gemini_interactions.usage import render_usage
from llama_compat.dialects.moments import utc_text
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.seals import call_seal
from llama_compat.errors import APIError
from llama_compat.hosted.citations import CitedText
from llama_compat.hosted.vocabulary import (
    WEB_SEARCH,
    Citation,
    CitationDelta,
    HostedCall,
    HostedCallDelta,
)
from llama_compat.media.images import is_remote, parse_data_url
from llama_compat.tools.calls import arguments_object, arguments_object_text
from llama_compat.types import (
    AnyToolCall,
    ImageDelta,
    ReasoningContent,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)

PREFIX = "int_"
"""What the ids of this server's interactions begin with."""

_STATUS = {
    StopReason.end_of_turn: "completed",
    StopReason.end_of_message: "requires_action",
    StopReason.out_of_tokens: "incomplete",
    StopReason.content_filter: "incomplete",
}

_BLOCKED = {"code": CONTENT_BLOCKED, "message": "The provider withheld the rest of the reply."}


class ShownInteraction(Struct, frozen=True):
    """How an interaction is shown, as the request wants it.

    Attributes:
        hides_thoughts: what the model thought is not shown, only its seal.
        previous_interaction_id: the interaction that this one goes on from.
    """

    hides_thoughts: bool = False
    previous_interaction_id: str | None = None


class _Step:
    """One step as far as it has come."""

    def __init__(self, index: int, step: dict[str, Any]) -> None:
        self.index = index
        self.step = step
        self.open = True

    def begin(self) -> bytes:
        return encode_event("step.start", {"index": self.index, "step": self.step})

    def delta(self, **members: Any) -> bytes:
        return encode_event("step.delta", {"index": self.index, "delta": members})

    def end(self) -> bytes:
        if not self.open:
            return b""
        self.open = False
        self.close()
        return encode_event("step.stop", {"index": self.index})

    def close(self) -> None:
        """Put into the step what its deltas came to."""


class _Output(_Step):
    """What the model says and draws; text that belongs together is one content."""

    def __init__(self, index: int) -> None:
        super().__init__(index, {"type": "model_output"})
        self._contents: list[dict[str, Any]] = []
        self._part = -1
        self._said: dict[int, tuple[dict[str, Any], CitedText]] = {}

    def say(self, text: str, part: int) -> bytes:
        if part != self._part:
            self._join()
            self._part = part
            self._said[part] = {"type": "text", "text": ""}, CitedText()
            self._contents.append(self._said[part][0])
        self._said[part][1].say(text)
        return self.delta(type="text", text=text)

    def cite(self, part: int, citation: Citation) -> bytes:
        """A place in a part; one that has ended is told of with the whole step alone."""
        content, said = self._said[part]
        annotation = render_citation(citation, said)
        content.setdefault("annotations", []).append(annotation)
        if not self.open or part != self._part:
            return b""
        return self.delta(type="text_annotation_delta", annotations=[annotation])

    def draw(self, url: str) -> bytes:
        self._join()
        if is_remote(url):
            image = {"type": "image", "uri": url}
        else:
            encoded = parse_data_url(url, "images")
            image = {"type": "image", "data": encoded.base64, "mime_type": encoded.media_type}
        self._contents.append(image)
        return self.delta(**image)

    def close(self) -> None:
        self._join()
        self.step["content"] = self._contents

    def _join(self) -> None:
        if self._part in self._said:
            content, said = self._said[self._part]
            content["text"] = said.whole
        self._part = -1


class _Thought(_Step):
    """What the model thinks."""

    def __init__(self, index: int, part: int) -> None:
        super().__init__(index, {"type": "thought"})
        self.part = part
        self._texts: list[str] = []

    def think(self, text: str) -> bytes:
        self._texts.append(text)
        return self.delta(type="thought_summary", content={"type": "text", "text": text})

    def seal(self, signature: str) -> bytes:
        self.step["signature"] = signature
        return self.delta(type="thought_signature", signature=signature)

    def close(self) -> None:
        if self._texts:
            self.step["summary"] = [{"type": "text", "text": "".join(self._texts)}]


class _Call(_Step):
    """A call of a function."""

    def __init__(self, index: int, call_id: str, name: str) -> None:
        step = {"type": "function_call", "id": call_id, "name": name, "arguments": {}}
        super().__init__(index, step)
        self._written = False

    def write(self, arguments: str) -> bytes:
        self._written = True
        return self.delta(type="arguments_delta", arguments=arguments)

    def complete(self, call: AnyToolCall) -> bytes:
        self.step = {**self.step, "arguments": arguments_object(call)}
        if self._written or not arguments_object(call):
            return self.end()
        return self.write(arguments_object_text(call)) + self.end()


class _Told(_Step):
    """A call of a tool that the server runs, or what it gave: at once."""

    def tell(self, told: dict[str, Any]) -> bytes:
        self.step = {**self.step, **told}
        return self.delta(**told)


class StreamRenderer:
    """Renders the one choice of an interaction.

    What says nothing yet (`interaction.created`) is held back until something does, so that what
    fails before has its own status.

    Args:
        shown: how.
        labels: of the reply.
        keeping: a store's side of it, if there is one.

    Attributes:
        whole: all of it, once it has come to its end.
    """

    def __init__(
        self, shown: ShownInteraction, labels: Labels, keeping: Keeping | None = None
    ) -> None:
        self._shown = shown
        self._labels = labels
        self._keeping = keeping
        self._id = f"{PREFIX}{labels.unique}" if keeping is None else keeping.response_id
        self._begun = False
        self._steps: list[_Step] = []
        self._talk: _Output | _Thought | None = None
        self._calls: dict[int, _Call] = {}
        self._seals: list[ReasoningContent] = []
        self._signatures: set[str] = set()
        self._by_part: dict[int, _Output] = {}
        self._hosted: set[int] = set()
        self._searches = 0
        self._stop_reason = StopReason.end_of_turn
        self.whole: dict[str, Any] | None = None

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """What `event` adds."""
        if isinstance(event, StreamComplete):
            self._stop_reason = event.stop_reason
            return self._begin() + b"".join(self._end_steps())
        if not isinstance(event, StreamProgress):
            return b""
        delta = event.delta
        if isinstance(delta, ToolCallDelta):
            said = self._render_call(delta, event.part)
        elif isinstance(delta, ReasoningDelta):
            said = self._render_thought(delta, event.part)
        elif isinstance(delta, HostedCallDelta):
            said = self._render_hosted(delta.call, event.part)
        elif isinstance(delta, CitationDelta):
            output = self._by_part.get(event.part)
            return b"" if output is None else output.cite(event.part, delta.citation)
        elif isinstance(delta, ImageDelta):
            begun, output = self._output()
            said = begun + output.draw(delta.image.url)
        else:
            said = self._render_text(delta, event.part)
        return self._begin() + said if said else b""

    def finish(self, usage: Usage) -> bytes:
        """The last event, with the status and what it cost."""
        begun, status = self._begin(), _STATUS[self._stop_reason]
        calls = any(isinstance(step, _Call) for step in self._steps)
        if status == "completed" and calls:
            status = "requires_action"
        blocked = self._stop_reason is StopReason.content_filter
        told: dict[str, Any] = {"errors": [_BLOCKED]} if blocked else {}
        told["usage"] = render_usage(usage, self._searches)
        self._end(status, **told)
        return begun + encode_event(
            "interaction.completed", {"interaction": self._frame(status, **told)}
        )

    def fail(self, error: APIError) -> bytes:
        """The error, and the stream's end."""
        self._steps = [step for step in self._steps if not step.open]
        self._end("failed", errors=[error_object(error)])
        return self._begin() + render_stream_error(error)

    def object(self, status: str, **members: Any) -> dict[str, Any]:
        """The interaction as it stands, its steps too."""
        return self._frame(status, **members, steps=[step.step for step in self._steps])

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        created = {"interaction": self._frame("in_progress")}
        status = {"interaction_id": self._id, "status": "in_progress"}
        return encode_event("interaction.created", created) + encode_event(
            "interaction.status_update", status
        )

    def _end(self, status: str, **members: Any) -> None:
        self.whole = self.object(status, **members)
        if self._keeping is not None:
            self._keeping.response = self.whole

    def _frame(self, status: str, **members: Any) -> dict[str, Any]:
        keeping = self._keeping
        created = self._labels.created if keeping is None else keeping.created
        frame = {
            "id": self._id,
            "object": "interaction",
            "status": status,
            "model": self._labels.model,
            "created": utc_text(created),
            "updated": utc_text(max(created, int(time.time()))),
        }
        if self._shown.previous_interaction_id is not None:
            frame["previous_interaction_id"] = self._shown.previous_interaction_id
        return {**frame, **members}

    # Steps ----------------------------------------------------------------------------------------

    def _render_text(self, delta: TextDelta | RefusalDelta, part: int) -> bytes:
        if not delta.text:
            return b""
        begun, output = self._output()
        self._by_part[part] = output
        return begun + output.say(delta.text, part)

    def _output(self) -> tuple[bytes, _Output]:
        """The step in which the model goes on to speak, and the events with which that begins."""
        output = self._talk
        if isinstance(output, _Output):
            return b"", output
        begun = self._end_talk()
        output = self._talk = _Output(len(self._steps))
        return begun + self._add(output), output

    def _render_thought(self, delta: ReasoningDelta, part: int) -> bytes:
        seal, text = render_seal(delta), delta.text
        if self._shown.hides_thoughts:
            # Nobody but Gemini takes a seal without the thought that it is on.
            text, seal = "", seal if delta.sealed_by == FAMILY else None
        if not text and seal is None:
            return b""
        events = []
        thought = self._talk
        if not isinstance(thought, _Thought) or thought.part != part:
            events.append(self._end_talk())
            thought = self._talk = _Thought(len(self._steps), part)
            events.append(self._add(thought))
        if text:
            events.append(thought.think(text))
        if seal is not None:
            self._signatures.add(seal)
            events += [thought.seal(seal), self._end_talk()]
        return b"".join(events)

    def _render_call(self, delta: ToolCallDelta, part: int) -> bytes:
        call, step, events = delta.tool_call, self._calls.get(part), []
        if step is None:
            events.append(self._end_talk())
            call_id, name = (
                (delta.call_id, delta.tool_name) if call is None else (call.call_id, call.tool_name)
            )
            step = self._calls[part] = _Call(len(self._steps), call_id, name)
            events.append(self._add(step))
        if delta.arguments:
            events.append(step.write(delta.arguments))
        if call is not None:
            events.append(step.complete(call))
            if isinstance(call, ToolCall) and call.thought_signature not in self._signatures:
                seal = call_seal(call)
                self._seals += [] if seal is None else [seal]
        return b"".join(events)

    def _render_hosted(self, call: HostedCall, part: int) -> bytes:
        if not shows(call):
            return b""
        step_id, events = f"{OWN_IDS}{self._labels.unique}{part:04x}", b""
        if part not in self._hosted:
            self._hosted.add(part)
            events += self._tell(*render_call(call, step_id))
        if call.status != "in_progress":
            self._searches += call.kind == WEB_SEARCH and call.status == "completed"
            events += self._tell(*render_result(call, step_id))
        return events

    def _tell(self, begun: dict[str, Any], told: dict[str, Any]) -> bytes:
        ended, step = self._end_talk(), _Told(len(self._steps), begun)
        return ended + self._add(step) + step.tell(told) + step.end()

    def _add(self, step: _Step) -> bytes:
        self._steps.append(step)
        return step.begin()

    def _end_talk(self) -> bytes:
        talk, self._talk = self._talk, None
        return b"" if talk is None else talk.end()

    def _end_steps(self) -> Sequence[bytes]:
        """Every step comes to its end; after them the seals for which calls have no place."""
        self._talk = None
        events = [step.end() for step in self._steps]
        for seal in self._seals:
            signature = render_seal(seal)
            assert signature is not None
            thought = _Thought(len(self._steps), -1)
            events += [self._add(thought), thought.seal(signature), thought.end()]
        return events


def withheld(
    told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
) -> bytes:
    """Ends an interaction that was relayed and of which no more may be shown."""
    interaction: Mapping[str, Any] = {}
    steps: dict[int, None] = {}
    for event in told:
        match event:
            case {"event_type": "interaction.created", "interaction": dict(interaction)}:
                pass
            case {"event_type": "step.start", "index": int(index)}:
                steps[index] = None
            case {"event_type": "step.stop", "index": int(index)}:
                steps.pop(index, None)
    end = {**interaction, "status": _STATUS[StopReason.content_filter], "errors": [_BLOCKED]}
    stops = [encode_event("step.stop", {"index": index}) for index in steps]
    return b"".join((*stops, encode_event("interaction.completed", {"interaction": end})))
