"""Vendors whose models think and call a tool, and that want back what was thought, as the real ones
do; what each thought and sealed is its own, and no other takes it.

Written from the vendors' own pages and error messages as of 2026-11-23:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking and adaptive-thinking,
https://ai.google.dev/gemini-api/docs/thought-signatures,
https://api-docs.deepseek.com/guides/thinking_mode,
https://platform.xiaomimimo.com/docs/en-US/usage-guide/passing-back-reasoning_content.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests import sdk_anthropic as sdk
from tests.integration.strict_vendors import (
    CALL,
    OPENAIS,
    Seen,
    StrictVendors,
    _completion,
    _stream,
)

ANY_SIGNATURE = "skip_thought_signature_validator"
ARGUMENTS = {"city": "Bern"}


class ThinkingVendors(StrictVendors):
    """The server; the path's first segment says which vendor is asked.

    Attributes:
        thoughts: what was thought, by the id of the call that followed.
        seals: whose a seal is: the id of that call.
        prefixes: the messages before it, to which Claude's seals are bound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thoughts: dict[str, str] = {}
        self.seals: dict[str, str] = {}
        self.prefixes: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    @property
    def origin(self) -> str:
        """Where DeepSeek's other API is, beside its own."""
        return self.url

    def _call(self, vendor: str) -> tuple[str, str, str]:
        """The id of a new call, what was thought before it, and the seal of that."""
        number = next(self._numbers)
        call_id, thought = f"{vendor}_{number}", f"{vendor} thinks, for the time {number}."
        seal = f"c2VhbA{number:04d}"
        self.thoughts[call_id], self.seals[seal] = thought, call_id
        return call_id, thought, seal

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        vendor, body = request.match_info["vendor"], await request.json()
        self.seen[vendor] = Seen(body)
        if request.path.endswith("/messages"):
            return await self._messages(request, vendor, body)
        if vendor == "gemini":
            return await self._contents(request, body)
        return await self._chat(request, vendor, body)

    # Messages: Claude, and DeepSeek beside its own API -------------------------------------------

    async def _messages(
        self, request: web.Request, vendor: str, body: dict[str, Any]
    ) -> web.StreamResponse:
        complaints = self._of_claude if vendor == "claude" else _of_deepseeks_messages
        for complaint in complaints(body):
            error = {"type": "invalid_request_error", "message": complaint}
            return web.json_response({"type": "error", "error": error}, status=400)
        last = body["messages"][-1]["content"]
        if isinstance(last, list) and last[0]["type"] == "tool_result":
            message = sdk.message([sdk.text("Sunny.")], "end_turn")
        else:
            call_id, thought, seal = self._call(vendor)
            self.prefixes[call_id] = body["messages"]
            kind = body.get("thinking", {}).get("type")
            thinks = kind == "enabled" or vendor != "claude"
            thinking = [sdk.thinking(thought, seal)] if thinks else []
            call = sdk.tool_use(call_id, "get_weather", ARGUMENTS)
            message = sdk.message([*thinking, call], "tool_use")
        if not body.get("stream"):
            return web.json_response(text=message.model_dump_json())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sdk.stream_bytes(sdk.stream_events(message)))
        return response

    def _of_claude(self, body: dict[str, Any]) -> Iterator[str]:
        messages = body["messages"]
        for place, message in enumerate(messages):
            blocks = message["content"] if isinstance(message["content"], list) else []
            for number, block in enumerate(blocks):
                if block["type"] != "thinking":
                    continue
                call_id = self.seals.get(block["signature"], "")
                if self.thoughts.get(call_id) != block["thinking"] or "claude" not in call_id:
                    yield f"messages.{place}.content.{number}: Invalid `signature` in `thinking`"
                elif blocks[number + 1]["type"] != "tool_use":
                    yield f"messages.{place}.content.{number}: `thinking` was moved"
                elif self.prefixes[call_id] != messages[:place]:
                    yield f"messages.{place}.content.{number}: what is before it was changed"
        last = messages[-1]["content"]
        goes_on = isinstance(last, list) and last[0]["type"] == "tool_result"
        if body.get("thinking", {}).get("type") == "enabled" and goes_on:
            said = messages[-2]["content"]
            if said[0]["type"] not in ("thinking", "redacted_thinking"):
                yield (
                    f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or"
                    f" `redacted_thinking`, but found `{said[0]['type']}`."
                )

    # Contents: Gemini ----------------------------------------------------------------------------

    async def _contents(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for complaint in self._of_gemini(body):
            error = {"code": 400, "message": complaint, "status": "INVALID_ARGUMENT"}
            return web.json_response({"error": error}, status=400)
        parts: list[dict[str, Any]] = [{"text": "Sunny."}]
        if not any("functionResponse" in part for part in body["contents"][-1]["parts"]):
            call_id, thought, seal = self._call("gemini")
            function = {"id": call_id, "name": "get_weather", "args": ARGUMENTS}
            parts = [
                {"text": thought, "thought": True},
                {"functionCall": function, "thoughtSignature": seal},
            ]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        reply = {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3}}
        if ":stream" not in request.path:
            return web.json_response(reply)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: " + json.dumps(reply).encode() + b"\r\n\r\n")
        return response

    def _of_gemini(self, body: dict[str, Any]) -> Iterator[str]:
        contents = body["contents"]
        asked = max(
            place
            for place, content in enumerate(contents)
            if content["role"] == "user"
            and any("functionResponse" not in part for part in content["parts"])
        )
        for place, content in enumerate(contents):
            for part in content["parts"]:
                seal = part.get("thoughtSignature")
                is_own = self.seals.get(seal, "").startswith("gemini")
                if seal is not None and seal != ANY_SIGNATURE and not is_own:
                    yield "Corrupted thought signature."
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and place > asked and "thoughtSignature" not in calls[0]:
                yield "Function call is missing a thought_signature in functionCall parts."

    # Chats: DeepSeek, MiMo, OpenAI ---------------------------------------------------------------

    async def _chat(
        self, request: web.Request, vendor: str, body: dict[str, Any]
    ) -> web.StreamResponse:
        complaints = _of_openai if vendor == "openai" else _of_deepseek
        for complaint in complaints(body):
            error = {"message": complaint, "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        message: dict[str, Any] = {"content": "Sunny."}
        if body["messages"][-1]["role"] != "tool":
            call_id, thought, _ = self._call(vendor)
            function = {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}
            call = {"id": call_id, "type": "function", "function": function}
            message = {"content": None, "tool_calls": [call]}
            if vendor != "openai":
                message["reasoning_content"] = thought
        if body.get("stream"):
            return await _stream(request, message)
        return web.json_response(_completion(message))


def _of_openai(body: dict[str, Any]) -> Iterator[str]:
    for place, message in enumerate(body["messages"]):
        for name in message.keys() - OPENAIS - {"tool_call_id"}:
            yield f"Unrecognized request argument: messages[{place}].{name}"
        for call in message.get("tool_calls") or ():
            for name in call.keys() - CALL:
                yield f"Unrecognized request argument: messages[{place}].tool_calls.{name}"


def _of_deepseek(body: dict[str, Any]) -> Iterator[str]:
    if body.get("thinking", {}).get("type") == "disabled":
        return
    for message in body["messages"]:
        if message.get("tool_calls") and not message.get("reasoning_content"):
            yield "The `reasoning_content` in the thinking mode must be passed back to the API."


def _of_deepseeks_messages(body: dict[str, Any]) -> Iterator[str]:
    if body.get("thinking", {}).get("type") == "disabled":
        return
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = {block["type"] for block in blocks}
        if "tool_use" in kinds and "thinking" not in kinds:
            yield "The `content[].thinking` in the thinking mode must be passed back to the API."
