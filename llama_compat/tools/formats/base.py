"""What a tool format is, and how calls are found in a text that comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from llama_compat.text.markers import find_first, held_back
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.types import AnyToolCall, Delta, TextDelta, ToolDefinition


class TextParser(Protocol):
    """Turns the text of a reply into deltas; any cut of the text gives the same in the end."""

    def push(self, text: str) -> list[Delta]:
        """More of the reply's text."""

    def flush(self) -> list[Delta]:
        """The reply has ended."""


class ToolFormat(Protocol):
    """How one family of models is told about tools, and how it writes its calls as text."""

    @property
    def name(self) -> str:
        """What a template calls the format."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What stands in replies and may be a special token of the model's vocabulary."""

    def render_tools(self, tools: Sequence[ToolDefinition]) -> str:
        """The text for the system message that offers `tools`."""

    def render_calls(self, calls: Sequence[AnyToolCall]) -> str:
        """The calls of an earlier reply as the model would have written them."""

    def render_response(self, tool_name: str, content: str) -> str:
        """What a tool answered, as the text of a message to the model."""

    def call_opening(self, tool_name: str) -> str:
        """What a reply that calls `tool_name` begins with.

        It ends with the `{` of the arguments, which are JSON.
        """

    def call_frame(self, tool_name: str) -> tuple[str, str]:
        """What stands before and behind the arguments, which are JSON, of a call in a free reply.

        The format's own parser reads it; it begins with one of `markers`, or with a bracket that
        begins a line.
        """

    def parser(self, tools: Sequence[ToolDefinition]) -> TextParser:
        """A parser for one reply of a model that was offered `tools`."""


_PIECE = 1024
"""Of so many characters a text is looked at together."""


class WrittenCall(NamedTuple):
    """A call as it stands in a text; its arguments are a JSON object."""

    tool_name: str
    arguments_json: str
    call_id: str = ""


class Verdict(NamedTuple):
    """What became of an attempt: its calls, or None if it was text; and what comes after it."""

    calls: Sequence[WrittenCall] | None
    rest: str


class CallAttempt(Protocol):
    """Something that began like a call and is being read.

    Whatever it decides must not depend on how the text is cut, and the `rest` of its verdict is the
    end of the text that it was last fed.
    """

    def feed(self, text: str) -> Verdict | None:
        """More text; None while it is still open what this is."""

    def end(self) -> Verdict:
        """The reply has ended."""


class Syntax(NamedTuple):
    """Where calls may begin, and how one that has begun is read.

    Attributes:
        attempt: makes an attempt for the marker or bracket that it begins with. A bracket is the
            first character that the attempt is fed; a marker is not fed.
        markers: begin a call wherever they stand.
        brackets: characters that begin a call as the first of a line.
        closers: may stand behind a call and are left out.
    """

    attempt: Callable[[str], CallAttempt]
    markers: tuple[str, ...] = ()
    brackets: str = ""
    closers: tuple[str, ...] = ()


class CallParser:
    """Finds the calls of offered tools in a reply's text.

    Only what is certain not to be part of a call is given as text, and a call is given when it is
    complete. What began like a call and is none, or calls a tool that was not offered, is text,
    unchanged. Blanks before a call that opens the reply, between calls and after the last are left
    out. The time is linear in the length of the text.

    Args:
        syntax: the format's.
        tools: those that were offered.
    """

    def __init__(self, syntax: Syntax, tools: Iterable[ToolDefinition]) -> None:
        self._syntax = syntax
        brackets = "|".join(map(re.escape, syntax.brackets))
        self._first_of_line = re.compile(rf"^[ \t]*({brackets})", re.MULTILINE)
        self._offered = frozenset(tool.tool_name for tool in tools)
        self._assembler = ToolCallAssembler()
        self._call_count = 0
        self._deltas: list[Delta] = []
        # what has come and is not yet understood
        self._unread = ""
        self._attempt: CallAttempt | None = None
        self._tried: list[str] = []
        # of the text since the beginning or the last call
        self._blanks: list[str] = []
        self._only_blanks = True
        self._at_line_start = True

    def push(self, text: str) -> list[Delta]:
        """More of the reply's text."""
        # What stands behind a call, or what was none, is copied: a long text comes in pieces.
        for begin in range(0, len(text), _PIECE):
            self._unread += text[begin : begin + _PIECE]
            self._read(final=False)
        deltas, self._deltas = self._deltas, []
        return deltas if len(text) <= _PIECE else _joined(deltas)

    def flush(self) -> list[Delta]:
        """The reply has ended."""
        self._read(final=True)
        if self._blanks and not self._call_count:
            self._deltas.append(TextDelta("".join(self._blanks)))
        deltas, self._deltas = self._deltas, []
        return deltas

    def _read(self, *, final: bool) -> None:
        while self._attempt is not None or self._read_text(final=final):
            assert self._attempt is not None
            text, self._unread = self._unread, ""
            self._tried.append(text)
            verdict = self._attempt.feed(text)
            if verdict is None and final:
                verdict = self._attempt.end()
            if verdict is None:
                return
            self._settle(verdict)

    def _read_text(self, *, final: bool) -> bool:
        """Give the text before the next call; True if one may have begun."""
        if self._call_count and self._only_blanks and not self._skip_closers(final=final):
            return False
        beginning = self._find_beginning()
        if beginning is None:
            waiting = 0 if final else held_back(self._unread, self._syntax.markers)
            shown = len(self._unread) - waiting
            self._give_text(self._unread[:shown])
            self._unread = self._unread[shown:]
            return False
        begin, opener = beginning
        self._give_text(self._unread[:begin])
        self._attempt = self._syntax.attempt(opener)
        if opener in self._syntax.markers:
            self._tried = [opener]
            begin += len(opener)
        self._unread = self._unread[begin:]
        return True

    def _skip_closers(self, *, final: bool) -> bool:
        """Leave out what may stand behind a call; False if more is needed to know."""
        closers = self._syntax.closers
        while True:
            text = self._unread.lstrip()
            closer = next((closer for closer in closers if text.startswith(closer)), None)
            if closer is not None:
                self._blanks = []
                self._unread = text[len(closer) :]
                continue
            if not text:  # what is known to be blank need not be looked at again
                self._give_text(self._unread)
                self._unread = ""
            return final or not any(closer.startswith(text) for closer in closers)

    def _find_beginning(self) -> tuple[int, str] | None:
        """Where the first marker, or bracket that is the first of its line, stands."""
        marker = find_first(self._unread, self._syntax.markers)
        if not self._syntax.brackets:
            return marker
        search_from = 0 if self._at_line_start else self._unread.find("\n")
        if search_from < 0:
            return marker
        bracket = self._first_of_line.search(self._unread, search_from)
        if bracket is None or (marker is not None and marker[0] < bracket.start(1)):
            return marker
        return bracket.start(1), bracket[1]

    def _settle(self, verdict: Verdict) -> None:
        tried = "".join(self._tried)
        self._attempt, self._tried = None, []
        self._unread = verdict.rest
        calls = verdict.calls
        if not calls or any(call.tool_name not in self._offered for call in calls):
            self._give_text(tried[: len(tried) - len(verdict.rest)])
            return
        for call in calls:
            self._give_call(call)
        self._blanks, self._only_blanks, self._at_line_start = [], True, True

    def _give_call(self, call: WrittenCall) -> None:
        index = self._call_count
        self._call_count += 1
        self._deltas += self._assembler.push(
            index=index,
            call_id=call.call_id,
            tool_name=call.tool_name,
            arguments=call.arguments_json,
        )
        self._deltas += self._assembler.end(index)

    def _give_text(self, text: str) -> None:
        if not text:
            return
        line = text[text.rfind("\n") + 1 :]
        self._at_line_start = not line.strip() and (self._at_line_start or "\n" in text)
        if self._only_blanks:
            self._blanks.append(text)
            if text.isspace():
                return
            text = "".join(self._blanks)
            self._blanks, self._only_blanks = [], False
        self._deltas.append(TextDelta(text))


def _joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same deltas, with one of text where several stood side by side."""
    joined: list[Delta] = []
    texts: list[str] = []
    for delta in (*deltas, None):
        if isinstance(delta, TextDelta):
            texts.append(delta.text)
            continue
        if texts:
            joined.append(TextDelta("".join(texts)))
            texts = []
        if delta is not None:
            joined.append(delta)
    return joined
