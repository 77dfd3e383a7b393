"""Anthropic's Messages API, which refuses what the real one refuses.

Written from the vendor's pages on versions, preserved thinking, and refusals and fallback
(https://platform.claude.com/docs/en/api/versioning,
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks,
https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback) and from the types of
`anthropic` 2.12.0, all read on 2026-11-23, and not from what is tested against it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from anthropic.types import beta, message_create_params
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests import sdk_anthropic as sdk
from tests.integration.strict_models import CLAUDE, claude_complaints
from tests.integration.strict_vendors import StrictVendors

KEY = "sk-ant-strict"
VERSIONS = ("2023-06-01", "2026-10-21")
BINDING = "thinking-binding-controls-2026-08-01"
FALLBACK = "server-side-fallback-2026-07-01"
BOUND = frozenset({"claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"})
"""Those of `CLAUDE` that check what came before a thought."""

THOUGHTS = "The user wants the weather."
DECLINED = "Something harmful"
"""What a model declines that is asked it, after some tokens."""

_BETAS = {"fallbacks": FALLBACK, "context_management": "context-management-2025-06-27"}
_HEADERS = frozenset({"user_profile_id", "workspace_id"})
_STABLE = frozenset(message_create_params.MessageCreateParamsBase.__annotations__) - _HEADERS
_MESSAGES: TypeAdapter[Any] = TypeAdapter(list[beta.BetaMessageParam])


@dataclass
class Heard:
    """The last request that was answered with a message.

    Attributes:
        body, headers: as they came.
        kept: how many thoughts of earlier turns the model was shown.
        dropped: of the others, why each was not.
    """

    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    dropped: list[str] = field(default_factory=list)


class _Refused(Exception):
    """A 400, or what else `status` says."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class StrictAnthropic(StrictVendors):
    """The server; the path's first segment is whatever.

    Attributes:
        heard: what it has answered last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

    def base_url(self, vendor: str = "any") -> str:
        return super().base_url(vendor).removesuffix("/v1")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            heard = _heard(body, {name.lower(): value for name, value in request.headers.items()})
        except _Refused as refused:
            kind = "authentication_error" if refused.status == 401 else "invalid_request_error"
            error = {"type": kind, "message": str(refused)}
            return web.json_response(
                {"type": "error", "error": error, "request_id": "req_1"}, status=refused.status
            )
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": 11})
        self.heard = heard
        message = _reply(heard)
        if not body.get("stream"):
            return web.json_response(message)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sdk.stream_bytes(list(_events(message))))
        return response


# What is refused ----------------------------------------------------------------------------------


def _heard(body: dict[str, Any], headers: dict[str, str]) -> Heard:
    if KEY not in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    ):
        raise _Refused("invalid x-api-key", 401)
    if headers.get("anthropic-version") not in VERSIONS:
        raise _Refused("anthropic-version: header is required")
    betas = set(headers.get("anthropic-beta", "").split(","))
    for complaint in _complaints(body, headers["anthropic-version"], betas):
        raise _Refused(complaint)
    heard = Heard(body, headers)
    _check_thoughts(heard)
    return heard


def _complaints(body: dict[str, Any], version: str, betas: set[str]) -> Iterator[str]:
    known = (
        _STABLE
        | {"stream"}
        | sdk.SAMPLING
        | {name for name, asked in _BETAS.items() if asked in betas}
    )
    for name in sorted(body.keys() - known):
        yield f"{name}: Extra inputs are not permitted"
    try:
        messages = sdk.listed(_MESSAGES.validate_python(body["messages"]))
    except ValidationError as error:
        yield f"messages: {error}"
        return
    if _plain(messages) != body["messages"]:
        yield "messages: Extra inputs are not permitted"
    if "block_binding" in body.get("thinking", {}):
        if BINDING not in betas:
            yield "thinking.adaptive.block_binding: Extra inputs are not permitted"
        if body["model"] not in BOUND or body["thinking"]["type"] not in ("adaptive", "enabled"):
            yield "thinking.block_binding: not supported"
    if version >= "2026-10-21":
        for name in sorted(sdk.SAMPLING & body.keys()):
            yield f"{name}: Extra inputs are not permitted"
    for place, message in enumerate(body["messages"]):
        for block in message["content"] if isinstance(message["content"], list) else ():
            is_cited = block["type"] == "text" and block.get("citations")
            if version < "2026-10-21":
                continue
            if message["role"] == "assistant" and block["type"] == "document":
                yield f"messages.{place}: document blocks are not allowed in assistant messages"
            if message["role"] == "user" and is_cited:
                yield f"messages.{place}: citations are not allowed in user messages"
    if any(not each.strip() for each in body.get("stop_sequences", ())):
        yield "stop_sequences: each stop sequence must contain non-whitespace"
    said = [*_turns(body), {"content": _blocks(body.get("system", []))}]
    if any(_is_blank(block) for turn in said for block in turn["content"]):
        yield "messages: text content blocks must contain non-whitespace text"
    blocks = {block["type"] for turn in _turns(body) for block in turn["content"]}
    if blocks & {"tool_use", "tool_result"} and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools."
    if json.dumps(body).count('"cache_control"') > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."
    if body.get("service_tier", "auto") not in ("auto", "standard_only"):
        yield "service_tier: Input should be 'auto' or 'standard_only'"
    yield from _calls_without_results(_turns(body))
    if body["model"] in CLAUDE:
        yield from claude_complaints({"max_tokens": 1, **body})
    else:
        yield f"model: {body['model']}"


def _plain(value: Any) -> Any:
    """`value` with the SDK's own models, which also stand for a block of a reply, as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _is_blank(block: dict[str, Any]) -> bool:
    if block["type"] == "tool_result":
        return any(map(_is_blank, block.get("content", ())))
    return block["type"] == "text" and not block["text"].strip()


def _calls_without_results(turns: Sequence[dict[str, Any]]) -> Iterator[str]:
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        calls = {block["id"] for block in turn["content"] if block["type"] == "tool_use"}
        content = following["content"] if following is not None else []
        if calls - {block.get("tool_use_id") for block in content}:
            yield "`tool_use` ids were found without `tool_result` blocks immediately after"


# Thoughts -----------------------------------------------------------------------------------------


def _without_marks(value: Any) -> Any:
    """`value` without what steers a cache, which is no part of what the model reads."""
    if isinstance(value, dict):
        return {
            name: _without_marks(each)
            for name, each in value.items()
            if name not in ("cache_control", "citations", "caller")
        }
    return [_without_marks(each) for each in value] if isinstance(value, list) else value


def _turns(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns, those of one side put together, a string as the one block that it stands for."""
    turns: list[dict[str, Any]] = []
    for message in _without_marks(body["messages"]):
        content = _blocks(message["content"])
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] += content
        else:
            turns.append({"role": message["role"], "content": content})
    return turns


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        {**block, "content": _blocks(block["content"])}
        if block["type"] == "tool_result" and "content" in block
        else block
        for block in content
    ]


def _prefix(body: dict[str, Any], turns: Sequence[dict[str, Any]], blocks: Sequence[Any]) -> str:
    system = _blocks(_without_marks(body.get("system", [])))
    tools = _without_marks(body.get("tools", []))
    said = json.dumps([system, tools, list(turns), list(blocks)])
    return hashlib.sha256(said.encode()).hexdigest()


def _sealed(model: str, thoughts: str, prefix: str) -> str:
    own = hashlib.sha256(f"secret {model} {thoughts} {prefix}".encode()).hexdigest()
    return base64.b64encode(json.dumps([model, prefix, own]).encode()).decode()


def _check_thoughts(heard: Heard) -> None:
    body, turns = heard.body, _turns(heard.body)
    binding = body.get("thinking", {}).get("block_binding", {})
    for place, turn in enumerate(turns):
        for at, block in enumerate(turn["content"]):
            if block["type"] != "thinking":
                continue
            path = f"messages.{place}.content.{at}: Invalid `signature` in `thinking` block"
            try:
                model, prefix, _ = json.loads(base64.b64decode(block["signature"], validate=True))
            except ValueError:
                raise _Refused(path) from None
            if turn["role"] != "assistant" or block["signature"] != _sealed(
                model, block["thinking"], prefix
            ):
                raise _Refused(path)
            if model != body["model"]:
                heard.dropped.append("model_binding_mismatch")
            elif model not in BOUND or prefix == _prefix(body, turns[:place], turn["content"][:at]):
                heard.kept += 1
            elif binding.get("prefix_mismatch_behavior") == "drop_block":
                heard.dropped.append("prefix_binding_mismatch")
            else:
                raise _Refused(
                    f"{path}. The block is bound to a different conversation. Remove the block, or"
                    ' set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                )


# What it says -------------------------------------------------------------------------------------


def _reply(heard: Heard) -> dict[str, Any]:
    body, turns = heard.body, _turns(heard.body)
    model, tier = body["model"], body.get("service_tier", "auto")
    usage: dict[str, Any] = {
        "input_tokens": 40,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 10,
        "output_tokens": 25,
        "service_tier": "priority" if tier == "auto" else "standard",
    }
    content, reason = _content(body, turns)
    if body.get("fallbacks") and DECLINED in json.dumps(turns[-1]):
        served = "claude-opus-4-7"
        counted = {name: count for name, count in usage.items() if name != "service_tier"}
        declined = {
            "input_tokens": 7,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 2,
            "output_tokens": 4,
        }
        usage["iterations"] = [
            {"type": "message", "model": model, **declined},
            {"type": "fallback_message", "model": served, **counted},
        ]
        trigger = {"type": "refusal", "category": None}
        hop = {"from": {"model": model}, "to": {"model": served}, "trigger": trigger}
        content = [{"type": "fallback", **hop}, {"type": "text", "text": "Sunny."}]
        model, reason = served, "end_turn"
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }
    if BINDING in heard.headers.get("anthropic-beta", ""):
        message["input_transformations"] = [
            {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": why}
            for why in heard.dropped
        ]
    return message


def _content(body: dict[str, Any], turns: list[dict[str, Any]]) -> tuple[list[Any], str]:
    kind = body.get("thinking", {}).get("type", "adaptive")
    thinks = "adaptive" in CLAUDE[body["model"]].thinking and kind == "adaptive"
    content: list[Any] = []
    if thinks:
        seal = _sealed(body["model"], THOUGHTS, _prefix(body, turns, []))
        content.append({"type": "thinking", "thinking": THOUGHTS, "signature": seal})
    last = [turn for turn in turns if turn["role"] == "user"][-1]["content"]
    choice = body.get("tool_choice", {})
    if body.get("tools") and choice.get("type") != "none" and last[-1]["type"] != "tool_result":
        name = choice.get("name", body["tools"][0]["name"])
        call = {"type": "tool_use", "id": f"toolu_{len(turns)}", "name": name}
        text = [] if choice.get("name") else [{"type": "text", "text": "I'll look."}]
        return [*content, *text, {**call, "input": {"city": "Bern"}}], "tool_use"
    return [*content, {"type": "text", "text": "Sunny."}], "end_turn"


_DELTAS = {"text": ("text",), "thinking": ("thinking", "signature"), "tool_use": ("input",)}


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    late = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    counted = {name: each for name, each in message["usage"].items() if name != "iterations"}
    begun = {**dict.fromkeys(late), "content": [], "usage": {**counted, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **begun}}
    for index, block in enumerate(message["content"]):
        parts = _DELTAS.get(block["type"], ())
        empty = {name: {} if name == "input" else "" for name in parts}
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
        for name in parts:
            delta = {"type": f"{name}_delta", name: block[name]}
            if name == "input":
                given = json.dumps(block[name])
                delta = {"type": "input_json_delta", "partial_json": given}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    usage = {name: each for name, each in message["usage"].items() if name != "service_tier"}
    yield {"type": "message_delta", "delta": late, "usage": usage}
    yield {"type": "message_stop"}
