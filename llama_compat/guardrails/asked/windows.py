"""A reply held back until checks have been asked about it, a window at a time.

A window is so many characters of what is said, or of the arguments of one call, wherever the events
begin and end that bring them: what is asked is the same however a stream is cut.
"""

from __future__ import annotations

from collections import deque

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import END
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.settings import Place
from llama_compat.types import (
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    StreamProgress,
    TextDelta,
    ToolCallDelta,
)


class _Track:
    """One text as far as it has come: all words of a reply, or the arguments of a call.

    Attributes:
        came, asked: characters that came, and that were asked about.
        waiting: those in between.
        answer: of these, what is no thought.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.came = self.asked = 0
        self.waiting: list[str] = []
        self.answer: list[str] = []

    def add(self, text: str, *, is_answer: bool) -> None:
        self.came += len(text)
        self.waiting.append(text)
        if is_answer:
            self.answer.append(text)

    async def ask(self, guard: Guard, size: int) -> None:
        """Have the checks asked about so many of the characters that wait."""
        text = "".join(self.waiting)
        answer = "".join(self.answer)
        self.asked += min(size, len(text))
        self.waiting, self.answer = [text[size:]], []
        await guard.ask(Said(self.place, (text[:size],), answer))


class Windows:
    """Events of one choice that wait for what checks say.

    Args:
        guard: of the request.
        streams: whether the client reads along; otherwise nothing goes on before the end, and is
            asked about as one.
    """

    def __init__(self, guard: Guard, *, streams: bool) -> None:
        self._guard = guard
        self._window = guard.checks.window if streams else END
        self._words = _Track("output")
        self._calls: dict[int, _Track] = {}
        self._held: deque[tuple[StreamEvent, _Track, int]] = deque()

    async def passed(self, event: StreamEvent) -> list[StreamEvent]:
        """What may go on now that this has come.

        Raises:
            Blocked: no more may.
        """
        track = self._words
        delta = event.delta if isinstance(event, StreamProgress) else None
        if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
            track.add(delta.text, is_answer=isinstance(delta, TextDelta))
        elif isinstance(delta, ToolCallDelta):
            track = self._calls.setdefault(delta.index, _Track("tool_arguments"))
            whole = delta.tool_call
            if whole is not None:
                track.add(whole.arguments_json[track.came :], is_answer=True)
            else:
                track.add(delta.arguments, is_answer=True)
        self._held.append((event, track, track.came))
        while track.came - track.asked >= self._window:
            await track.ask(self._guard, self._window)
        if isinstance(delta, ToolCallDelta) and delta.tool_call is not None:
            await track.ask(self._guard, END)
        ready: list[StreamEvent] = []
        while self._held and self._held[0][2] <= self._held[0][1].asked:
            ready.append(self._held.popleft()[0])
        return ready

    async def rest(self) -> list[StreamEvent]:
        """It has ended: all that is held back; as `passed`."""
        for track in (*self._calls.values(), self._words):
            if track.came > track.asked:
                await track.ask(self._guard, END)
        ready = [event for event, *_ in self._held]
        self._held.clear()
        return ready
