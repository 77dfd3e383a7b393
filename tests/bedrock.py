"""Bedrock's side of Converse: what it refuses in a request, and its frames.

Requests are held against AWS's own model of the service, which botocore has, and against what the
service says of itself in its errors (2026-11-23).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from struct import pack
from typing import Any
from zlib import crc32

import botocore.session
from botocore.validate import ParamValidator

OPERATIONS = {
    "converse": "Converse",
    "converse-stream": "ConverseStream",
    "count-tokens": "CountTokens",
}

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@cache
def _shape(operation: str) -> Any:
    model = botocore.session.Session().get_service_model("bedrock-runtime")
    return model.operation_model(OPERATIONS[operation]).input_shape


def complaint(operation: str, body: Mapping[str, Any]) -> str | None:
    """What a `ValidationException` says of a request; None for one that is taken."""
    report = ParamValidator().validate({"modelId": "m", **body}, _shape(operation))
    if report.has_errors():
        return str(report.generate_report())
    asked = body["input"]["converse"] if operation == "count-tokens" else body
    return next(_complaints(asked), None)


def _complaints(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "A conversation must start with a user message."
    roles = [message["role"] for message in messages if message["role"] != "system"]
    if any(one == other for one, other in pairwise(roles)):
        yield "Roles must alternate between 'user' and 'assistant'."
    blocks = [block for message in messages for block in message["content"]]
    for at, message in enumerate(messages):
        if not message["content"]:
            yield f"The content field in the Message object at messages.{at} is empty."
        for place, block in enumerate(message["content"]):
            if "text" in block and not block["text"].strip():
                yield f"The text field at messages.{at}.content.{place} is blank."
    calls = any(not {"toolUse", "toolResult"}.isdisjoint(block) for block in blocks)
    if calls and "toolConfig" not in body:
        yield "The toolConfig field must be defined when using toolUse and toolResult blocks."
    yield from _calls(messages)
    tools = body.get("toolConfig", {}).get("tools", ())
    for tool in (each["toolSpec"] for each in tools if "toolSpec" in each):
        if not _NAME.fullmatch(tool["name"]):
            yield "The name of a tool does not satisfy the pattern."
        if tool["inputSchema"]["json"].get("type") != "object":
            yield "The type of a tool's inputSchema must be object."
    marked = [each for each in (*blocks, *body.get("system", ()), *tools) if "cachePoint" in each]
    if len(marked) > 4:
        yield "The number of cachePoint blocks is more than 4."
    config = body.get("inferenceConfig", {})
    if max(config.get("temperature", 0), config.get("topP", 0)) > 1:
        yield "Value at 'inferenceConfig' must be less than or equal to 1."


def _calls(messages: list[Any]) -> Iterator[str]:
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        results = [each["toolResult"] for each in message["content"] if "toolResult" in each]
        answered = {each["toolUseId"] for each in results}
        if answered != waiting:
            yield f"The toolResult blocks at messages.{at} do not match the calls before them."
        first = [("toolResult" in each) for each in message["content"]]
        if first != sorted(first, reverse=True):
            yield f"The toolResult blocks at messages.{at} must come first."
        called = [each["toolUse"] for each in message["content"] if "toolUse" in each]
        waiting = {each["toolUseId"] for each in called}
        for each in [*called, *results]:
            if not _ID.fullmatch(each["toolUseId"]):
                yield f"The toolUseId at messages.{at} does not satisfy the pattern."
        if called and message["role"] != "assistant":
            yield f"toolUse blocks are the assistant's, at messages.{at}."
        if results and message["role"] != "user":
            yield f"toolResult blocks are the user's, at messages.{at}."


# Frames -------------------------------------------------------------------------------------------


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame of a stream, https://docs.aws.amazon.com/AmazonS3/latest/API/
    RESTSelectObjectAppendix.html"""
    written = b"".join(
        pack("!B", len(name)) + name.encode() + pack("!BH", 7, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = pack("!II", 16 + len(written) + len(payload), len(written))
    prelude += pack("!I", crc32(prelude))
    whole = prelude + written + payload
    return whole + pack("!I", crc32(whole))


def event(name: str, **members: Any) -> bytes:
    """An event's frame, with the padding that hides its length."""
    headers = {
        ":event-type": name,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    padded = {**members, "p": "abcdefghijk"[: len(name) % 11]}
    return frame(headers, json.dumps(padded, ensure_ascii=False).encode())


def exception(name: str, message: str) -> bytes:
    """The frame of an exception, by its name in the stream: `throttlingException`."""
    headers = {
        ":exception-type": name,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps({"message": message}).encode())


def stream_events(reply: Mapping[str, Any], size: int = 5) -> list[dict[str, Any]]:
    """A whole reply as the events of its stream, `{NAME: MEMBERS}`, text in pieces of `size`."""
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]

    def delta(index: int, **said: Any) -> None:
        events.append({"contentBlockDelta": {"contentBlockIndex": index, "delta": said}})

    for index, block in enumerate(reply["output"]["message"]["content"]):
        if "text" in block:
            for piece in _pieces(block["text"], size):
                delta(index, text=piece)
        elif "reasoningContent" in block:
            thought = block["reasoningContent"]
            if "redactedContent" in thought:
                delta(index, reasoningContent=thought)
            for piece in _pieces(thought.get("reasoningText", {}).get("text", ""), size):
                delta(index, reasoningContent={"text": piece})
            if "signature" in thought.get("reasoningText", {}):
                signature = thought["reasoningText"]["signature"]
                delta(index, reasoningContent={"signature": signature})
        elif "toolUse" in block:
            call = dict(block["toolUse"])
            given = call.pop("input")
            start = {"start": {"toolUse": call}, "contentBlockIndex": index}
            events.append({"contentBlockStart": start})
            for piece in _pieces(json.dumps(given) if given else "", size):
                delta(index, toolUse={"input": piece})
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    stop = {"stopReason": reply["stopReason"]}
    if "additionalModelResponseFields" in reply:
        stop["additionalModelResponseFields"] = reply["additionalModelResponseFields"]
    events.append({"messageStop": stop})
    events.append({"metadata": {"usage": reply["usage"], "metrics": {"latencyMs": 5}}})
    return events


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def stream_bytes(events: list[dict[str, Any]]) -> bytes:
    """The frames of events."""
    return b"".join(event(name, **said) for each in events for name, said in each.items())


USAGE = {
    "inputTokens": 15,
    "outputTokens": 25,
    "totalTokens": 55,
    "cacheReadInputTokens": 10,
    "cacheWriteInputTokens": 5,
}


def reply(content: list[dict[str, Any]], stop: str = "end_turn", **members: Any) -> dict[str, Any]:
    """A whole reply."""
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop,
        "usage": USAGE,
        "metrics": {"latencyMs": 5},
        **members,
    }
