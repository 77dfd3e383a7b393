"""The items of a response while they come: the events of each, and what it is in the end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from llama_compat.dialects.openai_responses.input.tools import Tool
from llama_compat.dialects.openai_responses.output.events import (
    OBFUSCATED_SIZE,
    DeltaTemplate,
    EventWriter,
    obfuscation,
)
from llama_compat.dialects.openai_responses.sealed import Sealed, seal
from llama_compat.tools.custom_tools import InputUnwrapper
from llama_compat.types import ReasoningContent, ReasoningDelta, TokenLogProb, TokenLogProbs

NO_LOGPROBS = b',"logprobs":[]'


class Place:
    """Where an item is, and what all items of a response share.

    Args:
        writer: numbers the events.
        index: the item's place in the output.
        unique: of the response, for the item's id.
        obfuscate: whether deltas hide their length.
    """

    def __init__(self, writer: EventWriter, index: int, unique: str, *, obfuscate: bool) -> None:
        self.writer = writer
        self.index = index
        self.unique = unique
        self.obfuscate = obfuscate

    def item_id(self, prefix: str) -> str:
        """The item's id: the same from its first event to the last."""
        return f"{prefix}_{self.unique}{self.index:04x}"


class Item:
    """One item of the output.

    Attributes:
        item: what it is so far; all of it once it is done.
        done: no more will come.
    """

    prefix: str

    def __init__(self, place: Place, item: dict[str, Any]) -> None:
        self._place = place
        self._writer = place.writer
        self.item = {"id": place.item_id(self.prefix), **item}
        self.done = False

    def begin(self) -> bytes:
        """The event that the item is there."""
        return self._writer.event(
            "response.output_item.added", {"output_index": self._place.index, "item": self.item}
        )

    def end(self, status: str) -> bytes:
        """The event that the item is whole, or never will be."""
        self.done = True
        if "status" in self.item:
            self.item["status"] = status
        return self._writer.event(
            "response.output_item.done", {"output_index": self._place.index, "item": self.item}
        )

    def _at(self, **members: Any) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self._place.index, **members}

    def _delta(self, template: DeltaTemplate, text: str) -> bytes:
        if not self._place.obfuscate:
            return self._writer.delta(template, text)
        random = secrets.token_hex(OBFUSCATED_SIZE // 2)
        return self._writer.delta(template, text, obfuscation(text, random))


class MessageItem(Item):
    """What the model says: texts and refusals, one content part each."""

    prefix = "msg"

    def __init__(self, place: Place) -> None:
        super().__init__(
            place, {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
        )
        self._said: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []
        self._is_refusal = False
        self._template: DeltaTemplate | None = None

    def begin_part(self, *, is_refusal: bool) -> bytes:
        """A further content part; the one before it is whole."""
        ended = self.end_part()
        self._is_refusal = is_refusal
        part = self._part()
        kind = "refusal" if is_refusal else "output_text"
        members = self._at(content_index=len(self.item["content"]))
        tail = b"" if is_refusal else NO_LOGPROBS
        self._template = DeltaTemplate(f"response.{kind}.delta", members, tail)
        return ended + self._writer.event("response.content_part.added", {**members, "part": part})

    def say(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> bytes:
        """More of the open part."""
        assert self._template is not None
        self._said.append(text)
        if not logprobs:
            return self._delta(self._template, text)
        self._logprobs += logprobs
        members = self._at(
            content_index=len(self.item["content"]), delta=text, logprobs=list(logprobs)
        )
        return self._writer.event("response.output_text.delta", members)

    def annotate(self, annotation: dict[str, Any]) -> bytes:
        """Something is to be known of a place in the open part."""
        members = self._at(
            content_index=len(self.item["content"]),
            annotation_index=len(self._annotations),
            annotation=annotation,
        )
        self._annotations.append(annotation)
        return self._writer.event("response.output_text.annotation.added", members)

    def end_part(self) -> bytes:
        """The open part is whole, if there is one."""
        if self._template is None:
            return b""
        part = self._part()
        at = self._at(content_index=len(self.item["content"]))
        if self._is_refusal:
            done = self._writer.event("response.refusal.done", {**at, "refusal": part["refusal"]})
        else:
            whole = {"text": part["text"], "logprobs": part["logprobs"]}
            done = self._writer.event("response.output_text.done", {**at, **whole})
        self.item["content"].append(part)
        self._template, self._said, self._logprobs = None, [], []
        self._annotations = []
        return done + self._writer.event("response.content_part.done", {**at, "part": part})

    def end(self, status: str) -> bytes:
        ended = self.end_part()
        return ended + super().end(status)

    def _part(self) -> dict[str, Any]:
        said = "".join(self._said)
        if self._is_refusal:
            return {"type": "refusal", "refusal": said}
        return {
            "type": "output_text",
            "text": said,
            "annotations": self._annotations,
            "logprobs": self._logprobs,
        }


class ReasoningItem(Item):
    """What the model thinks.

    Args:
        place: where it is.
        as_summary: whether the client looks for it among the summaries, having asked for one.
    """

    prefix = "rs"

    def __init__(self, place: Place, *, as_summary: bool) -> None:
        shown: dict[str, Any] = {"summary": []} if as_summary else {"summary": [], "content": []}
        super().__init__(place, {"type": "reasoning", **shown, "encrypted_content": None})
        self._kind = _SUMMARY if as_summary else _TEXT
        self._said: list[str] = []
        self._template: DeltaTemplate | None = None
        self._last = ReasoningDelta("")

    def think(self, delta: ReasoningDelta) -> bytes:
        """More of it."""
        self._last = delta
        if delta.redacted or not delta.text:
            return b""
        begun = b""
        if self._template is None:
            at = self._at(**{self._kind.index_name: 0})
            part = {"type": self._kind.part_type, "text": ""}
            begun = self._writer.event(self._kind.added, {**at, "part": part})
            self._template = DeltaTemplate(f"{self._kind.text}.delta", at)
        self._said.append(delta.text)
        return begun + self._delta(self._template, delta.text)

    def end(self, status: str) -> bytes:
        text, last = "".join(self._said), self._last
        ended = b""
        if self._template is not None:
            at = self._at(**{self._kind.index_name: 0})
            part = {"type": self._kind.part_type, "text": text}
            self.item[self._kind.member] = [part]
            ended = self._writer.event(f"{self._kind.text}.done", {**at, "text": text})
            ended += self._writer.event(self._kind.done, {**at, "part": part})
        if last.redacted:
            text = last.text
        self.item["encrypted_content"] = seal(
            ReasoningContent(text, last.signature, last.sealed_by, last.redacted)
        )
        return ended + super().end(status)


class _ReasoningEvents:
    """How the two ways to show reasoning are called."""

    def __init__(
        self, *, member: str, part_type: str, index_name: str, text: str, part: str
    ) -> None:
        self.member = member
        self.part_type = part_type
        self.index_name = index_name
        self.text = text
        self.added, self.done = f"{part}.added", f"{part}.done"


_TEXT = _ReasoningEvents(
    member="content",
    part_type="reasoning_text",
    index_name="content_index",
    text="response.reasoning_text",
    part="response.content_part",
)
_SUMMARY = _ReasoningEvents(
    member="summary",
    part_type="summary_text",
    index_name="summary_index",
    text="response.reasoning_summary_text",
    part="response.reasoning_summary_part",
)


class SealItem(Item):
    """A reasoning item that shows nothing and holds what has to come back."""

    prefix = "rs"

    def __init__(self, place: Place, sealed: Sealed) -> None:
        super().__init__(
            place, {"type": "reasoning", "summary": [], "encrypted_content": seal(sealed)}
        )


class CallItem(Item):
    """A call of a function."""

    prefix = "fc"
    member = "arguments"
    text = "response.function_call_arguments"

    def __init__(self, place: Place, tool: Tool, call_id: str) -> None:
        named = {"call_id": call_id, "name": tool.name}
        if tool.namespace is not None:
            named["namespace"] = tool.namespace
        super().__init__(place, {**self._frame(), **named, self.member: ""})
        self._template = DeltaTemplate(f"{self.text}.delta", self._at())
        self._said: list[str] = []
        self.has_arguments = False

    def _frame(self) -> dict[str, Any]:
        return {"type": "function_call", "status": "in_progress"}

    def write(self, arguments: str) -> bytes:
        """More of the arguments' text."""
        self.has_arguments = True
        return self._write(self._unwrapped(arguments))

    def end(self, status: str) -> bytes:
        ended = self._write(self._rest())
        whole = "".join(self._said)
        self.item[self.member] = whole
        return (
            ended
            + self._writer.event(f"{self.text}.done", self._at(**self._named(whole)))
            + super().end(status)
        )

    def _write(self, text: str) -> bytes:
        if not text:
            return b""
        self._said.append(text)
        return self._delta(self._template, text)

    def _named(self, whole: str) -> Mapping[str, Any]:
        return {"name": self.item["name"], self.member: whole}

    def _unwrapped(self, arguments: str) -> str:
        return arguments

    def _rest(self) -> str:
        return ""


class CustomCallItem(CallItem):
    """A call of a custom tool, whose input is unwrapped as it comes."""

    prefix = "ctc"
    member = "input"
    text = "response.custom_tool_call_input"

    def __init__(self, place: Place, tool: Tool, call_id: str) -> None:
        super().__init__(place, tool, call_id)
        self._unwrapper = InputUnwrapper()

    def _frame(self) -> dict[str, Any]:
        return {"type": "custom_tool_call"}

    def _named(self, whole: str) -> Mapping[str, Any]:
        return {self.member: whole}

    def _unwrapped(self, arguments: str) -> str:
        return self._unwrapper.push(arguments)

    def _rest(self) -> str:
        return self._unwrapper.finish()


def render_logprobs(logprobs: Sequence[TokenLogProbs]) -> list[dict[str, Any]]:
    """The `logprobs` of a text."""
    return [
        {**_token(each.chosen), "top_logprobs": [_token(top) for top in each.top]}
        for each in logprobs
    ]


def _token(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token_bytes)}
