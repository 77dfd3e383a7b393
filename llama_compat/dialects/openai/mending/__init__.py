"""What vendors get wrong in OpenAI's replies, put right: in a whole reply, or chunk by chunk.

A reply is taken apart one level at a time, and a level is written anew only if something on it (or
below) was wrong. All other values keep the bytes that the vendor sent.

What is right is in https://platform.openai.com/docs/api-reference/chat-streaming; what is asked of
tool calls is what OpenAI's own SDKs need to put their fragments together.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from llama_compat.dialects.openai.embeddings import base64_of
from llama_compat.dialects.openai.finish_reasons import finish_reason as finish_word
from llama_compat.dialects.openai.finish_reasons import stop_reason
from llama_compat.wire.json_fields import (
    JSONFields,
    from_raw,
    parse_fields,
    parse_object,
    parse_objects,
    to_raw,
)

_NULL = Raw(b"null")
_EMPTY_STRING = Raw(b'""')
_EMPTY_LIST = Raw(b"[]")
_EMPTY_OBJECT = Raw(b"{}")
_FUNCTION = Raw(b'"function"')

_OWN_WORDS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
"""OpenAI's finish reasons."""


@dataclass(frozen=True, slots=True)
class ReplyKind:
    """What OpenAI calls the replies of one operation."""

    id_prefix: str
    object: Raw
    chunk_object: Raw


CHAT = ReplyKind("chatcmpl-", Raw(b'"chat.completion"'), Raw(b'"chat.completion.chunk"'))
TEXT = ReplyKind("cmpl-", Raw(b'"text_completion"'), Raw(b'"text_completion"'))


def _lacks(fields: JSONFields, name: str) -> bool:
    value = fields.get(name)
    return value is None or value in (_NULL, _EMPTY_STRING)


def _encode(value: JSONFields | list[JSONFields]) -> Raw:
    return Raw(msgspec.json.encode(value))


def _generated_id(prefix: str) -> Raw:
    return Raw(f'"{prefix}{os.urandom(12).hex()}"'.encode())


# Whole replies ------------------------------------------------------------------------------------


def mend_completion(fields: JSONFields, kind: ReplyKind, model: Raw) -> None:
    """Mend a whole chat or text completion, in place; it has `choices`.

    Args:
        fields: the reply.
        kind: `CHAT` or `TEXT`.
        model: the model id that the client asked for, in JSON.

    Raises:
        ValueError: `choices` is no list of objects.
    """
    fields["model"] = model
    if _lacks(fields, "id"):
        fields["id"] = _generated_id(kind.id_prefix)
    if _lacks(fields, "object"):
        fields["object"] = kind.object
    if _lacks(fields, "created"):
        fields["created"] = to_raw(int(time.time()))
    choices = parse_objects(fields["choices"])
    mended = [_mend_whole_choice(choice, place) for place, choice in enumerate(choices)]
    if any(mended):
        fields["choices"] = _encode(choices)


def mend_embeddings(fields: JSONFields, model: Raw, *, as_base64: bool = False) -> None:
    """Mend a reply with embeddings, in place; it has `data`.

    Args:
        fields: the reply.
        model: the model id that the client asked for, in JSON.
        as_base64: whether the client asked for base64. OpenAI's SDKs do so unasked, and the one for
            JavaScript takes a list of numbers for base64 and makes nonsense of it.

    Raises:
        ValueError: `data` is no list of objects, or an embedding no list of numbers.
    """
    fields["model"] = model
    if _lacks(fields, "object"):
        fields["object"] = Raw(b'"list"')
    embeddings = parse_objects(fields["data"])
    mended = [
        _mend_embedding(embedding, place, as_base64) for place, embedding in enumerate(embeddings)
    ]
    if any(mended):
        fields["data"] = _encode(embeddings)


def _mend_embedding(embedding: JSONFields, place: int, as_base64: bool) -> bool:
    changed = False
    if _lacks(embedding, "object"):
        embedding["object"] = Raw(b'"embedding"')
        changed = True
    if _lacks(embedding, "index"):
        embedding["index"] = to_raw(place)
        changed = True
    vector = bytes(embedding.get("embedding", _NULL))
    if as_base64 and vector.startswith(b"["):
        embedding["embedding"] = to_raw(base64_of(msgspec.json.decode(vector, type=list[float])))
        changed = True
    return changed


def _mend_whole_choice(choice: JSONFields, place: int) -> bool:
    changed = False
    called_tools = False
    if _lacks(choice, "index"):
        choice["index"] = to_raw(place)
        changed = True
    if not _lacks(choice, "message"):
        message = parse_object(choice["message"])
        called_tools = not _lacks(message, "tool_calls") and message["tool_calls"] != _EMPTY_LIST
        if _mend_message(message, called_tools):
            choice["message"] = _encode(message)
            changed = True
    # A whole reply has come to its end, whether the vendor says why or not.
    reason = _EMPTY_STRING if _lacks(choice, "finish_reason") else choice["finish_reason"]
    mended_reason = _mended_finish_reason(reason, called_tools)
    if mended_reason is not None:
        choice["finish_reason"] = mended_reason
        changed = True
    return changed


def _mend_message(message: JSONFields, called_tools: bool) -> bool:
    changed = _mend_reasoning(message)
    if _lacks(message, "role"):
        message["role"] = Raw(b'"assistant"')
        changed = True
    if called_tools:
        calls = parse_objects(message["tool_calls"])
        mended = [_mend_first_fragment(call) for call in calls]
        if any(mended):
            message["tool_calls"] = _encode(calls)
            changed = True
    return changed


# Streams ------------------------------------------------------------------------------------------


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
        if raw_choices is None or raw_choices == _NULL:
            raw_choices = chunk["choices"] = _EMPTY_LIST
        choices = parse_objects(raw_choices)
        mended = [self._mend_choice(choice, place) for place, choice in enumerate(choices)]
        if any(mended):
            chunk["choices"] = _encode(choices)
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
        return {**chunk, "model": self._model, "choices": _encode(choices)}

    def _fill_in(self, chunk: JSONFields) -> None:
        if _lacks(chunk, "id"):
            chunk["id"] = self._id = self._id or _generated_id(self._kind.id_prefix)
        elif self._id is None:
            self._id = chunk["id"]
        if _lacks(chunk, "object"):
            chunk["object"] = self._kind.chunk_object
        if _lacks(chunk, "created"):
            chunk["created"] = self._created = self._created or to_raw(int(time.time()))
        elif self._created is None:
            self._created = chunk["created"]

    def _mend_usage(self, chunk: JSONFields, has_choices: bool) -> bool:
        # OpenAI's place for it is a last chunk of its own, without choices. SDKs and frameworks add
        # up what they find, so it must not be anywhere else.
        usage = chunk["usage"]
        if usage == _NULL:
            return True
        self.last_usage = usage
        if self._keep_usage:
            return True
        if not self._include_usage:
            del chunk["usage"]
            return has_choices
        if has_choices:
            chunk["usage"] = _NULL
        elif self.finished and not self._usage_sent:
            self._usage_sent = True
            return True
        self._usage = usage
        return has_choices

    def _mend_choice(self, choice: JSONFields, place: int) -> bool:
        changed = False
        if _lacks(choice, "index"):
            choice["index"] = to_raw(place)
            changed = True
        index = bytes(choice["index"])
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _ChoiceState(index)
        if self._kind is CHAT:
            delta = {} if _lacks(choice, "delta") else parse_object(choice["delta"])
            if state.mend_delta(delta) or _lacks(choice, "delta"):
                choice["delta"] = _encode(delta)
                changed = True
        return state.mend_finish_reason(choice) or changed


@dataclass(slots=True)
class _ChoiceState:
    """What has to be known of a choice's earlier chunks."""

    index: bytes
    finished: bool = False
    has_role: bool = False
    has_null_reasons: bool = False
    tool_calls: _ToolCalls | None = None

    def mend_delta(self, delta: JSONFields) -> bool:
        changed = _mend_reasoning(delta)
        if "role" in delta:
            # SDKs join the strings of all deltas: a role that comes twice is "assistantassistant".
            if self.has_role:
                del delta["role"]
                changed = True
            self.has_role = True
        if "tool_calls" in delta and delta["tool_calls"] not in (_NULL, _EMPTY_LIST):
            fragments = parse_objects(delta["tool_calls"])
            self.tool_calls = self.tool_calls or _ToolCalls()
            mended = [self.tool_calls.mend(fragment) for fragment in fragments]
            if any(mended):
                delta["tool_calls"] = _encode(fragments)
                changed = True
        return changed

    def mend_finish_reason(self, choice: JSONFields) -> bool:
        reason = choice.get("finish_reason")
        if _is_null(reason):
            self.has_null_reasons = True
            return False
        if reason == _EMPTY_STRING and not self.has_null_reasons:
            # All chunks of this vendor have it, as others have null.
            choice["finish_reason"] = _NULL
            return True
        self.finished = True
        mended = _mended_finish_reason(choice["finish_reason"], self.tool_calls is not None)
        if mended is None:
            return False
        choice["finish_reason"] = mended
        return True


def _last_choice(kind: ReplyKind, state: _ChoiceState) -> JSONFields:
    content = {"delta": _EMPTY_OBJECT} if kind is CHAT else {"text": _EMPTY_STRING}
    reason = "tool_calls" if state.tool_calls is not None else "stop"
    return {"index": Raw(state.index), **content, "finish_reason": to_raw(reason)}


# Parts of both ------------------------------------------------------------------------------------


def _is_null(value: Raw | None) -> bool:
    return value is None or value == _NULL


def _mended_finish_reason(raw: Raw, called_tools: bool) -> Raw | None:
    """OpenAI's word for what the vendor wrote; None where it needs no other.

    Raises:
        BrokenOffError: the vendor wrote that the reply is not all of it.
    """
    word = from_raw(raw)
    if not isinstance(word, str):
        return None
    if word in _OWN_WORDS:
        mended = "tool_calls" if called_tools and word in ("stop", "function_call") else word
    else:
        mended = finish_word(stop_reason(word), called_tools=called_tools)
    return None if mended == word else to_raw(mended)


def _mend_reasoning(message: JSONFields) -> bool:
    """Give a message's or a delta's reasoning by both of its names."""
    if "reasoning_content" in message:
        here, there = "reasoning_content", "reasoning"
    elif "reasoning" in message:
        here, there = "reasoning", "reasoning_content"
    else:
        return False
    if _lacks(message, here):
        here, there = there, here
    if _lacks(message, here) or not _lacks(message, there):
        return False
    if not bytes(message[here]).startswith(b'"'):
        return False
    message[there] = message[here]
    return True


@dataclass(slots=True)
class _Call:
    """A tool call of which a first fragment has come."""

    index: int
    id: Raw | None
    name: Raw | None
    arguments: list[Raw] = field(default_factory=list)

    def is_complete(self) -> bool:
        try:
            text = "".join(from_raw(piece) for piece in self.arguments)
            parse_fields(text.encode())
        except (TypeError, ValueError):
            return False
        return True


class _ToolCalls:
    """Tells which fragment belongs to which call of a choice, and numbers the calls from 0.

    The vendor's own `index` says so, where it has one. Where not, a fragment with a name begins
    another call if its id or the name is another, or the arguments so far are complete.
    Some vendors number all calls 0: there, too, an id and a name begin another one.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[bytes, _Call] = {}

    def mend(self, fragment: JSONFields) -> bool:
        """Mend `fragment` in place; whether anything was wrong."""
        kind = "custom" if "custom" in fragment else "function"
        function = {} if _lacks(fragment, kind) else parse_object(fragment[kind])
        number = None if _lacks(fragment, "index") else fragment["index"]
        id = None if _lacks(fragment, "id") else fragment["id"]
        name = None if _lacks(function, "name") else function["name"]

        call = self._find(number, id, name)
        if call is None:
            call = _Call(len(self._calls), id, name)
            self._calls.append(call)
            changed = _mend_first_fragment(fragment)
        else:
            changed = _mend_later_fragment(fragment, kind, function, call)
        if number is not None:
            self._by_index[bytes(number)] = call
        index = to_raw(call.index)
        if number != index:
            fragment["index"] = index
            changed = True
        if "arguments" in function:
            call.arguments.append(function["arguments"])
        return changed

    def _find(self, number: Raw | None, id: Raw | None, name: Raw | None) -> _Call | None:
        if number is not None:
            call = self._by_index.get(bytes(number))
            if call is None or name is None or call.name is None or (id and id == call.id):
                return call
            same_name = name == call.name
            if id is None:
                begins_another = not same_name and call.is_complete()
            else:
                begins_another = not same_name or call.is_complete()
            return None if begins_another else call
        if not self._calls:
            return None
        for call in self._calls:
            if id is not None and id == call.id:
                return call
        last = self._calls[-1]
        if name is None:
            return last
        if id is not None or (last.name is not None and name != last.name) or last.is_complete():
            return None
        return last


def _mend_first_fragment(call: JSONFields) -> bool:
    """Mend a call's first fragment, or a whole call."""
    changed = False
    if _lacks(call, "id"):
        call["id"] = _generated_id("call_")
        changed = True
    if _lacks(call, "type"):
        call["type"] = _FUNCTION
        changed = True
    if not _lacks(call, "function"):
        function = parse_object(call["function"])
        if function.get("arguments", _NULL) == _NULL:
            function["arguments"] = _EMPTY_STRING
            call["function"] = _encode(function)
            changed = True
    return _mend_arguments(call) or changed


def _mend_later_fragment(
    fragment: JSONFields, kind: str, function: JSONFields, call: _Call
) -> bool:
    changed = False
    # SDKs join strings, so that a repeated id would be doubled, and take a null type for the type.
    if "id" in fragment:
        del fragment["id"]
        changed = True
    if "type" in fragment and _lacks(fragment, "type"):
        del fragment["type"]
        changed = True
    name = function.get("name")
    if name is not None and (name == call.name or _lacks(function, "name")):
        del function["name"]
        fragment[kind] = _encode(function)
        changed = True
    elif call.name is None:
        call.name = name
    return _mend_arguments(fragment) or changed


def _mend_arguments(call: JSONFields) -> bool:
    """Make the text of arguments that are an object."""
    if _lacks(call, "function"):
        return False
    function = parse_object(call["function"])
    arguments = function.get("arguments")
    if arguments is None or not bytes(arguments).startswith((b"{", b"[")):
        return False
    function["arguments"] = to_raw(bytes(arguments).decode())
    call["function"] = _encode(function)
    return True


# A whole reply where a stream was asked for -------------------------------------------------------


def chunks_of(completion: JSONFields, kind: ReplyKind) -> list[JSONFields]:
    """A whole, mended reply as the chunks of a stream: all its text, then why it ended, then usage.

    Raises:
        ValueError: its parts are not what they have to be.
    """
    choices = parse_objects(completion["choices"])
    said, ended = [], []
    for choice in choices:
        last = {"index": choice["index"], "finish_reason": choice.pop("finish_reason", _NULL)}
        choice["finish_reason"] = _NULL
        if kind is CHAT:
            message = parse_object(choice.pop("message", _EMPTY_OBJECT))
            if not _lacks(message, "tool_calls"):
                calls = parse_objects(message["tool_calls"])
                numbered = [{"index": to_raw(i), **call} for i, call in enumerate(calls)]
                message["tool_calls"] = _encode(numbered)
            choice["delta"] = _encode(message)
            last["delta"] = _EMPTY_OBJECT
        else:
            last["text"] = _EMPTY_STRING
        said.append(choice)
        ended.append(last)
    frame = {name: value for name, value in completion.items() if name not in ("usage", "choices")}
    frame["object"] = kind.chunk_object
    chunks = [{**frame, "choices": _encode(each)} for each in (said, ended)]
    if not _lacks(completion, "usage"):
        chunks.append({**frame, "choices": _EMPTY_LIST, "usage": completion["usage"]})
    return chunks
