"""Vendors that refuse what each of their models refuses.

The table is written from the vendors' own pages and error messages as of 2026-11, and not from the
catalogue that is tested against it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests import sdk_anthropic as sdk
from tests.integration.strict_vendors import Seen, StrictVendors, _completion, _stream
from tests.integration.strict_wires import WIRES


@dataclass(frozen=True)
class Claude:
    """One of Anthropic's models.

    Attributes:
        samples: whether it takes any temperature, top_p and top_k.
        thinking: the types of `thinking` that it takes.
        efforts: the values of `output_config.effort` that it takes.
        forced: whether `tool_choice` may be `any` or a tool.
        schemas: whether it has `output_config.format`.
        most: of `max_tokens`.
        instructed: whether a message of the role `system` may follow a user's turn.
        either: whether it takes a temperature or a top_p, but not both.
        prefilled: whether it goes on with what it is taken to have said last.
    """

    samples: bool = False
    thinking: frozenset[str] = frozenset({"adaptive", "disabled"})
    efforts: frozenset[str] = frozenset({"low", "medium", "high", "xhigh", "max"})
    forced: bool = True
    schemas: bool = True
    most: int = 128_000
    instructed: bool = True
    either: bool = False
    prefilled: bool = False


CLAUDE: Mapping[str, Claude] = {
    "claude-3-haiku-20240307": Claude(
        samples=True,
        thinking=frozenset(),
        efforts=frozenset(),
        schemas=False,
        most=4096,
        instructed=False,
        prefilled=True,
    ),
    "claude-haiku-4-5": Claude(
        samples=True,
        thinking=frozenset({"enabled", "disabled"}),
        efforts=frozenset(),
        most=64_000,
        instructed=False,
        either=True,
        prefilled=True,
    ),
    "claude-opus-4-7": Claude(thinking=frozenset({"adaptive"}), instructed=False),
    "claude-opus-5": Claude(),
    "claude-haiku-5-5": Claude(),
    "claude-opus-5-5": Claude(thinking=frozenset({"adaptive"}), forced=False),
    "claude-sonnet-5-5": Claude(thinking=frozenset({"adaptive", "between_tools"}), forced=False),
}

_DEFAULTS = {"temperature": 1, "top_p": 1, "top_k": -1}

_EITHER = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
"""Of Claude 4.1 to 4.6: Vali-98/ChatterUI#564, open-webui/pipelines#546 (2026-11-28)."""


def claude_complaints(body: dict[str, Any]) -> Iterator[str]:
    """What one of `CLAUDE` does not take of a request."""
    model = CLAUDE[body["model"]]
    for name, default in _DEFAULTS.items():
        if not model.samples and body.get(name, default) != default:
            yield f"`{name}` is deprecated for this model."
    if model.either and {"temperature", "top_p"} <= body.keys():
        yield _EITHER
    kind = body.get("thinking", {}).get("type")
    if kind == "enabled" and (body.get("temperature", 1) != 1 or "top_k" in body):
        yield "`temperature` may only be set to 1 when thinking is enabled."
    if kind == "enabled" and body.get("top_p", 1) < 0.95:
        yield "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled."
    if kind is not None and kind not in model.thinking:
        yield f'"thinking.type.{kind}" is not supported for this model.'
    if kind == "enabled" and body["thinking"]["budget_tokens"] >= body["max_tokens"]:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    output = body.get("output_config", {})
    if "effort" in output and output["effort"] not in model.efforts:
        yield "This model does not support this effort level."
    if "format" in output and not model.schemas:
        yield "output_config.format: not supported for this model."
    if not model.forced and body.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "tool_choice: forced tool use is not supported for this model."
    if body["max_tokens"] > model.most:
        yield f"max_tokens: {body['max_tokens']} > {model.most}, which is the maximum allowed"
    roles = [message["role"] for message in body["messages"]]
    if roles[-1] == "assistant" and not model.prefilled:
        # strands-agents/sdk-python#1694 (2026-11-28)
        yield "This model does not support assistant message prefill."
    for before, role in zip([None, *roles], roles, strict=False):
        # https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
        if role == "system" and not model.instructed:
            yield "role 'system' is not supported on this model"
        elif role not in ("user", "assistant", "system") or (role == "system" and before != "user"):
            yield "messages: Unexpected role"
    if kind == "enabled" and _results(body["messages"][-1]["content"], "tool_result"):
        # extended-thinking, "Toggling thinking modes in conversations", 2026-11-23
        said = body["messages"][-2]["content"][0]["type"]
        if said not in ("thinking", "redacted_thinking"):
            yield f"Expected `thinking` or `redacted_thinking`, but found `{said}`."


def _results(content: Any, name: str) -> bool:
    """Whether all of a turn is what tools gave."""
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and all(name in (block.get("type"), *block) for block in blocks)


@dataclass(frozen=True)
class Chat:
    """A model that is asked over OpenAI's chat completions.

    Attributes:
        refuses: members that are an error whatever they say.
        fixed: those that may say nothing but this, unless the effort is `none` and `unthinking`.
        unthinking: as said.
        efforts: the values of `reasoning_effort`; None for any.
        roles: of messages.
        schemas: whether `response_format` may be a schema.
        most: of `max_completion_tokens`.
        calls: whether it calls functions while it thinks.
    """

    refuses: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    unthinking: bool = False
    efforts: frozenset[str] | None = None
    roles: frozenset[str] = frozenset({"system", "developer", "user", "assistant", "tool"})
    schemas: bool = True
    most: int = 1 << 40
    calls: bool = True


_REASONING = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
_OLDER = frozenset({"system", "user", "assistant", "tool"})

CHAT: Mapping[str, Chat] = {
    "gpt-5": Chat(
        refuses=frozenset({"max_tokens", "logprobs", "logit_bias"}),
        fixed=_REASONING,
        efforts=frozenset({"minimal", "low", "medium", "high"}),
        most=128_000,
    ),
    "o3": Chat(
        refuses=frozenset({"max_tokens", "logprobs", "logit_bias", "stop"}),
        fixed=_REASONING,
        efforts=frozenset({"low", "medium", "high"}),
        roles=frozenset({"developer", "user", "assistant", "tool"}),
        most=100_000,
    ),
    "gpt-6.1-sol": Chat(
        refuses=frozenset({"max_tokens"}),
        fixed={"temperature": 1, "top_p": 1},
        unthinking=True,
        efforts=frozenset({"none", "low", "medium", "high", "xhigh", "max"}),
        most=128_000,
        calls=False,
    ),
    "deepseek-v4-flash": Chat(roles=_OLDER, schemas=False),
    "mistral-large-latest": Chat(roles=_OLDER),
    "grok-4": Chat(
        refuses=frozenset({"presence_penalty", "frequency_penalty", "stop", "reasoning_effort"})
    ),
}


def _chat(body: dict[str, Any]) -> Iterator[str]:
    model = CHAT[body["model"]]
    for name in model.refuses & body.keys():
        yield f"Unsupported parameter: '{name}' is not supported with this model."
    effort = body.get("reasoning_effort")
    if not (model.unthinking and effort == "none"):
        for name, value in model.fixed.items():
            if body.get(name, value) != value:
                yield f"Unsupported value: '{name}' does not support {body[name]} with this model."
    if model.efforts is not None and effort is not None and effort not in model.efforts:
        yield f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model."
    if body.get("tools") and effort != "none" and not model.calls:
        # onyx-dot-app/onyx#15008 (2026-11-28)
        yield "Function tools with reasoning_effort are not supported. Use /v1/responses."
    for place, message in enumerate(body["messages"]):
        if message["role"] not in model.roles:
            yield f"messages[{place}].role: unknown variant `{message['role']}`"
    if not model.schemas and body.get("response_format", {}).get("type") == "json_schema":
        yield "This response_format type is unavailable now"
    if body.get("max_completion_tokens", body.get("max_tokens", 0)) > model.most:
        yield "max_tokens is too large"


LEVELS: Mapping[str, frozenset[str]] = {
    "gemini-3.8-flash": frozenset({"LOW", "MEDIUM", "HIGH"}),
    "gemini-3.5-flash": frozenset({"MINIMAL", "LOW", "MEDIUM", "HIGH"}),
    "gemini-2.5-flash": frozenset(),
}
"""The thinking levels of Google's models; with none, one takes a budget."""


def _gemini(model: str, body: dict[str, Any]) -> Iterator[str]:
    config = body.get("generationConfig", {})
    thinking = config.get("thinkingConfig", {})
    if "thinkingLevel" in thinking and thinking["thinkingLevel"] not in LEVELS[model]:
        yield f"Thinking level {thinking['thinkingLevel']} is not supported for this model."
    if "thinkingBudget" in thinking and LEVELS[model]:
        yield "Thinking budget is not supported for this model."
    is_json = config.get("responseMimeType") == "application/json"
    if is_json and body.get("tools") and model.startswith("gemini-2"):
        # googleapis/python-genai#867 (2026-11-28)
        yield "Function calling with a response mime type: 'application/json' is unsupported"
    for content in body["contents"]:
        responses = [part.get("functionResponse", {}) for part in content["parts"]]
        if model.startswith("gemini-2") and any("parts" in each for each in responses):
            # google-gemini/gemini-cli#19436 (2026-11-28)
            yield "`function_response.parts` is not supported for this model."
    if config.get("maxOutputTokens", 0) > 65_536:
        yield "maxOutputTokens out of range"
    for content in reversed(body["contents"]):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if content["role"] == "user" and not _results(content["parts"], "functionResponse"):
            break
        if calls and "thoughtSignature" not in calls[0]:
            # ai.google.dev/gemini-api/docs/thought-signatures, 2026-11-23
            yield "Function call is missing a thought_signature in functionCall parts."


class StrictModels(StrictVendors):
    """The server; the path's first segment is whatever, the rest says which API is asked."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, body = request.match_info["path"], await request.json()
        if path.endswith("messages"):
            self.seen["claude"] = Seen(body)
            return await self._messages(request, body)
        if path.endswith("responses"):
            self.seen["responses"] = Seen(body)
            return await self._responses(body)
        if path.endswith("chat/completions"):
            self.seen["chat"] = Seen(body)
            return await self._chat(request, body)
        model = path.rpartition("/")[2].partition(":")[0]
        self.seen["gemini"] = Seen(body)
        for complaint in _gemini(model, body):
            error = {"code": 400, "message": complaint, "status": "INVALID_ARGUMENT"}
            return web.json_response({"error": error}, status=400)
        parts: list[dict[str, Any]] = [{"text": "Sunny."}]
        calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
        if calling.get("mode") == "ANY":
            name = body["tools"][0]["functionDeclarations"][-1]["name"]
            parts = [{"functionCall": {"name": name, "args": {"city": "Bern"}}}]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        return web.json_response({"candidates": [candidate], "usageMetadata": {}})

    async def _messages(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for complaint in claude_complaints(body):
            error = {"type": "invalid_request_error", "message": complaint}
            return web.json_response({"type": "error", "error": error}, status=400)
        if body.get("tool_choice", {}).get("type") == "tool":
            name = body["tool_choice"]["name"]
            message = sdk.message([sdk.tool_use("toolu_1", name, {"city": "Bern"})], "tool_use")
        else:
            message = sdk.message([sdk.text("Sunny.")], "end_turn")
        if not body.get("stream"):
            return web.json_response(text=message.model_dump_json())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sdk.stream_bytes(sdk.stream_events(message)))
        return response

    async def _chat(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for complaint in _chat(body):
            error = {"message": complaint, "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        choice = body.get("tool_choice")
        message: dict[str, Any] = {"content": "Sunny."}
        if isinstance(choice, dict):
            name = choice["function"]["name"]
            function = {"name": name, "arguments": json.dumps({"city": "Bern"})}
            call = {"id": "call_1", "type": "function", "function": function}
            message = {"content": None, "tool_calls": [call]}
        if body.get("stream"):
            return await _stream(request, message)
        return web.json_response(_completion(message))

    async def _responses(self, body: dict[str, Any]) -> web.StreamResponse:
        complain, reply = WIRES["responses"]
        for complaint in (*complain(body), *_lacking(body)):
            error = {"message": complaint, "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        output = reply["output"]
        if body.get("tools") and body["input"][-1].get("type") != "function_call_output":
            function = {"name": body["tools"][0]["name"], "arguments": json.dumps({"city": "Bern"})}
            output = [{**call, **function}]
        return web.json_response({**reply, "output": output})


_ABSENT = ("seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias", "messages")


def _lacking(body: dict[str, Any]) -> Iterator[str]:
    for name in body.keys() & set(_ABSENT):
        yield f"Unknown parameter: '{name}'."
