"""Tool calls: from a model's text to a typed call, whole or from the fragments of a stream.

A call to a tool that the request did not offer is passed on like any other when a vendor says that
it is a call: the client is the one who knows its tools, and must answer it. Only where calls are
looked for in plain text (`llama_compat.tools.formats`) does such a call stay text.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import structs

from llama_compat.hosted.vocabulary import HostedCall
from llama_compat.text.surrogates import SurrogateJoiner, joined, json_escape
from llama_compat.types import (
    AnyToolCall,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    UnparseableToolCall,
)
from llama_compat.wire.json_fields import refuse_constant, to_raw
from llama_compat.wire.json_scanner import JSONScanner


def new_call_id() -> str:
    """An id of OpenAI's form, `call_` and 24 characters."""
    return f"call_{os.urandom(12).hex()}"


def call_id_at(path: str) -> str:
    """An id for a call without one, which stands at `path` in its request: the same whenever the
    conversation comes again, as vendors cache it, and hold seals against it."""
    return f"call_{blake2b(path.encode(), digest_size=12).hexdigest()}"


def parse_tool_call(call_id: str, tool_name: str, arguments_json: str) -> AnyToolCall:
    """The call with its arguments parsed; no text at all means no arguments, and half a character
    in them is its escape.

    Returns:
        An `UnparseableToolCall`, which keeps the text, if the arguments are not a JSON object.

    Raises:
        ValueError: the id or the name is no text.
    """
    if not (isinstance(call_id, str) and isinstance(tool_name, str)):
        raise ValueError("the id or the name of a tool call is no text")
    if not arguments_json or arguments_json.isspace():
        return ToolCall(call_id, tool_name, {}, "{}")
    arguments_json = joined(arguments_json, json_escape)
    try:
        arguments = parse_json(arguments_json)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return UnparseableToolCall(call_id, tool_name, arguments_json)
    return ToolCall(call_id, tool_name, arguments, arguments_json)


def bounded_call_id(call_id: str, limit: int) -> str:
    """A call's id for an API whose own have so many characters at most: the same for the same, and
    for no others.

    Args:
        call_id: as whoever made the call has it.
        limit: in characters, more than 33.
    """
    if len(call_id) <= limit:
        return call_id
    digest = blake2b(call_id.encode(errors="surrogatepass"), digest_size=16)
    return f"{call_id[: limit - 33]}-{digest.hexdigest()}"


def arguments_text(arguments: Any) -> str:
    """The text of a call's arguments; some vendors send the object itself, or nothing."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return bytes(to_raw(arguments)).decode()


def arguments_object(call: AnyToolCall) -> dict[str, Any]:
    """The arguments of a call on a wire that takes nothing but objects, whichever way it goes.

    Text that is none, or not all of one, goes as the member that Anthropic suggests for it, whole
    or streamed: whoever runs the tool sees that it can't be run, and the model what it wrote.
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming
    """
    if isinstance(call, UnparseableToolCall):
        return {"INVALID_JSON": call.arguments_json}
    return call.arguments


def hosted_arguments(call: HostedCall) -> dict[str, Any]:
    """What the model gave a tool that the server runs; without what is no object."""
    return arguments_object(parse_tool_call(call.call_id, call.model_name, call.arguments_json))


def arguments_object_text(call: AnyToolCall) -> str:
    """The JSON of `arguments_object`, as the model wrote it where that is an object."""
    if isinstance(call, ToolCall):
        return call.arguments_json
    return bytes(to_raw(arguments_object(call))).decode()


def parse_json(text: str) -> Any:
    """The value of a JSON text that a model wrote.

    Raises:
        ValueError: not JSON, or nested too deeply.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:
        # Python's own parser also takes what msgspec refuses: huge numbers, half characters.
        return json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class ToolCallAssembler:
    """Puts the streamed tool calls of one reply together.

    Fragments go in, in any of the ways in which vendors cut calls: by index, several calls
    interleaved; without index, where a new id or name begins a new call; with the id or the name
    late, repeated or missing. Events come out, numbered in the order in which the calls began.

    In incremental mode each call gives `started` as soon as it has a name and an id (one is made if
    none has come when the arguments begin), `in_progress` for every further piece of its arguments,
    and `succeeded` or `failed` at its end. In whole mode it gives only the last. The pieces of the
    arguments, concatenated, are the final call's `arguments_json`, except that a call without
    arguments has none and ends as `{}`.

    Args:
        whole: give each call once, when it is complete.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def push(
        self,
        *,
        index: int | None = None,
        call_id: str | None = None,
        tool_name: str | None = None,
        arguments: str | None = None,
        thought_signature: str | None = None,
    ) -> list[ToolCallDelta]:
        """Take one fragment; `index` is the vendor's, and empty text is the same as None.

        Raises:
            ValueError: the id or the name is no text.
        """
        if not (isinstance(call_id, str | None) and isinstance(tool_name, str | None)):
            raise ValueError("the id or the name of a tool call is no text")
        call = self._call_of(index, call_id, tool_name)
        if call_id and not call.vendor_id:
            call.vendor_id = call_id
            self._by_id[call_id] = call
        if tool_name and not call.tool_name:
            call.tool_name = tool_name
        call.thought_signature = thought_signature or call.thought_signature
        events = call.take(arguments or "")
        return [] if self._whole else events

    def end(self, index: int) -> list[ToolCallDelta]:
        """The vendor says that its call `index` is complete; nothing if it has none open."""
        call = self._by_index.pop(index, None)
        return [] if call is None else self._end(call, cut=False)

    def finish(self, *, cut: bool = False) -> list[ToolCallDelta]:
        """The stream has ended, and with it every call that is still open.

        Args:
            cut: it broke off or ran out of tokens, so that a call without arguments may have been
                going to have some: it fails.
        """
        return [
            event for call in self._calls if not call.ended for event in self._end(call, cut=cut)
        ]

    def _end(self, call: _Call, *, cut: bool) -> list[ToolCallDelta]:
        events = call.end(cut=cut)
        return events[-1:] if self._whole else events

    def _call_of(self, index: int | None, call_id: str | None, tool_name: str | None) -> _Call:
        known = self._by_id.get(call_id or "")
        if index is not None:
            call = self._by_index.get(index)
        else:
            call = known or (self._calls[-1] if self._calls else None)
        if call is not None and call.differs(call_id, tool_name):
            call = known
        if call is None or call.ended:
            call = _Call(len(self._calls))
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        return call


class _Call:
    """One call as far as it has come."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.vendor_id = ""
        self.tool_name = ""
        self.thought_signature: str | None = None
        self.ended = False
        self._call_id = ""
        self._joiner = SurrogateJoiner(json_escape)
        self._arguments_begun = False
        self._held: list[str] = []
        self._given: list[str] = []
        self._scanner = JSONScanner()
        self._scanned = 0

    def differs(self, call_id: str | None, tool_name: str | None) -> bool:
        """Whether a fragment with this id and name belongs to another call.

        Ids decide. Without them another name does; the same name again may be a repetition, or,
        once the arguments are whole, the next call of the same tool.
        """
        if call_id and self.vendor_id:
            return call_id != self.vendor_id
        if tool_name and self.tool_name:
            return tool_name != self.tool_name or self._arguments_whole()
        return False

    def take(self, arguments: str) -> list[ToolCallDelta]:
        if arguments:
            self._hold(self._joiner.push(arguments))
        if self._call_id:
            return self._progress()
        if self.tool_name and (self.vendor_id or self._arguments_begun):
            return [self._start(), *self._progress()]
        return []

    def end(self, *, cut: bool) -> list[ToolCallDelta]:
        self.ended = True
        events = [] if self._call_id else [self._start()]
        self._hold(self._joiner.flush())
        events.extend(self._progress())
        arguments = "".join(self._given)
        call = parse_tool_call(self._call_id, self.tool_name, arguments)
        status = ToolCallParseStatus.failed
        if cut and not arguments:
            call = UnparseableToolCall(self._call_id, self.tool_name, arguments)
        elif isinstance(call, ToolCall):
            status = ToolCallParseStatus.succeeded
            if self.thought_signature:
                call = structs.replace(call, thought_signature=self.thought_signature)
        events.append(ToolCallDelta(self.index, status, tool_call=call))
        return events

    def _hold(self, arguments: str) -> None:
        # Blank text alone is no arguments; it waits for what follows it.
        self._held.append(arguments)
        if not self._arguments_begun:
            self._arguments_begun = bool(arguments) and not arguments.isspace()

    def _start(self) -> ToolCallDelta:
        self._call_id = self.vendor_id or new_call_id()
        return ToolCallDelta(
            self.index,
            ToolCallParseStatus.started,
            call_id=self._call_id,
            tool_name=self.tool_name,
        )

    def _progress(self) -> list[ToolCallDelta]:
        if not self._arguments_begun:
            return []
        piece = "".join(self._held)
        self._held.clear()
        if not piece:
            return []
        self._given.append(piece)
        return [ToolCallDelta(self.index, ToolCallParseStatus.in_progress, arguments=piece)]

    def _arguments_whole(self) -> bool:
        unscanned = self._given[self._scanned :]
        self._scanned = len(self._given)
        for piece in unscanned:
            if not (self._scanner.whole or self._scanner.broken):
                self._scanner.feed(piece)
        return self._scanner.whole
