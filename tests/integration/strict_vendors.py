"""Vendors that speak OpenAI and take in messages what the real ones take, and nothing else.

The table is written from the vendors' own documentation, SDKs and error messages as of 2026-11, and
not from the rows that are tested against it. The path's first segment says which vendor is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.server_thread import WebServerThread

THOUGHTS = "The user wants the weather."
SEAL = {"google": {"thought_signature": "c2VhbA=="}}
ANY_SEAL = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What ai.google.dev/gemini-api/docs/thought-signatures has for calls that others made."""

DETAILS = [{"type": "reasoning.text", "text": THOUGHTS, "signature": "c2VhbA=="}]

ASSISTANT = frozenset({"role", "content", "name", "tool_calls"})
OPENAIS = ASSISTANT | {"refusal", "audio", "function_call"}
CALL = frozenset({"id", "type", "function"})
OTHERS = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}


@dataclass(frozen=True)
class Strict:
    """One vendor.

    Attributes:
        says: the members of its messages, and of their calls, in which it says what was thought.
        status: what it answers to a member that it does not know; None where it passes it over.
        members, call: those of an assistant's message, and of a call, that it knows.
        reads: those in which its model sees what it thought; with none, it never does.
        needs: without these in a message that calls tools, or if they are empty, it answers 400.
        seals: whether it answers 400 to a message of the current turn whose first call has no
            signature, or one that is none.
        refused: members of a request that it answers with `status`.
        call_id: what ids of calls have to be, or it answers 400.
        speakers: whether messages of others than tools may have a name.
        ordered: whether its models' templates want roles in their order, or it answers 400.
    """

    says: tuple[str, ...] = ()
    status: int | None = 400
    members: frozenset[str] = OPENAIS
    call: frozenset[str] = CALL
    reads: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    seals: bool = False
    refused: frozenset[str] = frozenset()
    call_id: str = ""
    speakers: bool = True
    ordered: bool = False


_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")

_AFTER = {"user": ("system", "user", "assistant", ""), "tool": ("assistant", "tool")}
"""After which roles Mistral's models take one (mistral-common's validators, 2026-11-28)."""

_CONTENT = frozenset({"reasoning_content"})
_REASONING = frozenset({"reasoning"})

STRICT: Mapping[str, Strict] = {
    "passthrough": Strict(
        says=("reasoning", "reasoning_content", "reasoning_details", "extra_content"),
        status=None,
        reads=_CONTENT,
    ),
    "openai": Strict(),
    "azure": Strict(),
    "anthropic": Strict(),
    "gemini": Strict(
        says=("extra_content",),
        members=ASSISTANT | {"extra_content"},
        call=CALL | {"extra_content"},
        seals=True,
    ),
    "mistral": Strict(
        says=("content",),
        status=422,
        members=frozenset({"role", "content", "tool_calls", "prefix"}),
        call_id="[a-zA-Z0-9]{9}",
        speakers=False,
        ordered=True,
    ),
    "deepseek": Strict(says=("reasoning_content",), status=None, reads=_CONTENT, needs=_CONTENT),
    "xai": Strict(status=422),
    "groq": Strict(
        says=("reasoning",),
        members=ASSISTANT | {"function_call", "reasoning"},
        reads=_REASONING,
    ),
    "cerebras": Strict(says=("reasoning",), members=ASSISTANT | _REASONING, reads=_REASONING),
    "sambanova": Strict(
        says=("reasoning",), status=422, members=ASSISTANT | _REASONING, reads=_REASONING
    ),
    "fireworks": Strict(says=("reasoning_content",), members=ASSISTANT | _CONTENT, reads=_CONTENT),
    "together": Strict(says=("reasoning",), members=OPENAIS | _REASONING, reads=_REASONING),
    "nvidia": Strict(
        says=("reasoning_content",), status=422, members=OPENAIS | _CONTENT, reads=_CONTENT
    ),
    "openrouter": Strict(
        says=("reasoning", "reasoning_details"),
        members=OPENAIS | _REASONING | {"reasoning_details"},
        reads=_REASONING,
    ),
    "huggingface": Strict(says=("reasoning",), members=ASSISTANT),
    "cohere": Strict(
        status=422,
        members=ASSISTANT,
        # docs.cohere.com/docs/compatibility-api, on 2026-11-22: what is not supported, and what is
        # not among what is.
        refused=frozenset(
            {
                "audio",
                "dimensions",
                "logit_bias",
                "max_completion_tokens",
                "metadata",
                "modalities",
                "n",
                "parallel_tool_calls",
                "prediction",
                "service_tier",
                "store",
                "stream_options",
                "top_logprobs",
            }
        ),
    ),
    "moonshot": Strict(
        says=("reasoning_content",), members=ASSISTANT | _CONTENT, reads=_CONTENT, needs=_CONTENT
    ),
    # platform.xiaomimimo.com/docs/en-US/usage-guide/passing-back-reasoning_content, 2026-11-23
    "xiaomi": Strict(says=("reasoning_content",), status=None, reads=_CONTENT, needs=_CONTENT),
    "zai": Strict(says=("reasoning_content",), members=ASSISTANT | _CONTENT, reads=_CONTENT),
    "minimax": Strict(says=("reasoning_details",), members=ASSISTANT | {"reasoning_details"}),
    "alibaba": Strict(says=("reasoning_content",), status=None, reads=_CONTENT),
    "vercel": Strict(
        says=("reasoning", "reasoning_details"),
        members=OPENAIS | _REASONING | {"reasoning_details"},
        reads=_REASONING,
    ),
    "databricks": Strict(members=ASSISTANT, refused=frozenset({"stream_options"})),
    "cloudflare": Strict(says=("reasoning_content",), members=ASSISTANT),
    "bedrock": Strict(members=ASSISTANT),
    "vllm": Strict(says=("reasoning",), status=None, reads=_REASONING),
    "sglang": Strict(says=("reasoning_content",), status=None, reads=_CONTENT),
    "ollama": Strict(says=("reasoning",), status=None, reads=_REASONING),
    "llama-cpp": Strict(says=("reasoning_content",), status=None, reads=_CONTENT),
    "lmstudio": Strict(says=("reasoning_content",), status=None, reads=_CONTENT),
}


@dataclass
class Seen:
    """What a vendor was asked last, and what of it its model sees.

    Attributes:
        body: all of it.
        thoughts: of the message that called a tool, what is in a member that the vendor reads.
    """

    body: dict[str, Any] = field(default_factory=dict)
    thoughts: str | None = None


class StrictVendors(WebServerThread):
    """The server; a context manager that runs it in a thread of its own.

    Attributes:
        seen: what came last, by vendor.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def base_url(self, vendor: str) -> str:
        return f"{self.url}/{vendor}/v1"

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/{vendor}/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["vendor"]
        vendor, body = STRICT[name], await request.json()
        self.seen[name] = Seen(body, _thoughts(vendor, body["messages"]))
        complaint = next(_complaints(vendor, body), None)
        if complaint is not None:
            error = {"message": complaint, "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=vendor.status or 400)
        answered = any(message["role"] == "tool" for message in body["messages"])
        tools = body.get("tools")
        message = {"content": "Sunny."} if answered or not tools else _call(vendor, tools[0])
        if body.get("stream"):
            return await _stream(request, message)
        return web.json_response(_completion(message))


def _thoughts(vendor: Strict, messages: list[dict[str, Any]]) -> str | None:
    for message in messages:
        if message.get("tool_calls"):
            return next((message[name] for name in vendor.reads if message.get(name)), None)
    return None


def _complaints(vendor: Strict, body: dict[str, Any]) -> Iterator[str]:
    for name in sorted(vendor.refused & body.keys()):
        yield f'unknown field "{name}"'
    for place, tool in enumerate(body.get("tools", ())):
        if not _NAME.fullmatch(tool["function"]["name"]):
            yield f"Invalid 'tools[{place}].function.name'"
    if vendor.ordered:
        yield from _disorder(body["messages"])
    for place, message in enumerate(body["messages"]):
        known = OTHERS.get(message["role"], vendor.members)
        if not vendor.speakers and message["role"] != "tool":
            known -= {"name"}
        calls = message.get("tool_calls") or []
        if vendor.status is not None:
            for name in message.keys() - known:
                yield f"'messages.{place}' : property '{name}' is unsupported"
            for name in {name for call in calls for name in call} - vendor.call:
                yield f"'messages.{place}.tool_calls' : property '{name}' is unsupported"
            if any(not isinstance(part, dict) for part in calls):
                yield f"'messages.{place}.tool_calls' is malformed"
        for call in calls if vendor.call_id else ():
            if not re.fullmatch(vendor.call_id, call["id"]):
                yield f"Tool call id was {call['id']} but must be {vendor.call_id}."
        for name in vendor.needs if calls else ():
            if not message.get(name):
                yield f"The `{name}` in the thinking mode must be passed back to the API."
        unsealed = calls and calls[0].get("extra_content") not in (SEAL, ANY_SEAL)
        if vendor.seals and unsealed and place > _asked(body["messages"]):
            yield "Function call is missing a thought_signature in functionCall parts."


def _disorder(messages: list[dict[str, Any]]) -> Iterator[str]:
    before = ""
    for message in messages:
        role = message["role"]
        if before not in _AFTER.get(role, (before,)):
            yield f"Unexpected role '{role}' after role '{before}'"
        before = role
    if before not in ("user", "tool") and not messages[-1].get("prefix"):
        yield f"Expected last role User or Tool (or Assistant with prefix True) but got {before}"


def _asked(messages: list[dict[str, Any]]) -> int:
    return max(place for place, message in enumerate(messages) if message["role"] == "user")


def _call(vendor: Strict, tool: Mapping[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = {
        "id": "call_1",
        "type": "function",
        "function": {"name": tool["function"]["name"], "arguments": '{"city": "Bern"}'},
    }
    message: dict[str, Any] = {"content": None, "tool_calls": [call]}
    for name in vendor.says:
        if name == "extra_content":
            call["extra_content"] = SEAL
        elif name == "content":
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHTS}]}
            message["content"] = [thinking]
        else:
            message[name] = DETAILS if name == "reasoning_details" else THOUGHTS
    return message


FRAME = {"id": "c1", "created": 1, "model": "own"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def _reason(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", **message}
    choice = {"index": 0, "message": said, "finish_reason": _reason(message)}
    return {**FRAME, "object": "chat.completion", "choices": [choice], "usage": USAGE}


async def _stream(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls") or ())]
    thoughts = {name: value for name, value in message.items() if name != "tool_calls"}
    deltas = [{"role": "assistant", **thoughts}, *([{"tool_calls": calls}] if calls else [])]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": _reason(message)})
    frame = {**FRAME, "object": "chat.completion.chunk"}
    chunks = [{**frame, "choices": [choice]} for choice in choices]
    chunks.append({**frame, "choices": [], "usage": USAGE})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response
