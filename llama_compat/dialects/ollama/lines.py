"""Replies and the lines of streams: vocabulary -> wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import Labels, SaidText, Withheld
from llama_compat.dialects.moments import exact_utc_text
from llama_compat.dialects.ollama.errors import render_stream_error
from llama_compat.dialects.ollama.messages import render_call
from llama_compat.errors import APIError
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionResponse,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCallDelta,
    Usage,
    content_text,
)
from llama_compat.wire.json_fields import encode_json

_DONE_REASONS: dict[StopReason, str] = {
    StopReason.end_of_turn: "stop",
    StopReason.end_of_message: "stop",
    StopReason.out_of_tokens: "length",
    StopReason.content_filter: "content_filter",
}

Calls = Sequence[tuple[int, AnyToolCall]]
Said = Callable[[str, str, Calls], dict[str, Any]]
"""Renders text, thinking and numbered calls as the member or members that a reply has for them."""


def chat_said(text: str, thinking: str = "", calls: Calls = ()) -> dict[str, Any]:
    """The `message` of `/api/chat`."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = [_numbered_call(index, call) for index, call in calls]
    return {"message": message}


def _numbered_call(index: int, call: AnyToolCall) -> dict[str, Any]:
    rendered = render_call(call)
    return {**rendered, "function": {"index": index, **rendered["function"]}}


def generate_said(text: str, thinking: str = "", calls: Calls = ()) -> dict[str, Any]:
    """The members of `/api/generate`, which knows no calls."""
    return {"response": text, "thinking": thinking} if thinking else {"response": text}


def now() -> str:
    """The time as Ollama writes it."""
    return exact_utc_text(time.time())


def render_reply(
    response: ChatCompletionResponse | CompletionResponse,
    usage: Usage,
    labels: Labels,
    said: Said,
    began: int,
) -> bytes:
    """The object of a whole reply.

    Args:
        response, usage, labels: what was said, what it cost, and what the reply says of itself.
        said: how it is said.
        began: when the call was read, by `time.perf_counter_ns`, its model being there.
    """
    if isinstance(response, CompletionResponse):
        words, reason = said(response.content, "", ()), response.stop_reason
    else:
        message = response.completion_message
        text = content_text(message.content) or message.refusal or ""
        calls = list(enumerate(message.tool_calls))
        words = said(text, message.reasoning or "", calls)
        reason = message.stop_reason or StopReason.end_of_turn
    reply = {
        "model": labels.model,
        "created_at": now(),
        **words,
        "done": True,
        "done_reason": _DONE_REASONS[reason],
        **_metrics(usage, labels, began, None),
    }
    if response.logprobs is not None:
        reply["logprobs"] = _render_logprobs(response.logprobs)
    return encode_json(reply)


def withheld(said: Said) -> Withheld:
    """Ends a stream of lines that was relayed and of which no more may be shown.

    Args:
        said: how what was said is said.
    """

    def end(
        told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
    ) -> bytes:
        known = [*told, *(each.event for each in texts)]
        model = next((each["model"] for each in known if "model" in each), "")
        last = {
            "model": model,
            "created_at": now(),
            **said("", "", ()),
            "done": True,
            "done_reason": _DONE_REASONS[StopReason.content_filter],
        }
        return encode_json(last) + b"\n"

    return end


class LineRenderer:
    """Renders the events of one reply as lines, the last of which has `done` and the counts.

    Args:
        labels: what every line says.
        said: how what was said is said.
        began: when the call was read, by `time.perf_counter_ns`, its model being there.
    """

    def __init__(self, labels: Labels, said: Said, began: int) -> None:
        self._labels = labels
        self._said = said
        self._began = began
        self._first_token: int | None = None
        self._reason = StopReason.end_of_turn

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """The line that `event` makes, if it makes one."""
        if isinstance(event, StreamComplete):
            self._reason = event.stop_reason
        if not isinstance(event, StreamProgress):
            return b""
        if self._first_token is None:
            self._first_token = time.perf_counter_ns()
        text, thinking, delta = "", "", event.delta
        calls: Calls = ()
        if isinstance(delta, ToolCallDelta):
            # Ollama has no parts of calls: each goes out once it is whole.
            calls = ((delta.index, delta.tool_call),) if delta.tool_call is not None else ()
        elif isinstance(delta, ReasoningDelta):
            thinking = delta.text
        elif isinstance(delta, TextDelta | RefusalDelta):  # others never get here
            text = delta.text
        if not (text or thinking or calls or event.logprobs):
            return b""
        line = {**self._said(text, thinking, calls), "done": False}
        if event.logprobs:
            line["logprobs"] = _render_logprobs(event.logprobs)
        return self._line(line)

    def finish(self, usage: Usage) -> bytes:
        """The last line."""
        return self._line(
            {
                **self._said("", "", ()),
                "done": True,
                "done_reason": _DONE_REASONS[self._reason],
                **_metrics(usage, self._labels, self._began, self._first_token),
            }
        )

    def fail(self, error: APIError) -> bytes:
        """The line of an error, which is the last one."""
        return render_stream_error(error, "")

    def _line(self, members: dict[str, Any]) -> bytes:
        line = {"model": self._labels.model, "created_at": now(), **members}
        return encode_json(line) + b"\n"


def durations(labels: Labels, answering: int) -> dict[str, int]:
    """How long a reply took, of which `answering` is all but the loading of its model; in
    nanoseconds, as Ollama has it."""
    loading = round(labels.loading * 1e9)
    return {"total_duration": loading + answering, "load_duration": loading}


def _metrics(usage: Usage, labels: Labels, began: int, first_token: int | None) -> dict[str, int]:
    # Clients divide by the durations. What was not measured apart counts as evaluation.
    answering = time.perf_counter_ns() - began
    prompt = 1 if first_token is None else first_token - began
    return {
        **durations(labels, answering),
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": max(prompt, 1),
        "eval_count": usage.completion_tokens,
        "eval_duration": max(answering - prompt, 1),
    }


def _render_logprobs(tokens: Sequence[TokenLogProbs]) -> list[dict[str, Any]]:
    return [
        {
            **_render_token(token.chosen),
            "top_logprobs": [_render_token(each) for each in token.top],
        }
        for token in tokens
    ]


def _render_token(token: TokenLogProb) -> dict[str, Any]:
    return {
        "token": token.token,
        "logprob": 0.0 if token.logprob is None else token.logprob,
        "bytes": list(token.token_bytes),
    }
