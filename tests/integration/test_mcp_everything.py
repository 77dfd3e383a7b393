"""The MCP project's own `@modelcontextprotocol/server-everything` behind this server, by both
transports; skipped where npm has not installed it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.hosted_tools import LABELS, MODEL, Served, find_everything, served
from tests.clients.scripted_models import Asked, Said, ScriptedModels

pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")


def model(asked: Asked) -> Said:
    """Calls the tool that the user names, with what follows as its arguments, then repeats what
    that gave."""
    if asked.outputs:
        return Said(asked.outputs[-1][:500])
    name, _, given = asked.texts[-1].partition(" ")
    if name not in asked.tools:
        return Said(" ".join(sorted(asked.tools)) or "none")
    return Said("", [(name, json.loads(given or "{}"))])


@pytest.fixture(scope="module")
def serves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = find_everything()
    if found is None:
        pytest.skip("no MCP server: npm install @modelcontextprotocol/server-everything")
    folder, sees = tmp_path_factory.mktemp("served"), "nobody-knows-it"
    with served(folder, found, ScriptedModels(model), sees) as one:
        yield one


@pytest.fixture
def client(serves: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{serves.server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(params=LABELS)
def label(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(client: openai.OpenAI, label: str, tool: str, **arguments: Any) -> Any:
    return client.responses.create(
        model=MODEL,
        input=f"{label}__{tool} {json.dumps(arguments)}",
        tools=[{"type": "mcp", "server_label": label, "require_approval": "never"}],
    )


def called(client: openai.OpenAI, label: str, tool: str, **arguments: Any) -> Any:
    """The call as the client sees it."""
    listed, call, _ = ask(client, label, tool, **arguments).output
    assert (listed.type, call.type, call.name) == ("mcp_list_tools", "mcp_call", tool)
    return call


def test_its_tools_are_listed_with_what_is_said_of_them(client: openai.OpenAI, label: str) -> None:
    response = ask(client, label, "list")
    (listed, _) = response.output
    tools = {tool.name: tool for tool in listed.tools}
    assert tools["echo"].input_schema["required"] == ["message"]
    assert tools["echo"].annotations["readOnlyHint"] is True
    # What needs a client that samples, or is asked, is not offered by it; what can only be a task
    # is not offered here.
    assert not {name for name in tools if name.startswith("trigger-") and "request" in name}
    assert "simulate-research-query" not in tools
    assert f"{label}__echo" in response.output_text.split()


def test_numbers_and_structure_and_annotated_texts(client: openai.OpenAI, label: str) -> None:
    assert called(client, label, "get-sum", a=2, b=3).output == "The sum of 2 and 3 is 5."
    structured = called(client, label, "get-structured-content", location="Chicago").output
    assert set(json.loads(structured)) == {"temperature", "conditions", "humidity"}
    told = called(client, label, "get-annotated-message", messageType="error")
    assert (told.output, told.status) == ("Error: Operation failed", "completed")


def test_arguments_that_it_refuses_are_told_to_the_model(
    client: openai.OpenAI, label: str, serves: Served
) -> None:
    call = called(client, label, "get-sum", a="two")
    assert (call.status, call.output) == ("failed", None)
    assert "expected number" in call.error
    assert "expected number" in serves.vendor.received[-1][1]["messages"][-1]["content"]


def test_images_reach_the_model(client: openai.OpenAI, label: str, serves: Served) -> None:
    for tool, arguments in (
        ("get-tiny-image", {}),
        ("get-annotated-message", {"messageType": "debug", "includeImage": True}),
    ):
        called(client, label, tool, **arguments)
        (_, shown) = serves.vendor.received[-1][1]["messages"][-1]["content"]
        assert shown["image_url"]["url"].startswith("data:image/png;base64,")


def test_resources_are_read_or_named(client: openai.OpenAI, label: str) -> None:
    read = called(client, label, "get-resource-reference", resourceType="Text", resourceId=1)
    assert "This is a plaintext resource" in read.output
    named = called(client, label, "get-resource-reference", resourceType="Blob", resourceId=1)
    assert "[resource: demo://resource/dynamic/blob/1 can't be shown here.]" in named.output
    links = called(client, label, "get-resource-links", count=2).output
    assert "[A link to demo://resource/dynamic/text/2: Text Resource 2, " in links


def test_what_takes_long_and_tells_its_progress_is_waited_for(
    client: openai.OpenAI, label: str
) -> None:
    call = called(client, label, "trigger-long-running-operation", duration=1, steps=4)
    assert call.output == "Long running operation completed. Duration: 1 seconds, Steps: 4."


def test_claudes_connector(serves: Served, label: str) -> None:
    claude = anthropic.Anthropic(base_url=serves.server.url, api_key="none", max_retries=0)
    asked: Any = {
        "model": MODEL,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": f'{label}__get-sum {{"a": 2, "b": 3}}'}],
        "mcp_servers": [{"type": "url", "name": label, "url": ""}],
        "betas": ["mcp-client-2025-11-20"],
    }
    whole: Any = claude.beta.messages.create(**asked)
    with claude.beta.messages.stream(**asked) as stream:
        streamed: Any = stream.get_final_message()
    for message in (whole, streamed):
        use, result, said = message.content
        assert (use.type, use.server_name, use.name) == ("mcp_tool_use", label, "get-sum")
        assert use.input == {"a": 2, "b": 3}
        assert (result.type, result.is_error) == ("mcp_tool_result", False)
        assert result.content[0].text == said.text == "The sum of 2 and 3 is 5."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat_completions(client: openai.OpenAI, label: str, stream: bool) -> None:
    """OpenAI's chat has no such tool, and no items: its clients see what came of it alone."""
    said: Any = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f'{label}__get-sum {{"a": 2, "b": 3}}'}],
        tools=[{"type": "mcp", "server_label": label, "require_approval": "never"}],  # type: ignore[list-item]
        stream=stream,
    )
    if stream:
        text = "".join(each.choices[0].delta.content or "" for each in said if each.choices)
    else:
        text = said.choices[0].message.content
    assert text == "The sum of 2 and 3 is 5."


def test_nothing_that_it_says_is_in_the_log(serves: Served) -> None:
    assert "The sum of" not in serves.server.log
    assert "/mcp" not in serves.server.log
