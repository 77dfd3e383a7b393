"""Streams, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Raw

from llama_compat.dialects.openai.repair.fields import (
    CHAT,
    EMPTY_LIST,
    EMPTY_OBJECT,
    EMPTY_STRING,
    NULL,
    ReplyKind,
    as_text,
    encode,
    generated_id,
    lacks,
)
from llama_compat.dialects.openai.repair.parts import (
    ASSISTANT,
    created_now,
    is_null,
    is_time,
    mend_content,
    mend_reasoning,
    mended_finish_reason,
    mended_usage,
    names_no_reason,
)
from llama_compat.dialects.openai.repair.tool_calls import ToolCalls
from llama_compat.wire.json_fields import (
    JSONFields,
    is_empty,
    parse_object,
    parse_objects,
    to_raw,
)


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
        if self._id is None:
            prefix = self._kind.id_prefix
            self._id = generated_id(prefix) if lacks(chunk, "id") else as_text(chunk["id"])
        chunk["id"] = self._id
        chunk["object"] = self._kind.chunk_object
        if not is_time(chunk.get("created")):
            chunk["created"] = self._created = self._created or created_now()
        elif self._created is None:
            self._created = chunk["created"]

    def _mend_usage(self, chunk: JSONFields, has_choices: bool) -> bool:
        # OpenAI's place for it is a last chunk of its own, without choices. SDKs and frameworks add
        # up what they find, so it must not be anywhere else.
        usage = chunk["usage"] = mended_usage(chunk["usage"])
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
        state = self._state(choice, place)
        if choice.get("index") != state.index:
            choice["index"] = state.index
            changed = True
        if self._kind is CHAT:
            changed = state.mend_message(choice) or changed
            said = delta = {} if lacks(choice, "delta") else parse_object(choice["delta"])
            if state.mend_delta(delta) or lacks(choice, "delta"):
                choice["delta"] = encode(delta)
                changed = True
        changed = state.mend_finish_reason(choice) or changed
        if not self.spoken:
            self.spoken = state.finished or any(not is_empty(said.get(name)) for name in _CONTENT)
        return changed

    def _state(self, choice: JSONFields, place: int) -> _ChoiceState:
        # Where one choice was asked for it is the first, whatever number the vendor gives it.
        named = bytes(choice.get("index", NULL)).strip(b'"')
        name = named if named.isdigit() else str(place).encode()
        state = self._choices.get(name)
        if state is None:
            index = to_raw(len(self._choices)) if self._wanted_choices == 1 else Raw(name)
            state = self._choices[name] = _ChoiceState(index)
        return state


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


@dataclass(slots=True)
class _ChoiceState:
    """What has to be known of a choice's earlier chunks."""

    index: Raw
    finished: bool = False
    has_role: bool = False
    has_null_reasons: bool = False
    speaks_in_messages: bool | None = None
    tool_calls: ToolCalls | None = None

    def mend_message(self, choice: JSONFields) -> bool:
        """Make a delta of a choice's message: some vendors call it so, and some stream one event
        that is all of the reply. But where deltas came, a message is all of it once more."""
        if not lacks(choice, "delta"):
            self.speaks_in_messages = self.speaks_in_messages or False
            return False
        if lacks(choice, "message"):
            return False
        message = choice.pop("message")
        if self.speaks_in_messages is None:
            self.speaks_in_messages = True
        if self.speaks_in_messages:
            choice["delta"] = message
        return True

    def mend_delta(self, delta: JSONFields) -> bool:
        changed = mend_content(delta)
        changed = mend_reasoning(delta) or changed
        # SDKs join the strings of all deltas: a role that comes twice is "assistantassistant", and
        # one that does not come is none.
        if self.has_role:
            changed = delta.pop("role", None) is not None or changed
        elif delta.get("role") != ASSISTANT:
            delta["role"] = ASSISTANT
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
        if reason is None or is_null(reason):
            self.has_null_reasons = True
            return False
        if reason == EMPTY_STRING and not self.has_null_reasons:
            # All chunks of this vendor have it, as others have null.
            choice["finish_reason"] = NULL
            return True
        if reason != EMPTY_STRING and names_no_reason(reason):
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
    return {"index": state.index, **content, "finish_reason": to_raw(reason)}
