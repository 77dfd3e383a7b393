"""Chat streams: vocabulary -> wire (`StreamRenderer`) and wire -> vocabulary (`StreamParser`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.openai.chat.content import render_image
from llama_compat.dialects.openai.chat.hosted import parse_citations, render_citation
from llama_compat.dialects.openai.chat.replies import (
    call_id_of,
    parse_images,
    parse_stop_reason,
    parse_text,
    tool_call_fragments,
)
from llama_compat.dialects.openai.chat.requests import thought_signature
from llama_compat.dialects.openai.chat.tools.asked import FUNCTIONS, CallForm, CallsSent
from llama_compat.dialects.openai.chunks import ChunkParser, ChunkRenderer, token_ids
from llama_compat.dialects.openai.logprobs import parse_logprobs, render_chat_logprobs
from llama_compat.dialects.openai.usage import service_tier
from llama_compat.dialects.replies import reasoning_deltas, text_deltas, with_logprobs
from llama_compat.events import ReplyParts
from llama_compat.hosted.citations import SaidParts
from llama_compat.hosted.vocabulary import CitationDelta, HostedCallDelta
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import ToolCallAssembler, arguments_text
from llama_compat.types import (
    Delta,
    ImageDelta,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    TokenLogProbs,
)

# --------------------------------------------------------------------------------------------------
# Vocabulary -> wire
# --------------------------------------------------------------------------------------------------


class StreamRenderer(ChunkRenderer):
    """Renders the events of one reply's choices as `chat.completion.chunk` objects.

    A choice's first chunk, which says whose words follow, waits for the first of them: its
    `content` is null unless that is text, as in OpenAI's own streams of calls and refusals. Some
    clients take an empty one for a text that begins. What comes together is what a whole reply
    says: of a choice that only thinks the last chunk has an empty one.

    Args:
        reply_id, model, created: what every chunk says.
        include_usage: whether the client asked for a last chunk with the usage.
        cites: whether what is said may name what was found.
        form: in which the client gets calls.
    """

    object = "chat.completion.chunk"

    def __init__(
        self,
        *,
        reply_id: str,
        model: str,
        created: int,
        include_usage: bool,
        cites: bool = False,
        form: CallForm = FUNCTIONS,
    ) -> None:
        super().__init__(
            reply_id=reply_id, model=model, created=created, include_usage=include_usage
        )
        self._form = form
        self._calls: dict[int, CallsSent] = {}
        self._starts: dict[int, dict[str, Any]] = {}
        self._thinking: set[int] = set()
        self._places: defaultdict[int, SaidParts] | None = defaultdict(SaidParts) if cites else None

    def render(self, choice: int, event: StreamEvent) -> Iterator[dict[str, Any]]:
        """The chunks that `event` of the choice `choice` makes, none to two."""
        if isinstance(event, StreamProgress):
            delta = self._render_delta(choice, event.delta, event.part)
            if delta or event.logprobs or event.token_ids:
                yield from self._start(choice, delta)
                if delta.keys() - {"reasoning_content"}:
                    self._thinking.discard(choice)
                yield self._render_chunk(
                    choice, delta, logprobs=event.logprobs, ids=event.token_ids
                )
        elif isinstance(event, StreamComplete):
            yield from self._start(choice, {"content": ""})
            reason = self._form.finish_reason(event.stop_reason, called=choice in self._calls)
            self._frame |= service_tier(event.service_tier)
            said = {"content": ""} if choice in self._thinking else {}
            yield self._render_chunk(choice, said, reason)
        else:
            self._starts[choice] = token_ids(None, prompt=event.token_ids)

    def _start(self, choice: int, first: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if (more := self._starts.pop(choice, None)) is not None:
            content = "" if not first or "content" in first else None
            if content is None:
                self._thinking.add(choice)
            yield self._render_chunk(choice, {"role": "assistant", "content": content}) | more

    def _render_chunk(
        self,
        choice: int,
        delta: dict[str, Any],
        reason: str | None = None,
        logprobs: Sequence[TokenLogProbs] | None = None,
        ids: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        return self._chunk(
            {
                "index": choice,
                "delta": delta,
                "logprobs": render_chat_logprobs(logprobs),
                "finish_reason": reason,
                **token_ids(ids),
            }
        )

    def _render_delta(self, choice: int, delta: Delta, part: int) -> dict[str, Any]:
        if isinstance(delta, TextDelta):
            if not delta.text:
                return {}
            if self._places is not None:
                self._places[choice].say(part, delta.text)
            return {"content": delta.text}
        if isinstance(delta, ReasoningDelta):
            return {"reasoning_content": delta.text} if delta.text else {}
        if isinstance(delta, RefusalDelta):
            return {"refusal": delta.text} if delta.text else {}
        if isinstance(delta, ImageDelta):
            return {"images": [render_image(delta.image)]}
        if isinstance(delta, HostedCallDelta):
            return {}
        if isinstance(delta, CitationDelta):
            before = 0 if self._places is None else self._places[choice].begin(part)
            return {"annotations": [render_citation(delta.citation, before)]}
        return self._calls.setdefault(choice, CallsSent(self._form)).render(delta)


# --------------------------------------------------------------------------------------------------
# Wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class StreamParser(ChunkParser):
    """Parses a vendor's `chat.completion.chunk` objects as the events of its first choice.

    An object that reports an error is none; it is for whoever reads the stream to raise it.

    Args:
        whole_calls: give each tool call once, when it is complete, rather than as it comes.
    """

    kind = "chat completion"

    def __init__(self, *, whole_calls: bool = False) -> None:
        super().__init__()
        self._reasoning = SurrogateJoiner()
        self._parts = ReplyParts()
        self._calls = ToolCallAssembler(whole=whole_calls)
        self._called = False
        self._said = SaidParts()
        self._speaks_in_deltas = False

    def finish(self, *, done: bool = False) -> Iterator[StreamEvent]:
        """The events that are due at the end of the stream.

        Args:
            done: the vendor ended it with `[DONE]`, so that a finish reason may be missing.

        Raises:
            ValueError: it broke off; the tool calls that it broke off in have failed before.
        """
        cut = self._finish_reason is None and not done
        reason = parse_stop_reason(self._finish_reason, called_tools=self._called)
        yield from self._progress(
            [
                *reasoning_deltas(self._reasoning.flush()),
                *text_deltas(self._text.flush()),
                *self._calls.finish(cut=cut or reason is StopReason.out_of_tokens),
            ]
        )
        if cut:
            raise ValueError("the stream broke off before its finish reason")
        yield StreamComplete(reason, self._usage, self._stop_string, self._service_tier)

    def _parse_choice(self, choice: Mapping[str, Any]) -> list[StreamProgress]:
        delta = self._delta(choice)
        text, reasoning = parse_text(delta)
        deltas = [
            *reasoning_deltas(self._reasoning.push(reasoning)),
            *text_deltas(self._text.push(text)),
        ]
        deltas.extend(map(ImageDelta, parse_images(delta)))
        if delta.get("refusal"):
            deltas.append(RefusalDelta(delta["refusal"]))
        for fragment in tool_call_fragments(delta):
            self._called = True
            function = fragment.get("function") or {}
            deltas.extend(
                self._calls.push(
                    index=fragment.get("index"),
                    call_id=call_id_of(fragment),
                    tool_name=function.get("name"),
                    arguments=arguments_text(function.get("arguments")),
                    thought_signature=thought_signature(fragment),
                )
            )
        events = self._progress(deltas, parse_logprobs(choice.get("logprobs")))
        if delta.get("annotations"):
            events += self._cited(delta)
        return events

    def _cited(self, delta: Mapping[str, Any]) -> Iterator[StreamProgress]:
        for citation in parse_citations(delta, self._said.text):
            part, placed = self._said.placed(citation)
            yield StreamProgress(CitationDelta(placed), part=part)

    def _delta(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a choice adds. Some vendors call that a message, and some stream one event that is
        all of the reply; but where deltas came, a message is all of it once more."""
        delta: Mapping[str, Any] | None = choice.get("delta")
        if delta is None and not self._speaks_in_deltas:
            return choice.get("message") or {}
        self._speaks_in_deltas = True
        return delta or {}

    def _progress(
        self, deltas: Sequence[Delta], logprobs: tuple[TokenLogProbs, ...] | None = None
    ) -> list[StreamProgress]:
        events = with_logprobs(self._parts, deltas, logprobs)
        for event in events:
            if isinstance(event.delta, TextDelta):
                self._said.say(event.part, event.delta.text)
        return events
