"""The tool calls of a reply, whole or in fragments."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Raw

from llama_compat.dialects.openai.repair.fields import (
    EMPTY_STRING,
    NULL,
    as_text,
    encode,
    generated_id,
    is_text,
    lacks,
)
from llama_compat.wire.json_fields import JSONFields, from_raw, parse_object, to_raw
from llama_compat.wire.json_scanner import JSONScanner

_KINDS = {name: Raw(f'"{name}"'.encode()) for name in ("function", "custom")}
_NO_FUNCTION = Raw(b'{"arguments":""}')


@dataclass(slots=True)
class _Call:
    """A tool call of which a first fragment has come."""

    index: int
    id: Raw | None
    name: Raw | None
    arguments: list[Raw] = field(default_factory=list)
    _scanner: JSONScanner = field(default_factory=JSONScanner)

    def is_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object; each piece is looked at once."""
        for piece in self.arguments:
            text = from_raw(piece)
            if isinstance(text, str) and not (self._scanner.whole or self._scanner.broken):
                self._scanner.feed(text)
        self.arguments.clear()
        return self._scanner.whole


class ToolCalls:
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
        kind = _kind(fragment)
        function = {} if lacks(fragment, kind) else parse_object(fragment[kind])
        number = None if lacks(fragment, "index") else fragment["index"]
        id = None if lacks(fragment, "id") else fragment["id"]
        name = None if lacks(function, "name") else function["name"]

        call = self._find(number, id, name)
        if call is None:
            if id is not None and any(id == other.id for other in self._calls):
                del fragment["id"]  # of two calls with one id, only one could be answered
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


def mend_whole_calls(calls: list[JSONFields]) -> bool:
    """Mend the calls of a whole reply in place; whether anything was wrong."""
    changed = False
    ids: set[bytes] = set()
    for call in calls:
        if bytes(call.get("id", NULL)) in ids:
            del call["id"]
        changed = _mend_first_fragment(call) or changed
        ids.add(bytes(call["id"]))
    return changed


def _kind(call: JSONFields) -> str:
    return "custom" if "custom" in call else "function"


def _mend_first_fragment(call: JSONFields) -> bool:
    """Mend a call's first fragment, or a whole call."""
    changed = False
    if lacks(call, "id"):
        call["id"] = generated_id("call_")
        changed = True
    elif not is_text(call["id"]):
        call["id"] = as_text(call["id"])
        changed = True
    kind = _kind(call)
    if call.get("type") != _KINDS[kind]:
        call["type"] = _KINDS[kind]
        changed = True
    if lacks(call, kind):
        call[kind] = _NO_FUNCTION
        changed = True
    elif kind == "function":
        function = parse_object(call["function"])
        if function.get("arguments", NULL) == NULL:
            function["arguments"] = EMPTY_STRING
            call["function"] = encode(function)
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
    if "type" in fragment and fragment["type"] not in _KINDS.values():
        del fragment["type"]
        changed = True
    name = function.get("name")
    if name is not None and (name == call.name or lacks(function, "name")):
        del function["name"]
        fragment[kind] = encode(function)
        changed = True
    elif call.name is None:
        call.name = name
    return _mend_arguments(fragment) or changed


def _mend_arguments(call: JSONFields) -> bool:
    """Make text of arguments that are something else."""
    if lacks(call, "function"):
        return False
    function = parse_object(call["function"])
    arguments = function.get("arguments")
    if arguments is None or arguments == NULL or is_text(arguments):
        return False
    function["arguments"] = as_text(arguments)
    call["function"] = encode(function)
    return True
