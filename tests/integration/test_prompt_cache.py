"""Caching of prompts as a policy: what Anthropic is asked to keep, what OpenAI is told of it, and
what every client hears of what was read and written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import sdk_anthropic as sdk
from tests.integration import wire
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.thinking_vendors import ThinkingVendors

MARK = {"type": "ephemeral"}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "get_weather", "parameters": PARAMETERS}
QUESTIONS = ("Weather in Bern?", "And tomorrow?")
SYSTEM = "Be brief."


@pytest.fixture(scope="module")
def vendor() -> Iterator[NativeVendor]:
    message = sdk.message([sdk.text("Sunny.")])
    stream = sdk.stream_bytes(sdk.stream_events(message))
    with NativeVendor() as vendor:
        vendor.will_answer(
            Answer([message.model_dump_json().encode()]),
            streamed=Answer([stream], content_type="text/event-stream"),
        )
        yield vendor


@pytest.fixture(scope="module")
def others() -> Iterator[ThinkingVendors]:
    with ThinkingVendors() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache") / "records.db"


@pytest.fixture(scope="module")
def server(vendor: NativeVendor, others: ThinkingVendors, storage: Path) -> Iterator[ServerProcess]:
    openai = {"base_url": others.base_url("openai"), "api_key": "sk-x", "wires": ["chat"]}
    deepseek = {"base_url": others.base_url("deepseek"), "api_key": "sk-x", "wires": ["chat"]}
    template = write_template(
        storage.with_name("cache.yaml"),
        server={"storage": f"sqlite:{storage}", "records": {}},
        providers=[
            {
                "id": "claude",
                "type": "remote::anthropic-messages",
                "config": {"base_url": vendor.url, "api_key": "sk-x"},
            },
            {"id": "openai", "type": "remote::openai", "config": openai},
            {"id": "deepseek", "type": "remote::deepseek", "config": deepseek},
        ],
        models=[
            {
                "id": "cached",
                "provider": "claude",
                "provider_model": "claude-haiku-4-5",
                "prompt_cache": "auto",
            },
            {
                "id": "priced",
                "provider": "claude",
                "provider_model": "claude-haiku-4-5",
                "price": {"input": 1, "output": 5, "cached_input": 0.1, "cache_write": 1.25},
            },
            {"id": "by-group", "targets": [{"model": "cached"}]},
            {"id": "plain", "provider": "claude", "provider_model": "claude-haiku-4-5"},
            {"id": "openai", "provider": "openai", "provider_model": "gpt-6.1-sol"},
            {"id": "deepseek", "provider": "deepseek", "provider_model": "deepseek-v4-flash"},
        ],
    )
    with running(template) as server:
        yield server


def in_chat(model: str) -> tuple[str, dict[str, Any]]:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTIONS[0]},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": QUESTIONS[1]},
    ]
    body = {"messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    return "/v1/openai/v1/chat/completions", {"model": model, **body}


def in_responses(model: str) -> tuple[str, dict[str, Any]]:
    items = [
        {"role": "user", "content": QUESTIONS[0]},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": QUESTIONS[1]},
    ]
    body = {"instructions": SYSTEM, "input": items, "tools": [{"type": "function", **TOOL}]}
    return "/v1/openai/v1/responses", {"model": model, **body}


def in_messages(model: str) -> tuple[str, dict[str, Any]]:
    messages = [
        {"role": "user", "content": QUESTIONS[0]},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": QUESTIONS[1]},
    ]
    tools = [{"name": TOOL["name"], "input_schema": PARAMETERS}]
    body = {"system": SYSTEM, "messages": messages, "tools": tools, "max_tokens": 100}
    return "/v1/messages", {"model": model, **body}


def in_gemini(model: str) -> tuple[str, dict[str, Any]]:
    declarations = [{"name": TOOL["name"], "parametersJsonSchema": PARAMETERS}]
    body = {
        "systemInstruction": {"parts": [{"text": SYSTEM}]},
        "contents": [
            {"role": "user", "parts": [{"text": QUESTIONS[0]}]},
            {"role": "model", "parts": [{"text": "Sunny."}]},
            {"role": "user", "parts": [{"text": QUESTIONS[1]}]},
        ],
        "tools": [{"functionDeclarations": declarations}],
    }
    return f"/v1beta/models/{model}:generateContent", body


def in_ollama(model: str) -> tuple[str, dict[str, Any]]:
    _, body = in_chat(model)
    return "/api/chat", body


APIS = {
    "chat": in_chat,
    "responses": in_responses,
    "messages": in_messages,
    "gemini": in_gemini,
    "ollama": in_ollama,
}


def ask(server: ServerProcess, api: str, model: str, **members: Any) -> list[dict[str, Any]]:
    """The objects of the reply: one, or a stream's."""
    path, body = APIS[api](model)
    streamed = members.pop("stream", False)
    if streamed and api == "gemini":
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    elif api != "gemini":
        members["stream"] = streamed
        if streamed and api == "chat":
            members["stream_options"] = {"include_usage": True}
    reply = wire.request("POST", f"{server.url}{path}", {**body, **members})
    assert reply.status == 200, reply.body
    if not streamed:
        return [reply.json()]
    lines = [line.removeprefix(b"data:").strip() for line in reply.body.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


@STREAMED
@pytest.mark.parametrize("model", ["cached", "by-group"])
@pytest.mark.parametrize("api", APIS)
def test_what_anthropic_is_to_keep_is_marked(
    server: ServerProcess, vendor: NativeVendor, api: str, model: str, stream: bool
) -> None:
    ask(server, api, model, stream=stream)
    body = vendor.last.body
    assert json.dumps(body).count("cache_control") == 4
    marked = [body["tools"][-1], body["system"][-1]]
    marked += [turn["content"][-1] for turn in body["messages"] if turn["role"] == "user"]
    assert [each["cache_control"] for each in marked] == [MARK] * 4
    sdk.check_request({name: value for name, value in body.items() if name != "stream"})


@pytest.mark.parametrize("api", APIS)
def test_nothing_is_marked_unless_the_template_says_so(
    server: ServerProcess, vendor: NativeVendor, api: str
) -> None:
    ask(server, api, "plain")
    assert b"cache_control" not in vendor.last.content


def test_a_client_that_marks_is_relayed_as_it_came(
    server: ServerProcess, vendor: NativeVendor
) -> None:
    _, body = in_messages("cached")
    ask(server, "messages", "cached", cache_control=MARK)
    sent = vendor.last.body
    assert sent == {**body, "model": "claude-haiku-4-5", "cache_control": MARK, "stream": False}


READ, WRITTEN = sdk.USAGE.cache_read_input_tokens, sdk.USAGE.cache_creation_input_tokens


@STREAMED
def test_each_api_tells_what_was_read_and_written(server: ServerProcess, stream: bool) -> None:
    told = ask(server, "chat", "cached", stream=stream)[-1]["usage"]["prompt_tokens_details"]
    assert told == {"cached_tokens": READ, "cache_write_tokens": WRITTEN}
    last = ask(server, "responses", "cached", stream=stream)[-1]
    usage = (last["response"] if stream else last)["usage"]
    told = usage["input_tokens_details"]
    assert told == {"cached_tokens": READ, "cache_write_tokens": WRITTEN}
    events = ask(server, "messages", "cached", stream=stream)
    usage = events[0]["message"]["usage"] if stream else events[0]["usage"]
    assert usage["cache_read_input_tokens"] == READ
    assert usage["cache_creation_input_tokens"] == WRITTEN
    told = ask(server, "gemini", "cached", stream=stream)[-1]["usageMetadata"]
    assert told["cachedContentTokenCount"] == READ


def test_records_and_prices_know_of_it(server: ServerProcess, storage: Path) -> None:
    ask(server, "messages", "priced")
    found: list[tuple[int, ...]] = []

    def is_recorded() -> bool:
        names = "input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost"
        with closing(sqlite3.connect(storage)) as connection:
            found[:] = connection.execute(f"SELECT {names} FROM records WHERE model = 'priced'")
        return bool(found)

    wire.eventually(is_recorded)
    plain, output = sdk.USAGE.input_tokens, sdk.USAGE.output_tokens
    assert READ is not None
    assert WRITTEN is not None
    cost = (plain * 1 + READ * 0.1 + WRITTEN * 1.25 + output * 5) * 1000
    assert found == [(plain + READ + WRITTEN, READ, WRITTEN, output, round(cost))]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openais_hints_go_where_they_are_taken(
    server: ServerProcess, others: ThinkingVendors, api: str
) -> None:
    hints = {"prompt_cache_key": "a-conversation", "prompt_cache_retention": "24h"}
    ask(server, api, "openai", **hints)
    sent = others.seen["openai"].body
    assert {name: sent.get(name) for name in hints} == hints
    if api == "responses":  # a relayed chat is the client's own
        ask(server, api, "deepseek", **hints)
        assert not hints.keys() & others.seen["deepseek"].body.keys()
