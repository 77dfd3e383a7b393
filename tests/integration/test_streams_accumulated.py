"""Streams put together again by each client API's own SDK, beside whole replies of the same.

Every client API is asked for what every vendor's wire says: text, thoughts, calls at once, replies
that are cut or filtered, and streams that fail on their way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from tests import bedrock
from tests.integration.interactions_vendor import InteractionsVendor
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer
from tests.integration.openai_vendor import USAGE, OpenAIVendor
from tests.integration.server_process import running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor
from tests.integration.test_native_bedrock import BedrockVendor
from tests.integration.test_native_gemini import GeminiVendor
from tests.integration.test_native_ollama import OllamaVendor

PROVIDERS: Mapping[str, tuple[str, str, dict[str, Any], type[Vendor], str]] = {
    "chat": ("remote::openai", "/v1", {"wires": ["chat"]}, OpenAIVendor, "own"),
    "anthropic": ("remote::anthropic-messages", "", {}, AnthropicVendor, "claude-sonnet-4-6"),
    "gemini": ("remote::gemini-native", "", {}, GeminiVendor, "gemini-3-pro"),
    "interactions": (
        "remote::gemini-native",
        "",
        {"apis": ["interactions"]},
        InteractionsVendor,
        "gemini-3-pro",
    ),
    "bedrock": ("remote::bedrock-converse", "", {}, BedrockVendor, "anthropic.claude-sonnet-4-6"),
    "ollama": ("remote::ollama-native", "", {}, OllamaVendor, "own"),
}

FIRST, SECOND = {"a": 1, "b": "Zürich or so"}, {"a": 2}
REPLIES = {
    "text": Reply(text="It is 20 °C. 🌞"),
    "thoughts": Reply(text="It is 20 °C.", thoughts="Look outside, well."),
    "calls": Reply(text="Let me see.", calls=[("f", FIRST), ("f", SECOND)], stop="calls"),
    "calls alone": Reply(thoughts="Hm, well.", calls=[("f", FIRST), ("f", FIRST)], stop="calls"),
    "cut": Reply(text="It is", stop="length"),
    "cut in thought": Reply(thoughts="Look out", stop="length"),
    "filtered": Reply(stop="filter"),
    "filtered on the way": Reply(text="It is", stop="filter"),
    "nothing": Reply(),
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
}
HI: list[Any] = [{"role": "user", "content": "Hi"}]


class Setting:
    """The gateway's address, and its vendors by name."""

    def __init__(self, url: str, vendors: Mapping[str, Vendor]) -> None:
        self.url = url
        self.vendors = vendors


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(kind.server_type())
            for name, (_, _, _, kind, _) in PROVIDERS.items()
        }
        template = write_template(
            tmp_path_factory.mktemp("streams") / "streams.yaml",
            providers=[
                {
                    "id": name,
                    "type": kind,
                    "config": {
                        "base_url": servers[name].url + path,
                        **({} if name == "ollama" else {"api_key": "sk-x"}),
                        **settings,
                    },
                }
                for name, (kind, path, settings, _, _) in PROVIDERS.items()
            ],
            models=[
                {"id": name, "provider": name, "provider_model": model}
                for name, (_, _, _, _, model) in PROVIDERS.items()
            ],
        )
        server = stack.enter_context(running(template))
        vendors = {
            name: kind(servers[name], server.base_url)
            for name, (_, _, _, kind, _) in PROVIDERS.items()
        }
        yield Setting(server.url, vendors)


# What a client has at the end, whole or streamed --------------------------------------------------


def ids_of(calls: Sequence[Any]) -> list[str]:
    """The ids of calls, which are made here for vendors that have none, and so are others each
    time; each call has one of its own."""
    ids = [call["id"] for call in calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return ids


@cache
def openai_at(url: str) -> openai.OpenAI:
    """One client for all, as each reads the certificates of all authorities."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)


@cache
def anthropic_at(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)


@cache
def genai_at(url: str) -> genai.Client:
    return genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url=url))


@cache
def ollama_at(url: str) -> ollama.Client:
    return ollama.Client(host=url)


def by_chat(url: str, model: str, *, stream: bool) -> Any:
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
    asked: dict[str, Any] = {"model": model, "messages": HI, "tools": [tool]}
    client = openai_at(url)
    if stream:
        options: Any = {"include_usage": True}
        with client.chat.completions.stream(**asked, stream_options=options) as events:
            events.until_done()
            reply: Any = events.current_completion_snapshot
    else:
        reply = client.chat.completions.create(**asked)
    (choice,) = reply.choices
    said = choice.message.model_dump(exclude_none=True)
    calls = said.pop("tool_calls", [])
    ids_of(calls)
    return {
        **said,
        # Whole replies that call, and say nothing, have null there. A stream may have begun.
        "content": said.get("content") or "",
        "calls": [
            (each["function"]["name"], json.loads(each["function"]["arguments"])) for each in calls
        ],
        "reason": choice.finish_reason,
        "usage": reply.usage.model_dump(exclude_none=True),
        "model": reply.model,
    }


def by_responses(url: str, model: str, *, stream: bool) -> Any:
    tool: Any = {"type": "function", "name": "f", "parameters": PARAMETERS, "strict": False}
    asked: dict[str, Any] = {"model": model, "input": HI, "tools": [tool], "store": False}
    client = openai_at(url)
    if stream:
        with client.responses.stream(**asked) as events:
            *_, last = events
        reply: Any = last.response  # type: ignore[union-attr]
        if last.type == "response.completed":
            assert events.get_final_response().output_text == reply.output_text
    else:
        reply = client.responses.create(**asked)
    items = [item.model_dump(exclude_none=True) for item in reply.output]
    ids_of(items)
    for item in items:
        for name in ("id", "call_id", "encrypted_content", "parsed_arguments"):
            item.pop(name, None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
        if "arguments" in item:
            item["arguments"] = json.loads(item["arguments"])
    return {
        "items": items,
        "status": reply.status,
        "why": reply.incomplete_details and reply.incomplete_details.reason,
        "usage": reply.usage.model_dump(),
        "model": reply.model,
    }


def by_messages(url: str, model: str, *, stream: bool) -> Any:
    tool: Any = {"name": "f", "input_schema": PARAMETERS}
    asked: dict[str, Any] = {"model": model, "max_tokens": 99, "messages": HI, "tools": [tool]}
    client = anthropic_at(url)
    if stream:
        with client.messages.stream(**asked) as events:
            reply: Any = events.get_final_message()
    else:
        reply = client.messages.create(**asked)
    blocks = [block.model_dump(exclude_none=True) for block in reply.content]
    ids_of([block for block in blocks if block["type"] == "tool_use"])
    for block in blocks:
        for name in ("id", "signature", "parsed_output"):
            block.pop(name, None)
    usage = reply.usage.model_dump(exclude_none=True)
    return blocks, reply.stop_reason, usage, reply.model, reply.role


def by_gemini(url: str, model: str, *, stream: bool) -> Any:
    declared = genai_types.FunctionDeclaration(name="f", parameters_json_schema=PARAMETERS)
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declared])],
        thinking_config=genai_types.ThinkingConfig(include_thoughts=True),
    )
    client = genai_at(url)
    asked: dict[str, Any] = {"model": model, "contents": "Hi", "config": config}
    if stream:
        replies = list(client.models.generate_content_stream(**asked))
    else:
        replies = [client.models.generate_content(**asked)]
    candidates = [each for reply in replies for each in reply.candidates or ()]
    parts = [part for each in candidates for part in (each.content and each.content.parts) or ()]
    usages = [reply.usage_metadata for reply in replies if reply.usage_metadata]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thoughts": "".join(part.text or "" for part in parts if part.thought),
        "calls": [
            (part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        ],
        "reasons": [each.finish_reason for each in candidates if each.finish_reason],
        "blocked": [reply.prompt_feedback for reply in replies if reply.prompt_feedback],
        "usage": usages[-1].model_dump(exclude_none=True),
        "model": replies[-1].model_version,
    }


def by_ollama(url: str, model: str, *, stream: bool) -> Any:
    tool = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
    client = ollama_at(url)
    asked: dict[str, Any] = {"model": model, "messages": HI, "tools": [tool]}
    replies = list(client.chat(**asked, stream=True)) if stream else [client.chat(**asked)]
    return {
        "text": "".join(reply.message.content or "" for reply in replies),
        "thoughts": "".join(reply.message.thinking or "" for reply in replies),
        "calls": [
            (call.function.name, dict(call.function.arguments))
            for reply in replies
            for call in reply.message.tool_calls or ()
        ],
        "reasons": [reply.done_reason for reply in replies if reply.done],
        "counts": (replies[-1].prompt_eval_count, replies[-1].eval_count),
        "model": replies[-1].model,
    }


def by_completions(url: str, model: str, *, stream: bool) -> Any:
    asked: dict[str, Any] = {"model": model, "prompt": "Hi", "max_tokens": 99}
    client = openai_at(url)
    if stream:
        options: Any = {"include_usage": True}
        made = client.completions.create(**asked, stream=True, stream_options=options)
        replies: list[Any] = list(made)
    else:
        replies = [client.completions.create(**asked)]
    choices = [choice for reply in replies for choice in reply.choices]
    return {
        "text": "".join(choice.text for choice in choices),
        "reasons": [choice.finish_reason for choice in choices if choice.finish_reason],
        "usage": replies[-1].usage and replies[-1].usage.model_dump(exclude_none=True),
    }


CLIENTS: Mapping[str, Callable[..., Any]] = {
    "chat": by_chat,
    "responses": by_responses,
    "messages": by_messages,
    "gemini": by_gemini,
    "ollama": by_ollama,
    "completions": by_completions,
}
NO_FILTER = "ollama"
"""Its vendor has no word for what was filtered."""


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_comes_to_what_the_whole_reply_is(
    setting: Setting, client: str, vendor: str
) -> None:
    ask, wrong = CLIENTS[client], {}
    for name, reply in REPLIES.items():
        if vendor == NO_FILTER and reply.stop == "filter":
            continue
        if client == "completions" and (reply.calls or reply.thoughts):
            continue
        setting.vendors[vendor].will_say(reply, piece_size=11)
        whole, streamed = (ask(setting.url, vendor, stream=stream) for stream in (False, True))
        if whole != streamed:
            wrong[name] = (whole, streamed)
    assert wrong == {}


def chat_body(**choice: Any) -> bytes:
    said = {
        "id": "chatcmpl-1",
        "created": 1,
        "model": "theirs",
        "choices": [{"index": 0, **choice}],
    }
    return json.dumps({**said, "usage": USAGE} if "message" in choice else said).encode()


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "completions"])
def test_a_refusal_that_is_streamed_is_one(setting: Setting, client: str) -> None:
    """Of these vendors OpenAI alone has words for it."""
    refused = {"role": "assistant", "content": None, "refusal": "I can't do that."}
    chunks = [
        chat_body(delta={"role": "assistant", "content": None}),
        chat_body(delta={"refusal": "I can't "}),
        chat_body(delta={"refusal": "do that."}),
        chat_body(delta={}, finish_reason="stop"),
        json.dumps({"id": "chatcmpl-1", "created": 1, "choices": [], "usage": USAGE}).encode(),
        b"[DONE]",
    ]
    setting.vendors["chat"].server.will_answer(
        Answer([chat_body(message=refused, finish_reason="stop")]),
        streamed=Answer(
            [b"data: " + chunk + b"\n\n" for chunk in chunks], content_type="text/event-stream"
        ),
    )
    whole, streamed = (CLIENTS[client](setting.url, "chat", stream=each) for each in (False, True))
    assert "I can't do that." in repr(whole)
    assert whole == streamed


# Streams that fail --------------------------------------------------------------------------------

BEGUN = Reply(text="It is 20 degrees.")
FAILURES = (openai.APIError, anthropic.APIError, genai.errors.APIError, ollama.ResponseError)


def beginning(name: str, vendor: Vendor) -> bytes:
    """A stream of `vendor` up to its first piece of text."""
    if isinstance(vendor, BedrockVendor):
        frames = bedrock.stream_events(vendor.reply(BEGUN))
        texts = [at for at, each in enumerate(frames) if "It is" in json.dumps(each)]
        return bytes(bedrock.stream_bytes(frames[: texts[0] + 1]))
    end = b"\n" if name == "ollama" else b"\n\n"
    events = vendor.stream(BEGUN).split(end)
    first = next(at for at, event in enumerate(events) if b"It is" in event)
    return end.join(events[: first + 1]) + end


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "cut off"])
def test_a_stream_that_fails_is_no_reply(
    setting: Setting, client: str, vendor: str, is_told: bool
) -> None:
    one = setting.vendors[vendor]
    begun = beginning(vendor, one)
    pieces = [begun, one.stream_error] if is_told else [begun]
    one.server.will_answer(Answer(pieces, content_type="text/event-stream", break_off=not is_told))
    with pytest.raises(FAILURES):
        CLIENTS[client](setting.url, vendor, stream=True)
