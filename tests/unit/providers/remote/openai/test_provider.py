"""A provider of the table against a vendor that is a real HTTP server."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai import chat
from llama_compat.dialects.openai.models import parse_models
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.openai.repair import CHAT as CHAT_REPLY
from llama_compat.dialects.openai.repair import StreamMender
from llama_compat.errors import APIError, StaleConnection
from llama_compat.exchange import Call, Reply, Target
from llama_compat.hosted.vocabulary import WebSearchTool
from llama_compat.types import AudioContent, StreamStart, UserMessage
from llama_compat.wire import sse
from providers import registry
from providers.answer import answer
from providers.base import ProviderStartError
from providers.remote.openai.provider import RemoteOpenAIProvider
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.relaying.streams import relay_stream
from providers.remote.upstream import discovery
from providers.remote.upstream import exchanges as upstream
from tests.unit.calls import call_of

CHUNKS = [
    b'{"id":"a","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":"w\xc3\xb6rld \xf0\x9f\x99\x82"},'
    b'"finish_reason":null}]}',
    b'{"id":"a","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[{"index":0,'
    b'"delta":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}',
    b'{"id":"a","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[{"index":0,'
    b'"delta":{},"finish_reason":"eos"}]}',
]
DONE = b"data: [DONE]\n\n"
REPLY = (
    b'{"id":"a","object":"chat.completion","created":1,"model":"theirs","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"hi"},"finish_reason":"stop", "x":1.0}]}'
)


def events(*data: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % each for each in data)


# A vendor -----------------------------------------------------------------------------------------

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Vendor:
    """A server that remembers what it was asked, and who went away before it had answered."""

    url: str = ""
    asked: list[tuple[web.Request, bytes]] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)
    deserted: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def vendor_that(answer: Answer) -> AsyncIterator[Vendor]:
    vendor = Vendor()

    async def handle(request: web.Request) -> web.StreamResponse:
        vendor.asked.append((request, await request.read()))
        vendor.connections.append(request.transport)
        try:
            return await answer(request)
        except (asyncio.CancelledError, ConnectionError):
            vendor.deserted.set()
            raise

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    vendor.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield vendor
    finally:
        await runner.cleanup()


async def says_reply(request: web.Request) -> web.StreamResponse:
    return web.Response(body=REPLY, content_type="application/json")


async def begin(request: web.Request, *parts: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        await response.write(part)
    return response


async def streams(request: web.Request) -> web.StreamResponse:
    return await begin(request, events(*CHUNKS), DONE)


async def cut(request: web.Request) -> web.StreamResponse:
    """Break the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def provider_for(
    vendor: Vendor, provider_type: str = "remote::passthrough", **settings: Any
) -> AsyncIterator[RemoteOpenAIProvider]:
    made = registry.provider_type(provider_type)
    config = made.config.validate({"base_url": vendor.url, **settings})
    provider = made.make("mine", config, ())
    assert isinstance(provider, RemoteOpenAIProvider)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


THEIRS = Target("theirs")


SAID = [{"role": "user", "content": "Hi"}]


async def test_a_template_says_in_which_members_reasoning_goes_back() -> None:
    said = {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "a"}
    async with vendor_that(says_reply) as vendor:
        for settings, sent in [
            ({}, said),
            ({"reasoning_fields": []}, {"role": "assistant", "content": "x"}),
            ({"reasoning_fields": ["reasoning"]}, {**said, "reasoning_content": None}),
        ]:
            async with provider_for(vendor, **settings) as provider:
                await provider.relay(asking(messages=[said]), THEIRS)
            [message] = json.loads(vendor.asked[-1][1])["messages"]
            assert message == {name: value for name, value in sent.items() if value is not None}


async def test_mistral_gets_ids_of_its_own_form() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *SAID,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ]
    request = chat.parse_request({"messages": messages}, "theirs").request
    async with vendor_that(says_reply) as vendor:
        async with provider_for(vendor, "remote::mistral", api_key="x") as provider:
            await provider.relay(asking(messages=messages), THEIRS)
            async with aclosing(provider.chat_completion(request)) as said:
                async for _ in said:
                    pass
        for _, body in vendor.asked:
            _, called, answered = json.loads(body)["messages"]
            assert called["tool_calls"][0]["id"] == answered["tool_call_id"]
            assert re.fullmatch("[a-zA-Z0-9]{9}", answered["tool_call_id"])
        assert len(vendor.asked) == 2
        async with provider_for(vendor, "remote::openai", api_key="x") as provider:
            await provider.relay(asking(messages=messages), THEIRS)
        assert json.loads(vendor.asked[-1][1])["messages"] == messages


@pytest.mark.parametrize(("provider_type", "limit"), [("remote::openai", 40), ("remote::vllm", 46)])
async def test_ids_are_as_long_as_the_vendor_takes(provider_type: str, limit: int) -> None:
    long = "chatcmpl-tool-" + "a" * 32  # as vLLM has them
    call = {"id": long, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *SAID,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": long, "content": "x"},
    ]
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, api_key="x") as provider,
    ):
        await provider.relay(asking(messages=messages), THEIRS)
        _, called, answered = json.loads(vendor.asked[-1][1])["messages"]
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert len(answered["tool_call_id"]) == limit


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize(
    ("provider_type", "limit"),
    [("remote::openai", 40), ("remote::azure", 40), ("remote::vllm", 42)],
)
async def test_longer_ids_than_a_vendor_takes_are_made_fit_and_stay_different(
    provider_type: str, limit: int, translated: bool
) -> None:
    ids = ["call_1", "fc_" + "a" * 37, "fc_" + "a" * 38, "fc_" + "a" * 38 + "b"]
    function = {"name": "f", "arguments": "{}"}
    messages = [
        *SAID,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": each, "type": "function", "function": function} for each in ids],
        },
        *({"role": "tool", "tool_call_id": each, "content": "x"} for each in ids),
    ]
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, api_key="x") as provider,
    ):
        if translated:
            request = chat.parse_request({"messages": messages}, "theirs").request
            async with aclosing(provider.chat_completion(request)) as said:
                async for _ in said:
                    pass
        else:
            await provider.relay(asking(messages=messages), THEIRS)
        _, asked, *told = json.loads(vendor.asked[-1][1])["messages"]
    sent = [call["id"] for call in asked["tool_calls"]]
    assert sent == [each["tool_call_id"] for each in told]
    assert sent[:2] == ids[:2]
    assert len(set(sent)) == len(ids)
    assert max(map(len, sent)) == limit


async def test_a_vendor_of_responses_alone_is_asked_for_one() -> None:
    asked = {"messages": SAID, "temperature": 0.5, "max_tokens": 99}
    request = chat.parse_request(asked, "theirs").request
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, "remote::perplexity", api_key="x") as provider,
    ):
        assert not {"seed", "top_k"} & provider.parameters
        with suppress(APIError):  # It replies to chats alone.
            async with aclosing(provider.chat_completion(request)) as said:
                async for _ in said:
                    pass
        where, body = vendor.asked[-1]
        assert where.path.endswith("/responses")
        assert json.loads(body)["max_output_tokens"] == 99
        few = structs.replace(request, sampling=structs.replace(request.sampling, max_tokens=9))
        assert provider.unsupported_values(few).keys() == {"max_tokens", "max_completion_tokens"}
        sound = structs.replace(request, messages=(UserMessage((AudioContent("audio/wav", "x"),)),))
        with pytest.raises(APIError, match="chats with audio"):
            await anext(provider.chat_completion(sound))


@pytest.mark.parametrize(
    ("operation", "asked"),
    [(CHAT, {"messages": SAID}), (COMPLETIONS, {"prompt": "Count"})],
    ids=["chat", "completions"],
)
async def test_responses_which_know_no_stop_strings_are_cut_here(
    operation: Operation, asked: dict[str, Any]
) -> None:
    text = {"type": "output_text", "text": "One END two", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    response = {"id": "r", "object": "response", "status": "completed", "output": [message]}

    async def responds(request: web.Request) -> web.StreamResponse:
        return web.json_response(response)

    stops = [str(number) for number in range(9)] + ["END"]
    call = call_of({"stop": stops, **asked}, operation)
    async with (
        vendor_that(responds) as vendor,
        provider_for(vendor, "remote::perplexity", api_key="x") as provider,
    ):
        reply = await answer(provider, call, THEIRS)
        assert isinstance(reply.body, bytes)
        (choice,) = json.loads(reply.body)["choices"]
        said = choice["message"]["content"] if operation is CHAT else choice["text"]
        assert (said, choice["finish_reason"], reply.dropped) == ("One ", "stop", ())
        _, body = vendor.asked[-1]
        assert "stop" not in json.loads(body)


PDF = "data:application/pdf;base64,JVBERi0xLjc="


async def sent(provider: RemoteOpenAIProvider, vendor: Vendor, file: dict[str, Any]) -> Any:
    """The last message of what the vendor is asked for a translated chat with this file."""
    content = [{"type": "text", "text": "Sum it up."}, {"type": "file", "file": file}]
    body = {"messages": [{"role": "user", "content": content}]}
    request = chat.parse_request(body, "theirs").request
    with suppress(APIError):  # The vendor replies to chats alone.
        async with aclosing(provider.chat_completion(request)) as said:
            async for _ in said:
                pass
    asked = json.loads(vendor.asked[-1][1])
    return asked["messages" if "messages" in asked else "input"][-1]["content"]


async def test_mistral_gets_files_in_its_own_part() -> None:
    part = {"type": "document_url", "document_url": PDF, "document_name": "a.pdf"}
    file = {"file_data": PDF, "filename": "a.pdf"}
    odd: list[Any] = [
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "1"}}, "x"]},
        {"role": "user", "content": 5},
    ]
    async with vendor_that(says_reply) as vendor:
        async with provider_for(vendor, "remote::mistral", api_key="x") as provider:
            assert (await sent(provider, vendor, file))[-1] == part
            said = {"role": "user", "content": [{"type": "file", "file": file}]}
            await provider.relay(asking(messages=[said, *odd]), THEIRS)
            asked = json.loads(vendor.asked[-1][1])["messages"]
            assert asked == [{"role": "user", "content": [part]}, *odd]
        async with provider_for(vendor, "remote::openai", api_key="x") as provider:
            assert (await sent(provider, vendor, file))[-1] == {"type": "file", "file": file}


async def test_an_address_of_a_document_goes_where_it_is_fetched() -> None:
    file = {"file_id": "https://example.com/a.pdf"}
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, "remote::openai", api_key="x") as provider,
    ):
        part = {"type": "input_file", "file_url": "https://example.com/a.pdf"}
        assert (await sent(provider, vendor, file))[-1] == part


AT = "https://example.com/a.pdf"


@pytest.mark.parametrize("member", ["file_id", "file_data"])
@pytest.mark.parametrize(
    ("provider_type", "part"),
    [
        (
            "remote::mistral",
            {"type": "document_url", "document_url": AT, "document_name": "document.pdf"},
        ),
        (
            "remote::openrouter",
            {"type": "file", "file": {"filename": "document.pdf", "file_data": AT}},
        ),
    ],
)
async def test_an_address_goes_to_vendors_that_take_one(
    member: str, provider_type: str, part: dict[str, Any]
) -> None:
    file = {member: AT}
    said = {"role": "user", "content": [{"type": "file", "file": file}]}
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, api_key="x") as provider,
    ):
        assert (await sent(provider, vendor, file))[-1] == part
        await provider.relay(asking(messages=[said]), THEIRS)
        assert json.loads(vendor.asked[-1][1])["messages"] == [{"role": "user", "content": [part]}]


@pytest.mark.parametrize("is_relayed", [False, True])
async def test_what_is_at_an_address_goes_to_vendors_that_take_bytes(is_relayed: bool) -> None:
    async with vendor_that(says_reply) as vendor, paper_at() as address:
        reach = {"images": {"allow_private_addresses": True}}
        file = {"file_id": address, "filename": "a.pdf"}
        async with provider_for(vendor, "remote::groq", api_key="x", **reach) as provider:
            if is_relayed:
                body = {"role": "user", "content": [{"type": "file", "file": file}]}
                await provider.relay(asking(messages=[body]), THEIRS)
                [message] = json.loads(vendor.asked[-1][1])["messages"]
                part = message["content"][-1]
            else:
                part = (await sent(provider, vendor, file))[-1]
        assert part == {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}


@asynccontextmanager
async def paper_at() -> AsyncIterator[str]:
    """A server that gives out a PDF of which it does not know what it is; its address."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: 8\r\n\r\n"

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"%PDF-1.7")
        writer.close()

    server = await asyncio.start_server(give, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.pdf"


@pytest.mark.parametrize(
    ("provider_type", "file", "why"),
    [
        ("remote::anthropic", {"file_data": PDF}, "Anthropic's OpenAI API does not take"),
        ("remote::vllm", {"file_id": AT}, "vLLM's OpenAI API does not take"),
        ("remote::groq", {"file_id": "https://127.0.0.1:9/a.pdf"}, "not on the public internet"),
    ],
)
@pytest.mark.parametrize("is_relayed", [False, True])
async def test_a_document_that_can_not_arrive_is_refused(
    provider_type: str, file: dict[str, Any], why: str, is_relayed: bool
) -> None:
    body: Any = {"messages": [{"role": "user", "content": [{"type": "file", "file": file}]}]}
    request = chat.parse_request(body, "theirs").request
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, api_key="x") as provider,
        aclosing(provider.chat_completion(request)) as said,
    ):
        with pytest.raises(APIError, match=why) as caught:
            await (provider.relay(asking(**body), THEIRS) if is_relayed else anext(said))
        assert (caught.value.status, caught.value.param) == (400, "messages[0].content")
        assert not vendor.asked


async def test_mistral_gets_no_names_of_speakers_and_that_is_said() -> None:
    messages = [{**SAID[0], "name": "ann"}]
    request = chat.parse_request({"messages": messages}, "theirs").request
    async with vendor_that(says_reply) as vendor:
        async with provider_for(vendor, "remote::mistral", api_key="x") as provider:
            reply = await provider.relay(asking(messages=messages), THEIRS)
            assert reply.dropped == ("messages.name",)
            async with aclosing(provider.chat_completion(request)) as said:
                [start] = [event async for event in said if isinstance(event, StreamStart)]
            assert start.dropped == ("messages.name",)
            reply = await provider.relay(asking(messages=SAID), THEIRS)
            assert reply.dropped == ()
        assert [json.loads(body)["messages"] for _, body in vendor.asked] == [SAID] * 3
        settings = {"api_key": "x", "unsupported": "refuse"}
        async with provider_for(vendor, "remote::mistral", **settings) as provider:
            with pytest.raises(APIError) as refused:
                await provider.relay(asking(messages=messages), THEIRS)
            assert refused.value.param == "messages.name"
        async with provider_for(vendor, "remote::openai", api_key="x") as provider:
            await provider.relay(asking(messages=messages), THEIRS)
        assert json.loads(vendor.asked[-1][1])["messages"] == messages


BY_ADDRESS = {"type": "file", "file": {"file_data": "https://example.com/a.pdf"}}


@pytest.mark.parametrize(
    ("provider_type", "settings", "content", "search", "gone"),
    [
        ("remote::openai", {}, "Hi", False, False),
        ("remote::openai", {}, "Hi", True, True),
        ("remote::openai", {}, [BY_ADDRESS], False, True),
        ("remote::openai", {"wires": ["chat"]}, [BY_ADDRESS], False, False),
        ("remote::openai", {"wires": ["responses"]}, "Hi", False, True),
        ("remote::mistral", {}, "Hi", False, True),
    ],
)
async def test_what_is_asked_for_as_a_response_has_no_names_of_speakers(
    provider_type: str, settings: dict[str, Any], content: Any, search: bool, gone: bool
) -> None:
    messages = [{"role": "user", "content": content, "name": "ann"}]
    request = chat.parse_request({"messages": messages}, "theirs").request
    if search:
        request = structs.replace(request, vendor_search=WebSearchTool("web_search"))
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, api_key="x", **settings) as provider,
    ):
        assert ("messages.name" in provider.placeless_in(request)) is gone


TOOLS = [{"type": "function", "function": {"name": "f"}}]

TWO_CALLS = (
    b'{"id":"a","object":"chat.completion","created":1,"model":"theirs","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":null,"tool_calls":['
    b'{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},'
    b'{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},'
    b'"finish_reason":"tool_calls"}]}'
)


@pytest.mark.parametrize(
    ("provider_type", "parallel", "is_told"),
    [
        ("remote::cohere", False, False),
        ("remote::cohere", True, False),
        ("remote::groq", False, True),
        ("remote::groq", True, True),
    ],
)
async def test_calls_come_one_by_one_whether_the_vendor_can_be_told_or_not(
    provider_type: str, parallel: bool, is_told: bool
) -> None:
    async def calls_twice(request: web.Request) -> web.StreamResponse:
        return web.Response(body=TWO_CALLS, content_type="application/json")

    async with (
        vendor_that(calls_twice) as vendor,
        provider_for(vendor, provider_type, api_key="x") as provider,
    ):
        reply = await answer(provider, asking(tools=TOOLS, parallel_tool_calls=parallel), THEIRS)
        assert isinstance(reply.body, bytes)
        [choice] = json.loads(reply.body)["choices"]
        # Who is told sees to it by itself.
        assert len(choice["message"]["tool_calls"]) == (2 if parallel or is_told else 1)
        assert reply.dropped == ()
        sent = json.loads(vendor.asked[-1][1])
        assert sent.get("parallel_tool_calls") == (parallel if is_told else None)


@pytest.mark.parametrize(
    ("provider_type", "settings"),
    [
        ("remote::groq", {}),
        ("remote::moonshot", {}),
        ("remote::openai", {"wires": ["chat"]}),
        ("remote::openai", {"wires": ["responses"]}),
        ("remote::perplexity", {}),
    ],
)
async def test_what_a_template_says_is_not_taken_is_not_whatever_wires_there_are(
    provider_type: str, settings: dict[str, Any]
) -> None:
    settings = {"api_key": "x", "unsupported_parameters": ["reasoning_effort"], **settings}
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, provider_type, **settings) as provider,
    ):
        assert "reasoning_effort" not in provider.parameters
        assert "temperature" in provider.parameters


def asking(operation: Operation = CHAT, *, stream: bool = False, **members: Any) -> Call:
    body = {"model": "asked", "messages": SAID, "stream": stream, **members}
    return call_of(body, operation)


async def read(reply: Reply) -> bytes:
    """The whole of a stream."""
    assert not isinstance(reply.body, bytes)
    try:
        return reply.first + b"".join([each async for each in reply.body])
    finally:
        await reply.aclose()


def chunks_in(stream: bytes) -> list[Any]:
    return [json.loads(event.data) for event in sse.EventDecoder().feed(stream) if event.data]


async def raised(provider: RemoteOpenAIProvider, **members: Any) -> APIError:
    """The error that a request is answered with."""
    with pytest.raises(APIError) as caught:
        await provider.relay(asking(**members), THEIRS)
    return caught.value


# Requests -----------------------------------------------------------------------------------------


async def test_a_request_goes_out_with_the_templates_key() -> None:
    async with vendor_that(says_reply) as vendor:
        async with provider_for(
            vendor, "remote::openai", api_key="sk-theirs\n", headers={"x-team": "blue"}
        ) as provider:
            await provider.relay(asking(x={"a": 1.0}), THEIRS)
        ((asked, body),) = vendor.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer sk-theirs"
    assert asked.headers["x-team"] == "blue"
    assert asked.headers["x-request-id"] == "req_1"
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "model": "theirs",
        "messages": SAID,
        "stream": False,
        "x": {"a": 1.0},
    }


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"You sent %b.", id="text"),
        pytest.param(b'{"error":{"message":"Bad header: %b"}}', id="error"),
        pytest.param(b'data: {"error":{"message":"Bad header: %b"}}\n\n', id="event"),
    ],
)
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_the_vendor_repeats_is_covered(
    said: bytes, status: int, stream: bool
) -> None:
    keys = ("sk-of-the-template", "another-secret")

    async def repeats(request: web.Request) -> web.Response:
        return web.Response(body=said % " ".join(keys).encode(), status=status)

    async with (
        vendor_that(repeats) as vendor,
        provider_for(vendor, api_key=keys[0], headers={"x-key": keys[1]}) as provider,
    ):
        error = await raised(provider, stream=stream)
    assert not any(key in str(error.body()) for key in keys)


@pytest.mark.parametrize("status", [200, 400])
async def test_errors_repeat_no_header_of_the_template(status: int) -> None:
    """One that is no key by its name may be a word that a model says; in errors it is none."""

    async def repeats(request: web.Request) -> web.Response:
        body = {"error": {"message": f"Nobody of {request.headers['x-customer']} may do that."}}
        return web.json_response(body, status=status)

    async with (
        vendor_that(repeats) as vendor,
        provider_for(vendor, headers={"x-customer": "the-customer-of-ours"}) as provider,
    ):
        error = await raised(provider, stream=False)
    assert "Nobody of" in str(error.body())
    assert "the-customer-of-ours" not in str(error.body())


async def test_azures_path_and_key() -> None:
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, "remote::azure", api_key="k", base_url=vendor.url[:-3]) as provider,
    ):
        await provider.relay(asking(), Target("my model"))
        ((asked, _),) = vendor.asked
    assert asked.raw_path == (
        "/openai/deployments/my%20model/chat/completions?api-version=2024-10-21"
    )
    assert asked.headers["api-key"] == "k"
    assert "authorization" not in asked.headers


async def test_a_vendor_without_its_key_is_not_asked() -> None:
    kind = registry.provider_type("remote::groq")
    provider = kind.make("groq", kind.config.validate({}), [])  # not started: it could not ask
    error = await raised(provider)
    assert (error.status, error.code) == (502, "upstream_authentication")


async def test_another_address_may_want_no_key() -> None:
    async with vendor_that(says_reply) as vendor, provider_for(vendor, "remote::groq") as provider:
        await provider.relay(asking(), THEIRS)
        ((asked, _),) = vendor.asked
        assert "authorization" not in asked.headers


async def test_a_large_request_arrives_whole() -> None:
    async def count(request: web.Request) -> web.StreamResponse:
        return web.json_response({"choices": [{"message": {}}], "size": len(await request.read())})

    async with vendor_that(count) as vendor, provider_for(vendor) as provider:
        vendor_limit = 900_000
        reply = await provider.relay(asking(user="x" * vendor_limit), THEIRS)
    assert json.loads(reply.body)["size"] > vendor_limit  # type: ignore[arg-type]


async def test_a_proxy_is_asked_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with vendor_that(says_reply) as vendor:
        proxy = vendor.url.removesuffix("/v1").replace("http://", "http://me:pass@")
        elsewhere = {"base_url": "http://vendor.invalid/v1"}
        async with provider_for(vendor, proxy=proxy, **elsewhere) as provider:
            await provider.relay(asking(), THEIRS)
        monkeypatch.setenv("http_proxy", proxy)
        async with provider_for(vendor, **elsewhere) as provider:
            await provider.relay(asking(), THEIRS)
        monkeypatch.setenv("no_proxy", "vendor.invalid")
        async with provider_for(vendor, **elsewhere) as provider:
            assert (await raised(provider)).status == 502
    assert len(vendor.asked) == 2
    for asked, _ in vendor.asked:
        assert asked.raw_path == "http://vendor.invalid/v1/chat/completions"
        assert asked.headers["proxy-authorization"].startswith("Basic ")


async def test_a_ca_file_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ProviderStartError, match=name):
            async with provider_for(Vendor("http://localhost"), ca_file=tmp_path / name):
                pass


# Replies ------------------------------------------------------------------------------------------


async def test_a_reply_keeps_its_bytes() -> None:
    async with vendor_that(says_reply) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(), THEIRS)
    assert reply.body == REPLY.replace(b"theirs", b"asked")
    assert reply.headers["content-type"] == "application/json"


async def test_embeddings_keep_their_bytes() -> None:
    data = b'[{"object":"embedding", "index":0,"embedding":[1.0,2E-7]}]'

    async def embed(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"object":"list","data":%b,"model":"t"}' % data)

    async with vendor_that(embed) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(EMBEDDINGS), THEIRS)
        assert vendor.asked[0][0].path == "/v1/embeddings"
    assert reply.body == b'{"object":"list","data":%b,"model":"asked"}' % data


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip"])
async def test_what_can_not_be_decompressed_is_502(encoding: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\x00nonsense", headers={"content-encoding": encoding})

    async with vendor_that(answer) as vendor, provider_for(vendor) as provider:
        error = await raised(provider)
    assert error.status == 502
    assert "install" not in error.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", ""),
        (b"<html><title>Log in</title></html>", "Log in"),
        (b'{"choices": [', "makes no sense"),
        (b"[1]", "array"),
        (b"{}", "no 'choices'"),
        (b'{"choices": 1}', "array"),
        (b'{"error": {"message": "It broke."}}', "It broke."),
    ],
)
async def test_an_answer_that_makes_no_sense_is_502(body: bytes, said: str, stream: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with vendor_that(answer) as vendor, provider_for(vendor) as provider:
        error = await raised(provider, stream=stream)
    assert error.status == 502
    assert "'mine'" in error.message
    assert said in error.message


async def test_a_stream_that_nobody_asked_for_is_502() -> None:
    async with vendor_that(streams) as vendor, provider_for(vendor) as provider:
        error = await raised(provider)
    assert error.status == 502
    assert "stream" in error.message


async def test_a_whole_reply_is_streamed_where_a_stream_was_asked_for() -> None:
    async with vendor_that(says_reply) as vendor, provider_for(vendor) as provider:
        said, ended = chunks_in(await read(await provider.relay(asking(stream=True), THEIRS)))
    assert said["choices"][0]["delta"] == {"role": "assistant", "content": "hi"}
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert said["model"] == "asked"


# Streams ------------------------------------------------------------------------------------------


async def test_a_stream_is_relayed_event_by_event() -> None:
    go_on = asyncio.Event()

    async def hesitates(request: web.Request) -> web.StreamResponse:
        response = await begin(request, events(CHUNKS[0]))
        await go_on.wait()
        await response.write(events(*CHUNKS[1:]) + DONE)
        return response

    async with vendor_that(hesitates) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(stream=True), THEIRS)
        (first,) = chunks_in(reply.first)
        assert first["choices"][0]["delta"]["content"] == "w\u00f6rld \U0001f642"
        go_on.set()
        assert len(chunks_in(await read(reply))) == 3


async def test_a_connection_is_used_again_after_a_stream() -> None:
    async with vendor_that(streams) as vendor, provider_for(vendor) as provider:
        for _ in range(3):
            await read(await provider.relay(asking(stream=True), THEIRS))
            # The end of the body may come after the last event.
            while provider.upstream.connections.leased:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert len(set(vendor.connections)) == 1


async def test_a_vendor_that_does_not_end_its_stream_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("providers.remote.http1.connection.DISCARD_SECONDS", 600)

    async def goes_on(request: web.Request) -> web.StreamResponse:
        response = await begin(request, events(*CHUNKS), DONE)
        await asyncio.Event().wait()
        return response

    async with vendor_that(goes_on) as vendor:
        async with provider_for(vendor) as provider:
            async with asyncio.timeout(60):
                said = await read(await provider.relay(asking(stream=True), THEIRS))
            assert len(chunks_in(said)) == 3
            assert provider.upstream.connections == (1, 0, 0)
        await asyncio.wait_for(vendor.deserted.wait(), 5)


@pytest.mark.parametrize("begun", [False, True])
async def test_who_goes_away_closes_the_vendors_connection(begun: bool) -> None:
    asked = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        response = await begin(request, events(CHUNKS[0])) if begun else web.Response()
        asked.set()
        await asyncio.Event().wait()
        return response

    async with vendor_that(hangs) as vendor, provider_for(vendor) as provider:
        if begun:
            reply = await provider.relay(asking(stream=True), THEIRS)
            await reply.aclose()
        else:
            waiting = asyncio.ensure_future(provider.relay(asking(), THEIRS))
            await asked.wait()
            waiting.cancel()
        await asyncio.wait_for(vendor.deserted.wait(), 5)


@pytest.mark.parametrize("end", [b"", b'data: {"id":"a","cho', DONE[:-1]])
async def test_a_stream_that_is_cut_says_so(end: bytes) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        await begin(request, events(*CHUNKS[:2]) + end.removesuffix(DONE[:-1]))
        await asyncio.sleep(0.01)
        return await cut(request)

    async with vendor_that(breaks) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(stream=True), THEIRS)
        with pytest.raises(APIError) as caught:
            await read(reply)
    assert caught.value.status == 502


async def test_what_came_before_an_error_is_relayed() -> None:
    error = b'{"error":{"message":"It broke.","type":"odd","code":"x"}}'

    async def breaks(request: web.Request) -> web.StreamResponse:
        return await begin(request, events(CHUNKS[0], error) + DONE)

    async with vendor_that(breaks) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(stream=True), THEIRS)
        assert len(chunks_in(reply.first)) == 1
        with pytest.raises(APIError) as caught:
            await read(reply)
    assert (caught.value.message, caught.value.type, caught.value.code) == ("It broke.", "odd", "x")


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"object":"error","message":"It broke.","type":"InternalError","code":500}\n\n',
        b'data: {"detail":"It broke."}\n\n',
        b'data: [{"error":{"message":"It broke.","code":500}}]\n\n',
        b"event: error\ndata: It broke.\n\n",
    ],
)
async def test_an_error_in_a_stream_may_have_another_shape(event: bytes) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        return await begin(request, events(CHUNKS[0]) + event + DONE)

    async with vendor_that(breaks) as vendor, provider_for(vendor) as provider:
        reply = await provider.relay(asking(stream=True), THEIRS)
        assert len(chunks_in(reply.first)) == 1
        with pytest.raises(APIError, match="It broke"):
            await read(reply)


async def test_a_stream_without_all_its_choices_is_cut() -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        await begin(request, events(*CHUNKS))
        return await cut(request)

    async with vendor_that(breaks) as vendor, provider_for(vendor) as provider:
        chunks = chunks_in(await read(await provider.relay(asking(stream=True), THEIRS)))
        assert len(chunks) == len(CHUNKS)
        reply = await provider.relay(asking(stream=True, n=2), THEIRS)
        with pytest.raises(APIError) as caught:
            await read(reply)
    assert caught.value.status == 502


async def test_events_that_say_nothing_are_passed_over() -> None:
    odd = b'data:\n\ndata: {"type":"ping"}\n\ndata: {"object":"chat.completion.chunk","x":1.0}\n\n'

    async def says(request: web.Request) -> web.StreamResponse:
        return await begin(request, odd[:7] + events(CHUNKS[0]) + odd + events(CHUNKS[2]) + DONE)

    async with vendor_that(says) as vendor, provider_for(vendor) as provider:
        said = await read(await provider.relay(asking(stream=True), THEIRS))
    assert [len(each["choices"]) for each in chunks_in(said)] == [1, 0, 1]
    assert b'"x":1.0' in said


async def test_usage_that_does_not_come_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with vendor_that(streams) as vendor, provider_for(vendor) as provider:
        options = {"include_usage": True}
        with caplog.at_level(logging.WARNING):
            await read(await provider.relay(asking(stream=True, stream_options=options), THEIRS))
    assert [record.message for record in caplog.records if "req_1" in record.message]


# Connections --------------------------------------------------------------------------------------


async def test_a_kept_connection_that_closes_under_a_request_is_told_apart() -> None:
    """Whether it is sent again is for whoever counts attempts to say."""
    used: set[Any] = set()

    async def once_each(request: web.Request) -> web.StreamResponse:
        if request.transport in used:
            return await cut(request)
        used.add(request.transport)
        return await says_reply(request)

    async with vendor_that(once_each) as vendor, provider_for(vendor) as provider:
        assert (await provider.relay(asking(), THEIRS)).status == 200
        with pytest.raises(StaleConnection):
            await provider.relay(asking(), THEIRS)
        assert (await provider.relay(asking(), THEIRS)).status == 200


async def test_what_a_vendor_sends_unasked_answers_nobody() -> None:
    unasked = REPLY.replace(b'"hi"', b'"for somebody else"')
    sent = asyncio.Event()

    async def says_more(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None

        def send_more() -> None:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(unasked)
            transport.write(head + unasked)
            sent.set()

        asyncio.get_running_loop().call_later(0.01, send_more)
        return await says_reply(request)

    async with vendor_that(says_more) as vendor, provider_for(vendor) as provider:
        for _ in range(2):
            sent.clear()
            reply = await provider.relay(asking(), THEIRS)
            assert isinstance(reply.body, bytes)
            assert b'"hi"' in reply.body
            await sent.wait()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_reply_may_not_be_larger_than_the_template_says(coding: str) -> None:
    body = REPLY.replace(b"hi", b"hi" * 100_000)

    async def says_much(request: web.Request) -> web.StreamResponse:
        sent = gzip.compress(body) if coding == "gzip" else body
        return web.Response(body=sent, headers={"content-encoding": coding})

    async with vendor_that(says_much) as vendor:
        async with provider_for(vendor, max_reply_bytes=len(body)) as provider:
            assert (await provider.relay(asking(), THEIRS)).status == 200
        async with provider_for(vendor, max_reply_bytes=len(body) - 1) as provider:
            error = await raised(provider)
            assert (error.status, error.code) == (502, "upstream_reply_too_large")
            assert "`max_reply_bytes`" in error.message


async def test_paths_are_not_remembered() -> None:
    async with vendor_that(says_reply) as vendor, provider_for(vendor) as provider:
        for number in range(300):
            async with provider.upstream.get(f"/{number}"):
                pass
            worker = f"http://127.0.0.{number % 250}:1"
            with pytest.raises(APIError):
                async with provider.upstream.post("/", b"", base_url=f"{worker}/{number}#"):
                    pass
        assert provider.upstream._base.cache_info().currsize <= upstream.MAX_BASES_KEPT


async def test_a_header_of_one_request_counts_over_the_templates() -> None:
    async with (
        vendor_that(says_reply) as vendor,
        provider_for(vendor, headers={"X-Request-Id": "ours", "x-b": "kept"}) as provider,
    ):
        headers = {"X-B": "new", "x-c": "more"}
        async with provider.upstream.post("/", b"", request_id="req_1", headers=headers):
            pass
        ((asked, _),) = vendor.asked
    assert asked.headers.getall("x-request-id") == ["req_1"]
    assert asked.headers.getall("x-b") == ["new"]
    assert asked.headers.getall("x-c") == ["more"]


async def test_a_request_that_is_dropped_is_not_repeated() -> None:
    async with vendor_that(cut) as vendor, provider_for(vendor) as provider:
        assert (await raised(provider)).status == 502
        assert len(vendor.asked) == 1


@pytest.mark.parametrize("limit", ["first_byte", "total"])
async def test_a_vendor_that_says_nothing_is_504(limit: str) -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async with (
        vendor_that(hangs) as vendor,
        provider_for(vendor, timeouts={limit: 0.05}) as provider,
    ):
        for stream in (False, True):
            error = await raised(provider, stream=stream)
            assert (error.status, error.code) == (504, "upstream_timeout")
        await asyncio.wait_for(vendor.deserted.wait(), 5)


@pytest.mark.parametrize("limit", ["between_bytes", "total"])
async def test_a_stream_that_stops_is_told(limit: str) -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        response = await begin(request, events(CHUNKS[0]))
        await asyncio.Event().wait()
        return response

    async with (
        vendor_that(hangs) as vendor,
        provider_for(vendor, timeouts={limit: 0.05}) as provider,
    ):
        with pytest.raises(APIError) as caught:
            await read(await provider.relay(asking(stream=True), THEIRS))
    assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")


async def test_a_body_may_come_long_after_its_headers() -> None:
    async def thinks(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        await asyncio.sleep(0.1)
        await response.write(events(*CHUNKS) + DONE)
        return response

    async with (
        vendor_that(thinks) as vendor,
        provider_for(vendor, timeouts={"between_bytes": 0.02}) as provider,
    ):
        assert await read(await provider.relay(asking(stream=True), THEIRS))


# Models -------------------------------------------------------------------------------------------


async def test_models_are_discovered_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.005)
    answers: asyncio.Queue[web.Response] = asyncio.Queue()
    asked = asyncio.Semaphore(0)

    async def list_models(request: web.Request) -> web.StreamResponse:
        asked.release()
        return await answers.get()

    async with vendor_that(list_models) as vendor:
        answers.put_nowait(web.json_response({"data": [{"id": "models/a"}, {"id": "b"}]}))
        async with provider_for(
            vendor, "remote::gemini", api_key="k", models="discover", models_refresh_seconds=0.005
        ) as provider:
            assert provider.discovered_models() == ("a", "b")
            answers.put_nowait(web.Response(status=503))
            for _ in range(3):
                await asked.acquire()  # with the third, what was said to the second is known
            assert provider.discovered_models() == ("a", "b")
            answers.put_nowait(web.json_response([{"id": "c"}]))
            await asked.acquire()
            assert provider.discovered_models() == ("c",)
            answers.put_nowait(web.json_response({"data": []}))


def test_a_list_of_models_may_hold_nonsense() -> None:
    odd = b'{"id":"\\ud83d"},{"id":"a\\nb"},{"id":""},{"id":5},{"id":null},{},5'
    body = b'{"data":[{"id":"b"},{"id":"models/a"},{"id":"b"},%b]}' % odd
    assert parse_models(body, "models/") == ["b", "a"]


async def test_a_vendor_that_is_down_does_not_stop_the_start() -> None:
    vendor = Vendor("http://127.0.0.1:1/v1")
    async with provider_for(vendor, models="discover") as provider:
        assert not provider.discovered_models()
        with pytest.raises(APIError, match="connection refused"):
            await provider.live_models()


async def test_nobody_waits_for_a_vendor_that_takes_its_time_to_list_its_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "FIRST_ANSWER_SECONDS", 0.01)
    answers: asyncio.Queue[web.Response] = asyncio.Queue()

    async def list_models(request: web.Request) -> web.StreamResponse:
        return await answers.get()

    async with (
        vendor_that(list_models) as vendor,
        provider_for(vendor, models="discover") as provider,
    ):
        assert provider.discovered_models() == ()
        answers.put_nowait(web.json_response({"data": [{"id": "late"}]}))
        async with asyncio.timeout(5):
            while not provider.discovered_models():  # noqa: ASYNC110 (nobody is told of it)
                await asyncio.sleep(0.001)
        assert provider.discovered_models() == ("late",)


async def test_a_provider_in_the_place_of_another_knows_the_models_of_the_same_vendor() -> None:
    async def list_models(request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": [{"id": "known"}]})

    async with (
        vendor_that(list_models) as vendor,
        provider_for(vendor, models="discover") as provider,
    ):
        same, elsewhere = vendor.url, "http://127.0.0.1:1/v1"
        passthrough, vllm = map(registry.provider_type, ("remote::passthrough", "remote::vllm"))
        for kind, url, known in (
            (passthrough, same, ("known",)),
            (passthrough, elsewhere, ()),
            (vllm, same, ()),
        ):
            settings = {"base_url": url, "models": "discover", "api_key": "another"}
            other = kind.make("mine", kind.config.validate(settings), ())
            other.adopt(provider)
            assert other.discovered_models() == known


async def test_models_are_not_looked_for_unless_asked() -> None:
    async with vendor_that(says_reply) as vendor, provider_for(vendor) as provider:
        assert not provider.discovered_models()
        assert not vendor.asked


# A stream cut anywhere ----------------------------------------------------------------------------


class Recorded:
    """A recorded answer, as it may come off the wire: in any pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def next_chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def read(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    async def drain(self) -> None:
        self._pieces = []


RECORDINGS = {
    "lf": b": hello\n\n" + events(CHUNKS[0]) + b": still here\n\n" + events(*CHUNKS[1:]) + DONE,
    "crlf": (events(*CHUNKS) + DONE).replace(b"\n", b"\r\n"),
    "cr": (events(*CHUNKS) + DONE).replace(b"\n", b"\r"),
    "lines": b"\xef\xbb\xbf"
    + b"".join(b"event: x\ndata:" + each.replace(b",", b",\ndata:") + b"\n\n" for each in CHUNKS),
    "open end": events(*CHUNKS)[:-2],
    "afterwards": events(*CHUNKS) + DONE + DONE + b"data: nonsense\n\n",
}


def relayed(pieces: list[bytes]) -> bytes:
    async def collect() -> bytes:
        model = Raw(b'"asked"')
        stream = EventStream("mine", StreamMender(CHAT_REPLY, model), CHAT_REPLY, model)
        relayed = relay_stream("mine", Recorded(pieces), stream)  # type: ignore[arg-type]
        return b"".join([each async for each in relayed])

    return asyncio.run(collect())


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_stream_cut_in_two_anywhere_is_the_same(name: str) -> None:
    recording = RECORDINGS[name]
    whole = relayed([recording])
    assert len(chunks_in(whole)) == 3
    for at in range(1, len(recording)):
        assert relayed([recording[:at], recording[at:]]) == whole


@given(st.sampled_from(sorted(RECORDINGS)), st.lists(st.integers(0, 800), max_size=40))
def test_a_stream_cut_into_many_pieces_is_the_same(name: str, cuts: list[int]) -> None:
    recording = RECORDINGS[name]
    marks = [0, *sorted(cuts), len(recording)]
    pieces = [recording[a:b] for a, b in pairwise(marks)]
    assert relayed(pieces) == relayed([recording])


def test_byte_by_byte() -> None:
    for recording in RECORDINGS.values():
        assert relayed([bytes([each]) for each in recording]) == relayed([recording])
