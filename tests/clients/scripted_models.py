"""A vendor whose models follow a script: sensible enough for suites and clients that are not ours.

`/v1/chat/completions` is there in any case, `/v1/responses` where it is wanted. What a model says
depends on the conversation alone, so that it needs no state and answers everybody alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.server_thread import WebServerThread

USAGE = (20, 10)


@dataclass(frozen=True)
class Said:
    """What the model says: a text, or calls (a tool's name, its arguments)."""

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()


@dataclass(frozen=True)
class Asked:
    """What the model is asked, in whichever of the two APIs.

    Attributes:
        texts: what the user and the system said, in order.
        images: how many images there are.
        tools: the schema of each function's parameters, by name.
        outputs: what tools answered, in order.
    """

    texts: list[str] = field(default_factory=list)
    images: int = 0
    tools: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)


Script = Callable[[Asked], Said]


class ScriptedModels(WebServerThread):
    """The server; a context manager that runs it in a thread of its own.

    Args:
        script: what every model says.
        responses: whether it has the Responses API too.

    Attributes:
        received: the bodies of all requests, each with its path.
    """

    def __init__(self, script: Script, *, responses: bool = False) -> None:
        self._script = script
        self._has_responses = responses
        self.received: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/chat/completions", self._chat)
        if self._has_responses:
            router.add_post("/v1/responses", self._respond)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        said = self._script(_asked_in_chat(body))
        if body.get("stream"):
            return await _send(request, _chat_events(body, said))
        return web.json_response(_completion(body, said))

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        response, items = _response(body, self._script(_asked_in_responses(body)))
        if body.get("stream"):
            return await _send(request, _response_events(response, items))
        return web.json_response(response)

    async def _body(self, request: web.Request) -> Any:
        body = await request.json()
        self.received.append((request.path, body))
        return body


async def _send(request: web.Request, events: Sequence[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    return response


# --------------------------------------------------------------------------------------------------
# Chat completions
# --------------------------------------------------------------------------------------------------


def _asked_in_chat(body: Any) -> Asked:
    asked = Asked(tools={t["function"]["name"]: t["function"] for t in body.get("tools") or ()})
    images = 0
    for message in body["messages"]:
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part.get("text", "") for part in parts)
        images += sum(part["type"] == "image_url" for part in parts)
        if message["role"] == "tool":
            asked.outputs.append(text)
        elif message["role"] != "assistant":
            asked.texts.append(text)
    return Asked(asked.texts, images, asked.tools, asked.outputs)


def _calls(said: Said, body: Any) -> list[dict[str, Any]]:
    begun = len(json.dumps(body))
    return [
        {
            "index": index,
            "id": f"call_{begun}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(said.calls)
    ]


def _completion(body: Any, said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = _calls(said, body)
    reason = "tool_calls" if said.calls else "stop"
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _chat_usage(),
    }


def _chat_usage() -> dict[str, int]:
    prompt, completion = USAGE
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _chat_events(body: Any, said: Said) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", said.text)]
    for call in _calls(said, body):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        first = {**call, "function": {**call["function"], "arguments": arguments[:half]}}
        rest = {"index": call["index"], "function": {"arguments": arguments[half:]}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
    frame = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1}
    frame["model"] = body["model"]
    chunks: list[dict[str, Any]] = [
        {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    reason = "tool_calls" if said.calls else "stop"
    chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({**frame, "choices": [], "usage": _chat_usage()})
    return [*(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks), b"data: [DONE]\n\n"]


# --------------------------------------------------------------------------------------------------
# Responses
# --------------------------------------------------------------------------------------------------


def _asked_in_responses(body: Any) -> Asked:
    tools = {tool["name"]: tool for tool in body.get("tools") or () if tool["type"] == "function"}
    texts, outputs = [body.get("instructions") or ""], []
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        if item.get("type", "message") == "message" and item["role"] != "assistant":
            texts.append(_text(item["content"]))
        elif item.get("type") == "function_call_output":
            outputs.append(_text(item["output"]))
    return Asked(texts, 0, tools, outputs)


def _text(content: Any) -> str:
    return (
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    )


def _response(body: Any, said: Said) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    begun = len(json.dumps(body))
    items: list[dict[str, Any]] = [
        {
            "id": f"fc_{begun}_{index}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{begun}_{index}",
            "name": name,
            "arguments": json.dumps(arguments),
        }
        for index, (name, arguments) in enumerate(said.calls)
    ]
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{begun}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    read, written = USAGE
    usage = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
    response = {
        "id": f"resp_{begun}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": body["model"],
        "output": items,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "usage": usage,
    }
    return response, items


def _response_events(response: dict[str, Any], items: Sequence[dict[str, Any]]) -> list[bytes]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        empty: dict[str, Any] = {**item, "status": "in_progress"}
        if item["type"] == "message":
            (part,) = item["content"]
            empty["content"] = []
            inside = {**at, "content_index": 0}
            said = {**inside, "logprobs": []}
            middle = [
                ("response.content_part.added", {**inside, "part": {**part, "text": ""}}),
                ("response.output_text.delta", {**said, "delta": part["text"]}),
                ("response.output_text.done", {**said, "text": part["text"]}),
                ("response.content_part.done", {**inside, "part": part}),
            ]
        else:
            empty["arguments"] = ""
            name, arguments = "response.function_call_arguments", item["arguments"]
            middle = [
                (f"{name}.delta", {**at, "delta": arguments}),
                (f"{name}.done", {**at, "name": item["name"], "arguments": arguments}),
            ]
        events.append(("response.output_item.added", {"output_index": index, "item": empty}))
        events += middle
        events.append(("response.output_item.done", {"output_index": index, "item": item}))
    events.append(("response.completed", {"response": response}))
    return [
        b"event: %b\ndata: %b\n\n"
        % (kind.encode(), json.dumps({"type": kind, "sequence_number": n, **members}).encode())
        for n, (kind, members) in enumerate(events)
    ]
