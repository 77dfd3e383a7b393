"""OpenAI's API, scripted: replies made by the types of OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

from openai.types import Completion, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer

REASONS = {"end": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"}

USAGE: dict[str, Any] = {
    "prompt_tokens": 30,
    "completion_tokens": 25,
    "total_tokens": 55,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
FRAME: dict[str, Any] = {"id": "chatcmpl-1", "created": 1, "model": "theirs"}


class OpenAIVendor(Vendor):
    """Answers chats and text completions alike, by the path that it is asked at."""

    error_body = (
        b'{"error":{"message":"Please slow down","type":"tokens","param":null,'
        b'"code":"rate_limit_exceeded"}}'
    )
    stream_error = b'data: {"error":{"message":"We are overloaded","type":"server_error"}}\n\n'

    def whole(self, reply: Reply) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.thoughts:
            message["reasoning_content"] = reply.thoughts
        if reply.calls:
            message["tool_calls"] = [_call(index, *call) for index, call in enumerate(reply.calls)]
        choice = {"index": 0, "message": message, "finish_reason": REASONS[reply.stop]}
        body = {**FRAME, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        ChatCompletion.model_validate(body)
        return json.dumps(body).encode()

    def stream(self, reply: Reply) -> bytes:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in _pieces(reply.thoughts)]
        deltas += [{"content": piece} for piece in _pieces(reply.text)]
        for index, (name, arguments) in enumerate(reply.calls):
            call = _call(index, name, arguments)
            text = call["function"]["arguments"]
            call["function"]["arguments"] = ""
            deltas.append({"tool_calls": [{"index": index, **call}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in _pieces(text)
            ]
        chunks = [_chunk(delta) for delta in deltas]
        chunks.append(_chunk({}, REASONS[reply.stop]))
        chunks.append({**_chunk({}), "choices": [], "usage": USAGE})
        for chunk in chunks:
            ChatCompletionChunk.model_validate(chunk)
        events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
        return b"".join(events) + b"data: [DONE]\n\n"

    def will_say_as_text(self, reply: Reply) -> None:
        """Answer requests for text completions with `reply`."""
        body = _text(reply.text, REASONS[reply.stop])
        last = {**_text("", REASONS[reply.stop]), "usage": None}
        chunks = [{**_text(piece, None), "usage": None} for piece in _pieces(reply.text)]
        usage = {**body, "choices": []}
        events = [
            b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in [*chunks, last, usage]
        ]
        Completion.model_validate(body)
        streamed = Answer([*events, b"data: [DONE]\n\n"], content_type="text/event-stream")
        self.server.will_answer(Answer([json.dumps(body).encode()]), streamed=streamed)

    def check_request(self, body: dict[str, Any]) -> None:
        assert body["model"] == "theirs"
        assert None not in body.values()

    def forced_tool(self, body: dict[str, Any]) -> str:
        return str(body["tool_choice"]["function"]["name"])

    def schema(self, body: dict[str, Any]) -> Any:
        return body["response_format"]["json_schema"]["schema"]


def _pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _call(index: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{index}", "type": "function", "function": function}


def _chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**FRAME, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def _text(text: str, reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    usage = CompletionUsage.model_validate(USAGE).model_dump(exclude_none=True)
    return {**FRAME, "object": "text_completion", "choices": [choice], "usage": usage}
