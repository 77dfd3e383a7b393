"""Vendors that hold a conversation against the rules of their API, one of each wire.

What is in a request is left to the stand-ins that read it by the vendors' own SDKs; here is what
has to go together: calls and their answers, whose turn it is, what may not be empty. The rules are
from the vendors' documentation and error messages as of 2026-11, and not from the code that is
tested against them. The path's first segment says which vendor is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from tests.integration.strict_wires_native import (
    anthropic,
    bedrock,
    draft_2020_12,
    gemini,
    ollama,
)
from tests.server_thread import WebServerThread

Complaints = Iterator[str]

_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
_SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
}


# OpenAI's chat completions ------------------------------------------------------------------------


def chat(body: dict[str, Any]) -> Complaints:
    """OpenAI's own; most others have the same."""
    messages = body["messages"]
    if not messages:
        yield "Invalid 'messages': empty array."
    for place, message in enumerate(messages):
        yield from (f"messages[{place}]: {each}" for each in _message(message))
    yield from _answers(messages)
    functions = [tool["function"] for tool in body.get("tools") or ()]
    yield from _tools(functions)
    yield from _schemas(functions)
    if body.get("tools") == []:
        yield "Invalid 'tools': empty array."
    for name in {"tool_choice", "parallel_tool_calls"} & body.keys():
        if not body.get("tools"):
            yield f"'{name}' is only allowed when 'tools' are specified."
    choice = body.get("tool_choice")
    names = {tool["function"]["name"] for tool in body.get("tools") or ()}
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        yield "Tool choice 'function' not found in 'tools' parameter."
    if len(body.get("stop") or ()) > 4 and isinstance(body["stop"], list):
        yield "Invalid 'stop': array too long. Expected an array with maximum length 4."
    if {"max_tokens", "max_completion_tokens"} <= body.keys():
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    if "stream_options" in body and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    if "top_logprobs" in body and not body.get("logprobs"):
        yield "'logprobs' must be set to true when 'top_logprobs' is."
    yield from _format(body.get("response_format") or {}, str(messages))


def _message(message: dict[str, Any]) -> Complaints:
    role, content = message["role"], message.get("content")
    if role not in _PARTS:
        yield f"Invalid value: '{role}'."
        return
    if content is None and not (role == "assistant" and message.keys() & {"tool_calls", "refusal"}):
        yield "Invalid value for 'content': expected a string, got null."
    if content == []:
        yield "Invalid 'content': empty array. Expected an array with minimum length 1."
    for part in content if isinstance(content, list) else ():
        if part["type"] not in _PARTS[role]:
            yield f"Invalid value: '{part['type']}' of a message of the role '{role}'."
        if part["type"] == "image_url" and not re.match("https?://|data:image/", _url(part)):
            yield "Invalid image."
        if part["type"] == "file" and not part["file"].get("filename"):
            yield "Missing required parameter: 'file.file_id'."
    if message.get("tool_calls") == []:
        yield "Invalid 'tool_calls': empty array. Expected an array with minimum length 1."
    for call in message.get("tool_calls") or ():
        if not _NAME.fullmatch(call["function"]["name"]):
            yield "Invalid 'tool_calls.function.name'"
        if not 1 <= len(call["id"]) <= 40:
            yield "Invalid 'tool_calls.id': string too long. Expected maximum length 40."
        if not isinstance(call["function"]["arguments"], str):
            yield "Invalid type for 'arguments'"
    if "name" in message and not _SPEAKER.fullmatch(message["name"]):
        yield "Invalid 'name': string does not match pattern."


def _url(part: dict[str, Any]) -> str:
    return str(part["image_url"]["url"])


def _answers(messages: list[dict[str, Any]]) -> Complaints:
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages[{place}]: 'tool' must be a response to 'tool_calls' before it."
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            yield f"messages[{place}]: 'tool_calls' must be followed by tool messages: {waiting}"
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(calls)) < len(calls):
            yield f"messages[{place}]: Duplicate value for 'tool_call_id'"
        waiting = set(calls)
    if waiting:
        yield "'tool_calls' must be followed by tool messages."


def _tools(functions: list[dict[str, Any]]) -> Complaints:
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        yield "Tool names must be unique."
    for function in functions:
        if not _NAME.fullmatch(function["name"]):
            yield f"Invalid 'tools.function.name': '{function['name']}'"
        schema = function.get("parameters")
        if schema is not None and schema.get("type") != "object":
            yield "schema must be a JSON Schema of 'type: \"object\"'"
        if schema is not None and "properties" not in schema:
            yield "In context=(), object schema missing properties."
        if function.get("strict"):
            yield from _open(schema or {})


def _schemas(functions: list[dict[str, Any]]) -> Complaints:
    """What OpenAI refuses besides: anomalyco/opencode#37916, ogx-ai/ogx#3602 (2026-11-28)."""
    for schema in filter(None, (function.get("parameters") for function in functions)):
        if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
            yield "schema must not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        yield from _arrays(schema)
        yield from draft_2020_12(schema)


def _arrays(schema: Any) -> Complaints:
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "items" not in schema:
            yield "array schema missing items."
        for each in schema.values():
            yield from _arrays(each)
    for each in schema if isinstance(schema, list) else ():
        yield from _arrays(each)


def _open(schema: Any) -> Complaints:
    """What `strict` does not take."""
    if isinstance(schema, dict) and "properties" in schema:
        if schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false."
        if set(schema.get("required", ())) != set(schema["properties"]):
            yield "'required' is required to be supplied and to be an array with every key."
        for each in schema["properties"].values():
            yield from _open(each)


def _format(wanted: dict[str, Any], said: str) -> Complaints:
    described = wanted.get("json_schema", wanted)
    if wanted.get("type") == "json_schema":
        if not _NAME.fullmatch(described["name"]):
            yield "Invalid 'name' of a format."
        if described.get("strict"):
            yield from _open(described.get("schema"))
    if wanted.get("type") == "json_object" and "json" not in said.lower():
        yield "'messages' must contain the word 'json' in some form, to use 'json_object'."


# Mistral's ----------------------------------------------------------------------------------------

_AFTER = {
    "": {"system", "user", "assistant"},
    "system": {"system", "user", "assistant"},
    "user": {"system", "user", "assistant"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool"},
}
"""mistral-common's protocol/instruct/validator.py, which vLLM asks too."""


def mistral(body: dict[str, Any]) -> Complaints:
    """Mistral's chat completions."""
    before = ""
    for place, message in enumerate(body["messages"]):
        role, calls = message["role"], message.get("tool_calls") or []
        if role not in _AFTER[before]:
            yield f"Unexpected role '{role}' after role '{before}'"
        before = role
        if role == "assistant" and not (calls or message.get("content")):
            yield "Assistant message must have either content or tool_calls, but not none."
        if message.get("prefix") and place < len(body["messages"]) - 1:
            yield "Assistant message with prefix True must be last message"
        ids = [call["id"] for call in calls] + [message.get("tool_call_id", "a" * 9)]
        if not all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in ids):
            yield f"Tool call id was {ids} but must be a-z, A-Z, 0-9, with a length of 9."
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if part["type"] not in ("text", "image_url", "document_url", "input_audio", "thinking"):
                yield f"Input tag '{part['type']}' does not match any of the expected tags"
    if before not in ("user", "tool") and not body["messages"][-1].get("prefix"):
        yield f"Expected last role User or Tool (or Assistant with prefix True) but got {before}"
    yield from _answers(body["messages"])
    yield from _tools([tool["function"] for tool in body.get("tools") or ()])


# OpenAI's responses -------------------------------------------------------------------------------


def responses(body: dict[str, Any]) -> Complaints:
    """OpenAI's Responses API, of conversations that it does not keep."""
    items = body["input"]
    calls = [each["call_id"] for each in items if each.get("type") == "function_call"]
    given = [each["call_id"] for each in items if each.get("type") == "function_call_output"]
    if missing := set(calls) - set(given):
        yield f"No tool output found for function call {missing}."
    if unknown := set(given) - set(calls):
        yield f"No tool call found for function call output with call_id {unknown}."
    if not all(1 <= len(each) <= 64 for each in (*calls, *given)):
        yield "Invalid 'input.call_id': string too long. Expected a string with maximum length 64."
    for item in items:
        content = item.get("content", item.get("output"))
        if content == []:
            yield "Invalid 'content': empty array."
        kinds = {part["type"] for part in content if isinstance(part, dict)} if content else set()
        if item.get("role") == "assistant" and kinds - {"output_text", "refusal"}:
            yield f"Invalid value: '{kinds}'. Supported values are: 'output_text' and 'refusal'."
        if item.get("role") in ("user", "system", "developer") and "output_text" in kinds:
            yield "Invalid value: 'output_text'."
        if "name" in item and not _NAME.fullmatch(item["name"]):
            yield "Invalid 'input.name'."
    functions = [tool for tool in body.get("tools", ()) if tool["type"] == "function"]
    yield from _tools(functions)
    yield from _schemas(functions)
    if body.get("tool_choice", "auto") not in ("auto", "none") and not body.get("tools"):
        yield "Tool choice needs 'tools'."
    if body.get("max_output_tokens", 16) < 16:
        yield "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    yield from _format((body.get("text") or {}).get("format") or {}, str(items))


# The server ---------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_CHAT: Mapping[str, Any] = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "own",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Sunny."},
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}
_TEXT = {"type": "output_text", "text": "Sunny.", "annotations": []}

WIRES: Mapping[str, tuple[Callable[[dict[str, Any]], Complaints], Mapping[str, Any]]] = {
    "chat": (chat, _CHAT),
    "mistral": (mistral, _CHAT),
    "responses": (
        responses,
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "own",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1,
            "top_p": 1,
            "tool_choice": "auto",
            "tools": [],
            "output": [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [_TEXT],
                }
            ],
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 5,
            },
        },
    ),
    "anthropic": (
        anthropic,
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "own",
            "content": [{"type": "text", "text": "Sunny."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
    ),
    "gemini": (
        gemini,
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "Sunny."}]},
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 5},
        },
    ),
    "bedrock": (
        bedrock,
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "Sunny."}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
        },
    ),
    "ollama": (
        ollama,
        {
            "model": "own",
            "created_at": "2026-11-28T00:00:00Z",
            "message": {"role": "assistant", "content": "Sunny."},
            "done": True,
            "done_reason": "stop",
        },
    ),
}
"""By wire, what it complains of, and what it says otherwise."""


class StrictWires(WebServerThread):
    """The server; a context manager that runs it in a thread of its own.

    Attributes:
        asked: what came, with what was complained of.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], list[str]]] = []

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/{wire}/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        complain, reply = WIRES[request.match_info["wire"]]
        body = await request.json()
        complaints = list(complain(body))
        self.asked.append((body, complaints))
        if not complaints:
            return web.json_response(reply)
        error = {"message": "; ".join(complaints), "type": "invalid_request_error", "code": 400}
        return web.json_response({"type": "error", "error": error}, status=400)
