"""Streams, chunk by chunk."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec import Raw

from llama_compat.dialects.openai.mending.fields import (
    CHAT,
    EMPTY_LIST,
    EMPTY_OBJECT,
    EMPTY_STRING,
    NULL,
    ReplyKind,
    encode,
    generated_id,
    lacks,
)
from llama_compat.dialects.openai.mending.parts import is_null, mend_reasoning, mended_finish_reason
from llama_compat.dialects.openai.mending.tool_calls import ToolCalls
from llama_compat.wire.json_fields import JSONFields, parse_object, parse_objects, to_raw


class StreamMender:
    """Mends the chunks of one stream.

    Args:
        kind: `CHAT` or `TEXT`.
        model: the model id that the client asked for, in JSON.
        include_usage: whether the client asked for a chunk with the usage.
        continuous_usage: whether it asked for the usage in every chunk (vLLM's
            `stream_options.continuous_usage_stats`).
        wanted_choices: how many the client asked for.

    Attributes:
        last_usage: the last usage that the vendor sent, if any.
        spoken: whether a choice has said anything, or has come to its end.
    """

    def __init__(
        self,
        kind: ReplyKind,
        model: Raw,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
        wanted_choices: int = 1,
    ) -> None:
        self._kind = kind
        self._model = model
        self._include_usage = include_usage
        self._keep_usage = include_usage and continuous_usage
        self._wanted_choices = wanted_choices
        self._id: Raw | None = None
        self._created: Raw | None = None
        self._choices: dict[bytes, _ChoiceState] = {}
        self._usage: Raw | None = None
        self._usage_sent = False
        self.last_usage: Raw | None = None
        self.spoken = False

    @property
    def finished(self) -> bool:
        """Whether every choice that was asked for has come to its end."""
        choices = self._choices.values()
        return len(choices) >= self._wanted_choices and all(choice.finished for choice in choices)

    @property
    def started(self) -> bool:
        """Whether any choice was seen."""
        return bool(self._choices)

    def mend(self, chunk: JSONFields) -> JSONFields | None:
        """The chunk, mended in place; None for one that the client did not ask for.

        Raises:
            ValueError: it is no chunk: its parts are not what they have to be.
        """
        chunk["model"] = self._model
        self._fill_in(chunk)
        raw_choices = chunk.get("choices")
        if raw_choices is None or raw_choices == NULL:
            raw_choices = chunk["choices"] = EMPTY_LIST
        choices = parse_objects(raw_choices)
        mended = [self._mend_choice(choice, place) for place, choice in enumerate(choices)]
        if any(mended):
            chunk["choices"] = encode(choices)
        if "usage" in chunk and not self._mend_usage(chunk, bool(choices)):
            return None
        return chunk

    def end(self) -> list[JSONFields]:
        """What is still to be said when the vendor has said that the stream is over."""
        chunks = []
        unfinished = [choice for choice in self._choices.values() if not choice.finished]
        if unfinished:
            chunks.append(self._chunk([_last_choice(self._kind, choice) for choice in unfinished]))
        if self._include_usage and self._usage is not None and not self._usage_sent:
            chunks.append({**self._chunk([]), "usage": self._usage})
        return chunks

    def _chunk(self, choices: list[JSONFields]) -> JSONFields:
        chunk: JSONFields = {}
        self._fill_in(chunk)
        return {**chunk, "model": self._model, "choices": encode(choices)}

    def _fill_in(self, chunk: JSONFields) -> None:
        if lacks(chunk, "id"):
            chunk["id"] = self._id = self._id or generated_id(self._kind.id_prefix)
        elif self._id is None:
            self._id = chunk["id"]
        if lacks(chunk, "object"):
            chunk["object"] = self._kind.chunk_object
        if lacks(chunk, "created"):
            chunk["created"] = self._created = self._created or to_raw(int(time.time()))
        elif self._created is None:
            self._created = chunk["created"]

    def _mend_usage(self, chunk: JSONFields, has_choices: bool) -> bool:
        # OpenAI's place for it is a last chunk of its own, without choices. SDKs and frameworks add
        # up what they find, so it must not be anywhere else.
        usage = chunk["usage"]
        if usage == NULL:
            return True
        self.last_usage = usage
        if self._keep_usage:
            return True
        if not self._include_usage:
            del chunk["usage"]
            return has_choices
        if has_choices:
            chunk["usage"] = NULL
        elif self.finished and not self._usage_sent:
            self._usage_sent = True
            return True
        self._usage = usage
        return has_choices

    def _mend_choice(self, choice: JSONFields, place: int) -> bool:
        changed = False
        said = choice
        if lacks(choice, "index"):
            choice["index"] = to_raw(place)
            changed = True
        index = bytes(choice["index"])
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _ChoiceState(index)
        if self._kind is CHAT:
            said = delta = {} if lacks(choice, "delta") else parse_object(choice["delta"])
            if state.mend_delta(delta) or lacks(choice, "delta"):
                choice["delta"] = encode(delta)
                changed = True
        changed = state.mend_finish_reason(choice) or changed
        if not self.spoken:
            self.spoken = state.finished or any(
                said.get(name, NULL) not in _NOTHING for name in _CONTENT
            )
        return changed


_CONTENT = (
    "content",
    "text",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "images",
)
"""What a delta, or a choice that is text, may say."""

_NOTHING = (NULL, EMPTY_STRING, EMPTY_LIST, EMPTY_OBJECT)


@dataclass(slots=True)
class _ChoiceState:
    """What has to be known of a choice's earlier chunks."""

    index: bytes
    finished: bool = False
    has_role: bool = False
    has_null_reasons: bool = False
    tool_calls: ToolCalls | None = None

    def mend_delta(self, delta: JSONFields) -> bool:
        changed = mend_reasoning(delta)
        if "role" in delta:
            # SDKs join the strings of all deltas: a role that comes twice is "assistantassistant".
            if self.has_role:
                del delta["role"]
                changed = True
            self.has_role = True
        if "tool_calls" in delta and delta["tool_calls"] not in (NULL, EMPTY_LIST):
            fragments = parse_objects(delta["tool_calls"])
            self.tool_calls = self.tool_calls or ToolCalls()
            mended = [self.tool_calls.mend(fragment) for fragment in fragments]
            if any(mended):
                delta["tool_calls"] = encode(fragments)
                changed = True
        return changed

    def mend_finish_reason(self, choice: JSONFields) -> bool:
        reason = choice.get("finish_reason")
        if is_null(reason):
            self.has_null_reasons = True
            return False
        if reason == EMPTY_STRING and not self.has_null_reasons:
            # All chunks of this vendor have it, as others have null.
            choice["finish_reason"] = NULL
            return True
        self.finished = True
        mended = mended_finish_reason(choice["finish_reason"], self.tool_calls is not None)
        if mended is None:
            return False
        choice["finish_reason"] = mended
        return True


def _last_choice(kind: ReplyKind, state: _ChoiceState) -> JSONFields:
    content = {"delta": EMPTY_OBJECT} if kind is CHAT else {"text": EMPTY_STRING}
    reason = "tool_calls" if state.tool_calls is not None else "stop"
    return {"index": Raw(state.index), **content, "finish_reason": to_raw(reason)}
