"""The stream of a response: vocabulary -> wire.

Its order is that of https://www.openresponses.org/specification: created, in_progress; of every
item added, its parts, their deltas, done; and one last event with all of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_compat.dialects.base import Labels
from llama_compat.dialects.openai_responses.errors import error_event, response_error
from llama_compat.dialects.openai_responses.input.tools import Toolbox
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.openai_responses.output.events import EventWriter
from llama_compat.dialects.openai_responses.output.hosted import HostedItem, render_citation
from llama_compat.dialects.openai_responses.output.items import (
    CallItem,
    CustomCallItem,
    Item,
    MessageItem,
    Place,
    ReasoningItem,
    SealItem,
    render_logprobs,
)
from llama_compat.dialects.openai_responses.output.response_object import response_object
from llama_compat.dialects.openai_responses.sealed import CallSeal
from llama_compat.errors import APIError
from llama_compat.hosted.vocabulary import Citation, CitationDelta, HostedCall, HostedCallDelta
from llama_compat.types import (
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    TokenLogProbs,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
)
from llama_compat.wire import sse

_INCOMPLETE = {
    StopReason.out_of_tokens: "max_output_tokens",
    StopReason.content_filter: "content_filter",
}
"""Why a response is incomplete, by why the model stopped; otherwise it is completed."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a response is shown, as the request wants it.

    Attributes:
        said: what the response repeats of the request.
        toolbox: what the client calls the tools.
        summarizes: whether reasoning goes where a client looks for its summary.
        with_logprobs: whether log probabilities are wanted.
        obfuscate: whether deltas hide their length.
        previous_response_id: the response that this one goes on from.
        with_sources: whether a search of the web says what it has found.
        with_results: whether a search in files does.
    """

    said: Mapping[str, Any]
    toolbox: Toolbox
    summarizes: bool = False
    with_logprobs: bool = False
    obfuscate: bool = False
    previous_response_id: str | None = None
    with_sources: bool = False
    with_results: bool = False


class StreamRenderer:
    """Renders the one choice of a response.

    What says nothing yet (`response.created`) is held back until something does, so that what fails
    before has its own status.

    Args:
        shown: how.
        labels: of the reply.
        keeping: the store's side of it, if there is one.

    Attributes:
        whole: the response object, once it has come to its end.
    """

    def __init__(self, shown: Shown, labels: Labels, keeping: Keeping | None = None) -> None:
        self._shown = shown
        self._labels = labels
        self._keeping = keeping
        self._id = f"resp_{labels.unique}" if keeping is None else keeping.response_id
        self._writer = EventWriter()
        self._begun = False
        self._output: list[Item] = []
        self._by_part: dict[int, Item] = {}
        self._talk: MessageItem | ReasoningItem | None = None
        self._part = -1
        self._held_logprobs: list[dict[str, Any]] = []
        self._seals: dict[int, CallSeal] = {}
        self._incomplete: str | None = None
        self._tier: str | None = None
        self.whole: dict[str, Any] | None = None

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """What `event` adds."""
        if isinstance(event, StreamProgress):
            delta = event.delta
            if isinstance(delta, TextDelta):
                return self._render_text(delta, event.part, event.logprobs)
            if isinstance(delta, ToolCallDelta):
                return self._render_call(delta, event.part)
            if isinstance(delta, RefusalDelta):
                return self._begin() + self._message(event.part, is_refusal=True, text=delta.text)
            if isinstance(delta, HostedCallDelta):
                return self._render_hosted(delta.call, event.part)
            if isinstance(delta, CitationDelta):
                return self._render_citation(delta.citation, event.part)
            # No image gets here: there is no place for one.
            return (
                self._render_reasoning(delta, event.part)
                if isinstance(delta, ReasoningDelta)
                else b""
            )
        if isinstance(event, StreamComplete):
            self._incomplete = _INCOMPLETE.get(event.stop_reason)
            self._tier = event.service_tier
            return self._begin() + self._end_items()
        return b""

    def finish(self, usage: Usage) -> bytes:
        """The last event, with all of the response."""
        status = "completed" if self._incomplete is None else "incomplete"
        begun = self._begin()
        completed = int(time.time()) if status == "completed" else None
        self._end(status, completed=completed, incomplete=self._incomplete, usage=usage)
        return begun + self._writer.event(f"response.{status}", {"response": self.whole})

    def fail(self, error: APIError) -> bytes:
        """The error, the failed response, and the stream's end."""
        begun = self._begin() + self._writer.event("error", error_event(error))
        self._output = [item for item in self._output if item.done]
        self._end("failed", error=response_error(error))
        failed = self._writer.event("response.failed", {"response": self.whole})
        return begun + failed + sse.DONE

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        begun = {"response": self.object("in_progress")}
        return self._writer.event("response.created", begun) + self._writer.event(
            "response.in_progress", begun
        )

    def object(self, status: str, **members: Any) -> dict[str, Any]:
        """The response object as it stands, with `members` of `response_object` beside."""
        keeping = self._keeping
        return response_object(
            self._shown.said,
            response_id=self._id,
            created=self._labels.created if keeping is None else keeping.created,
            model=self._labels.model,
            status=status,
            output=[item.item for item in self._output],
            service_tier=self._tier,
            store=keeping is not None and keeping.store,
            background=keeping is not None and keeping.background,
            previous_response_id=self._shown.previous_response_id,
            **members,
        )

    def _end(self, status: str, **members: Any) -> None:
        self.whole = self.object(status, **members)
        if self._keeping is not None:
            self._keeping.response = self.whole

    # Parts ----------------------------------------------------------------------------------------

    def _render_text(
        self, delta: TextDelta, part: int, logprobs: tuple[TokenLogProbs, ...] | None
    ) -> bytes:
        shown: list[dict[str, Any]] = []
        if self._shown.with_logprobs and (logprobs or self._held_logprobs):
            shown = [*self._held_logprobs, *render_logprobs(logprobs or ())]
            self._held_logprobs = []
        if not delta.text:
            self._held_logprobs = shown
            return b""
        begun = b"" if self._begun else self._begin()
        return begun + self._message(part, is_refusal=False, text=delta.text, logprobs=shown)

    def _message(
        self,
        part: int,
        *,
        is_refusal: bool,
        text: str,
        logprobs: list[dict[str, Any]] | None = None,
    ) -> bytes:
        talk = self._talk
        if part == self._part and isinstance(talk, MessageItem):
            return talk.say(text, logprobs or ())
        begun = b""
        if not isinstance(talk, MessageItem):
            begun = self._end_talk()
            talk = self._talk = MessageItem(self._place())
            begun += self._add(talk, part)
        self._part = part
        begun += talk.begin_part(is_refusal=is_refusal)
        return begun + talk.say(text, logprobs or ())

    def _render_reasoning(self, delta: ReasoningDelta, part: int) -> bytes:
        begun = self._begin()
        talk = self._talk
        if part != self._part or not isinstance(talk, ReasoningItem):
            begun += self._end_talk()
            talk = self._talk = ReasoningItem(self._place(), as_summary=self._shown.summarizes)
            begun += self._add(talk, part)
            self._part = part
        return begun + talk.think(delta)

    def _render_call(self, delta: ToolCallDelta, part: int) -> bytes:
        begun = self._begin()
        call, item = delta.tool_call, self._by_part.get(part)
        if not isinstance(item, CallItem):
            begun += self._end_talk()
            tool = self._shown.toolbox.called(call.tool_name if call else delta.tool_name)
            of = CustomCallItem if tool.is_custom else CallItem
            item = of(self._place(), tool, call.call_id if call else delta.call_id)
            begun += self._add(item, part)
        if delta.arguments:
            begun += item.write(delta.arguments)
        if call is None:
            return begun
        if not item.has_arguments and call.arguments_json:
            begun += item.write(call.arguments_json)
        if isinstance(call, ToolCall) and call.thought_signature is not None:
            self._seals[part] = CallSeal(call.call_id, call.thought_signature)
        if delta.parse_status is ToolCallParseStatus.succeeded:
            begun += item.end("completed")
        # Whether one that failed was cut off is known when the reply has ended.
        return begun

    def _render_hosted(self, call: HostedCall, part: int) -> bytes:
        begun = self._begin()
        item = self._by_part.get(part)
        if not isinstance(item, HostedItem):
            begun += self._end_talk()
            is_in_files = call.kind == "file_search"
            wanted = self._shown.with_results if is_in_files else self._shown.with_sources
            item = HostedItem(self._place(), call, with_sources=wanted)
            self._output.append(item)
            self._by_part[part] = item
            begun += item.begin_with(call)
        return begun if call.status == "in_progress" else begun + item.end_with(call)

    def _render_citation(self, citation: Citation, part: int) -> bytes:
        talk = self._talk
        if part != self._part or not isinstance(talk, MessageItem):
            return b""
        return talk.annotate(render_citation(citation))

    def _place(self) -> Place:
        return Place(
            self._writer,
            len(self._output),
            self._labels.unique,
            obfuscate=self._shown.obfuscate,
        )

    def _add(self, item: Item, part: int) -> bytes:
        self._output.append(item)
        self._by_part[part] = item
        return item.begin()

    def _end_talk(self) -> bytes:
        talk, self._talk, self._part = self._talk, None, -1
        return b"" if talk is None else talk.end("completed")

    def _end_items(self) -> bytes:
        """Every item comes to its end; one that the model was cut off in is the last."""
        ended = b""
        for item in self._output:
            if not item.done:
                cut = self._incomplete is not None and item is self._output[-1]
                if isinstance(item, CallItem) and self._incomplete is not None:
                    cut = True
                ended += item.end("incomplete" if cut else "completed")
        self._talk = None
        if self._incomplete is None:
            for _, sealed in sorted(self._seals.items()):
                item = SealItem(self._place(), sealed)
                self._output.append(item)
                ended += item.begin() + item.end("completed")
        return ended
