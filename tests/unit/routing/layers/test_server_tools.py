"""Which requests are given the tools that the server runs, and who may not have them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.distribution import ServerSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Target
from llama_compat.hosted.asked.named import NamedTools, tools_named
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.hosted.toolbox import HostedToolbox
from llama_compat.off_loop import LARGE_BYTES
from llama_compat.wire.json_fields import encode_json
from providers.answer import relays
from providers.registry import provider_type
from routing.layers import server_tools
from routing.layers.server_tools import ServerToolsLayer
from routing.tools.toolbox import ServerTools
from tests.unit.calls import call_of

DOCS = "https://docs.example/mcp"
SETTINGS = ServerSettings.model_validate(
    {
        "tools": {
            "web_search": {"backend": "files", "folder": "."},
            "mcp": {"servers": [{"label": "docs", "url": DOCS}], "from_requests": True},
        }
    }
)


async def equipped(
    tools: bytes,
    operation: Operation = RESPONSES,
    key: Principal | None = None,
    settings: ToolsSettings | None = SETTINGS.tools,
) -> Call:
    async def never(request: Any) -> Any:
        raise AssertionError

    assert settings is not None
    layer = ServerToolsLayer(never, ServerTools(settings), None)
    call = call_of(b'{"model": "m", "input": "x", %b}' % tools, operation)
    return await layer.equipped(replace(call, principal=key or Principal("k")), None, [])


def toolbox_of(call: Call) -> HostedToolbox:
    assert call.toolbox is not None
    return call.toolbox


@pytest.mark.parametrize(
    ("tools", "operation", "relayed"),
    [
        (b'"tools": [{"type": "mcp", "server_label": "docs"}]', RESPONSES, False),
        (
            b'"tools": [{"type": "mcp", "server_label": "docs", "server_url": "%b"}]'
            % DOCS.encode(),
            RESPONSES,
            False,
        ),
        (b'"mcp_servers": [{"name": "docs", "url": ""}]', MESSAGES, False),
        (b'"tools": [{"type": "mcp", "server_label": "d", "server_url": "h"}]', RESPONSES, True),
        (b'"mcp_servers": [{"name": "d", "url": "h"}]', MESSAGES, True),
        (b'"tools": [{"type": "web_search"}]', RESPONSES, True),
    ],
)
async def test_a_server_of_the_template_is_none_that_a_vendor_knows(
    tools: bytes, operation: Operation, relayed: bool
) -> None:
    kind = "remote::openai" if operation is RESPONSES else "remote::anthropic-messages"
    registered = provider_type(kind)
    settings: Any = registered.config.validate({"api_key": "k"})
    provider = registered.make("p", settings, [])
    assert relays(provider, await equipped(tools, operation), Target("gpt-5.5")) is relayed


@pytest.mark.parametrize(
    "tools",
    [
        b'"tools": [{"type": "web_search"}]',
        rb'"tools": [{"type": "web\u005fsearch"}]',
        b'"tools": [{"type": "mcp", "server_label": "d", "server_url": "https://d.example"}]',
        b'"tools": [{"type": "mcp_toolset", "server_label": "d", "server_url": "https://d.ex"}]',
        b'"mcp_servers": [{"name": "d", "url": "https://d.example"}]',
    ],
)
async def test_a_key_without_a_tool_may_not_have_it_run_by_a_vendor_either(tools: bytes) -> None:
    operation = MESSAGES if b"mcp_servers" in tools else RESPONSES
    assert toolbox_of(await equipped(tools, operation)).kinds
    for allowed in ((), ("mcp.docs.*",)):
        with pytest.raises(APIError) as refused:
            await equipped(tools, operation, Principal("k", tools=allowed))
        assert refused.value.code == "tool_not_allowed"


@pytest.mark.parametrize(
    "tools",
    [
        b'"tools": [{"type": "web_search"}]',
        b'"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]',
        b'"tools": [{"type": "mcp", "server_label": "d", "server_url": "https://d.example"}]',
        b'"tools": [{"type": "mcp", "server_label": "d", "connector_id": "connector_gmail"}]',
    ],
)
@pytest.mark.parametrize("settings", [ToolsSettings(), SETTINGS.tools], ids=["none", "some"])
async def test_nor_where_the_template_has_none(tools: bytes, settings: ToolsSettings) -> None:
    everything = await equipped(tools, settings=settings)
    assert toolbox_of(everything).kinds <= toolbox_of(everything).known
    with pytest.raises(APIError) as refused:
        await equipped(tools, key=Principal("k", tools=()), settings=settings)
    assert refused.value.code == "tool_not_allowed"


async def test_what_is_no_tool_of_the_servers_needs_no_leave() -> None:
    mine = {"type": "function", "name": "web_search_mine", "parameters": {}}
    call = await equipped(b'"tools": [%b]' % encode_json(mine), key=Principal("k", tools=()))
    assert toolbox_of(call).kinds == frozenset()


@pytest.mark.parametrize("member", [b"tools", b"mcp_servers"])
async def test_large_members_that_name_tools_are_read_in_a_thread(
    member: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noting(fields: Mapping[str, Raw]) -> NamedTools:
        threads.append(threading.current_thread())
        return tools_named(fields)

    monkeypatch.setattr(server_tools, "tools_named", noting)
    named = encode_json([{"name": "d", "url": "https://d.example", "x": "x" * LARGE_BYTES}])
    for value in (b"[]", named):
        await equipped(b'"%b": %b' % (member, value), MESSAGES)
    here = threading.current_thread()
    assert [each is here for each in threads] == [True, False]


@pytest.mark.parametrize(
    "tools",
    [
        b'"tools": [{"type": "web_search_20250305", "name": "web_search"}]',
        b'"mcp_servers": [{"name": "d", "url": "https://d.example"}]',
    ],
)
async def test_nor_in_a_call_that_is_given_none_of_ours(tools: bytes) -> None:
    async def answer(request: Any) -> Any:
        return "answered"

    layer = ServerToolsLayer(answer, ServerTools(ToolsSettings()), None)
    body = b'{"model": "m", "messages": [], %b}' % tools
    for allowed in (None, ("web_search", "mcp_url"), ()):
        request: Any = SimpleNamespace(
            call=replace(call_of(body, COUNT_TOKENS), principal=Principal("k", tools=allowed))
        )
        if allowed == ():
            with pytest.raises(APIError) as refused:
                await layer(request)
            assert refused.value.code == "tool_not_allowed"
        else:
            assert await layer(request) == "answered"


@pytest.mark.parametrize(
    ("tool", "kind", "relayed"),
    [
        (b'{"type": "google_search"}', "web_search", True),
        (b'{"type": "url_context"}', "web_fetch", True),
        (b'{"type": "file_search", "file_search_store_names": ["a"]}', "file_search", True),
        (b'{"type": "mcp_server", "name": "d", "url": "https://d.example"}', "mcp", True),
        (b'{"type": "mcp_server", "url": "https://d.example"}', "mcp", True),
        (b'{"type": "mcp_server", "name": "docs"}', "mcp", False),
        (b'{"type": "mcp_server", "name": "docs", "url": "%b"}' % DOCS.encode(), "mcp", False),
        (b'{"googleSearch": {}}', "web_search", True),
        (b'{"url_context": {}}', "web_fetch", True),
        (b'{"fileSearch": {"fileSearchStoreNames": ["a"]}}', "file_search", True),
        (
            b'{"mcpServers": [{"name": "d", "streamableHttpTransport":'
            b' {"url": "https://d.example"}}]}',
            "mcp",
            True,
        ),
        (b'{"mcpServers": [{"name": "docs"}]}', "mcp", False),
        (
            b'{"mcp_servers": [{"name": "docs", "streamable_http_transport": {"url": "%b"}}]}'
            % DOCS.encode(),
            "mcp",
            False,
        ),
    ],
)
@pytest.mark.parametrize("googles", [True, False], ids=["at Google", "elsewhere"])
async def test_what_googles_apis_ask_for_is_googles_where_that_has_it(
    tool: bytes, kind: str, relayed: bool, googles: bool
) -> None:
    operation = INTERACTIONS if b'"type"' in tool else GENERATE
    registered = provider_type("remote::gemini-native")
    own = {} if googles else {"base_url": "http://localhost:1"}
    settings: Any = registered.config.validate({"api_key": "k", **own})
    provider = registered.make("p", settings, [])
    call = await equipped(b'"tools": [%b]' % tool, operation)
    is_known = kind in toolbox_of(call).known
    assert toolbox_of(call).kinds == ({kind} if is_known else set())
    expected = relayed if googles else not is_known
    assert relays(provider, call, Target("gemini-3-flash")) is expected
    # Which tools of the template's own server are the key's is seen when that is asked.
    for allowed in ((), ("mcp.docs.*",)) if relayed else ():
        key = Principal("k", tools=allowed)
        with pytest.raises(APIError) as refused:
            await equipped(b'"tools": [%b]' % tool, operation, key)
        assert refused.value.code == "tool_not_allowed"


@pytest.mark.parametrize(
    "server",
    [
        b'{"name": "docs", "streamableHttpTransport": null, "url": "https://d.example"}',
        b'{"name": "d", "streamableHttpTransport": {"url": "https://d.example"}}',
    ],
)
@pytest.mark.parametrize("named", [b"", b'"type": "web_search", '])
async def test_no_server_is_named_to_those_who_ask_and_another_to_those_who_look(
    server: bytes, named: bytes
) -> None:
    tools = b'"tools": [{"mcpServers": [{"name": "docs"}]}, {%b"mcpServers": [%b]}]'
    key = Principal("k", tools=("web_search", "mcp.docs.*"))
    with pytest.raises(APIError) as refused:
        await equipped(tools % (named, server), GENERATE, key)
    assert (refused.value.status, refused.value.code) == (403, "tool_not_allowed")


@pytest.mark.parametrize(
    ("tool", "relayed"),
    [
        (b'{"googleSearch": {}, "urlContext": {}}', True),
        (b'{"mcpServers": [{"streamableHttpTransport": {"url": "https://d.example"}}]}', False),
    ],
)
async def test_vertex_connects_to_no_servers(tool: bytes, relayed: bool) -> None:
    registered = provider_type("remote::vertex")
    settings: Any = registered.config.validate({"project": "mine"})
    provider = registered.make("p", settings, [])
    call = await equipped(b'"tools": [%b]' % tool, GENERATE)
    assert relays(provider, call, Target("gemini-3-flash")) is relayed
