"""What a model thought when it called a tool: lost by the client, wanted back by the vendor, and
nothing to another one that goes on in its place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.losing_clients import (
    CLIENTS,
    PARAMETERS,
    TOOL,
    Called,
    ChatClient,
    KeepingClient,
    LosingClient,
)
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.thinking_vendors import ANY_SIGNATURE, ThinkingVendors

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
KEYS = ("key-of-somebody", "key-of-somebody-else")

MODELS = {
    "claude": "claude-haiku-4-5",
    "gemini": "gemini-3.8-flash",
    "deepseek": "deepseek-v4-flash",
    "xiaomi": "mimo-v2.5-pro",
    "openai": "gpt-6.1-sol",
}
THINKING = ("claude", "gemini", "deepseek", "xiaomi")


@pytest.fixture(scope="module")
def vendors() -> Iterator[ThinkingVendors]:
    with ThinkingVendors() as vendors:
        yield vendors


def template_of(vendors: ThinkingVendors, **server: Any) -> dict[str, Any]:
    def config(name: str) -> dict[str, Any]:
        return {"base_url": vendors.base_url(name), "api_key": "sk-x"}

    gemini = {**config("gemini"), "base_url": f"{vendors.origin}/gemini/v1beta"}
    types = {
        "claude": ("remote::anthropic-messages", config("claude")),
        "gemini": ("remote::gemini-native", gemini),
        "deepseek": ("remote::deepseek", {**config("deepseek"), "wires": ["chat"]}),
        "xiaomi": ("remote::xiaomi", {**config("xiaomi"), "wires": ["chat"]}),
        "openai": ("remote::openai", {**config("openai"), "wires": ["chat"]}),
        # Its own Anthropic API is on its host, at another place.
        "deepseek-messages": ("remote::deepseek", config("deepseek")),
    }
    models = {**MODELS, "deepseek-messages": "deepseek-v4-flash"}
    return {
        "server": server,
        "providers": [
            {"id": name, "type": type, "config": config} for name, (type, config) in types.items()
        ],
        "models": [
            {"id": name, "provider": name, "provider_model": model}
            for name, model in models.items()
        ],
    }


@pytest.fixture(scope="module")
def server(
    vendors: ThinkingVendors, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("lost") / "lost.yaml", **template_of(vendors, api_keys=[*KEYS])
    )
    with running(template) as server:
        yield server


def client_of(
    server: ServerProcess, api: str, *, stream: bool = False, key: str = KEYS[0]
) -> LosingClient:
    return CLIENTS[api](server.url, key, stream)


def sent_back(vendors: ThinkingVendors, vendor: str, call: int = 0) -> str | None:
    """What was thought before a call, by what its vendor was sent last; for Gemini, whose thoughts
    nobody sends back, the seal has to be theirs."""
    body = vendors.seen[vendor].body
    if vendor == "claude":
        turns = [each["content"] for each in body["messages"] if each["role"] == "assistant"]
        block = turns[call][0]
        return str(block["thinking"]) if block["type"] == "thinking" else None
    if vendor == "gemini":
        parts = [part for content in body["contents"] for part in content["parts"]]
        seals = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
        return vendors.thoughts.get(vendors.seals.get(seals[call], ""))
    turns = [each for each in body["messages"] if each.get("tool_calls")]
    thought = turns[call].get("reasoning_content")
    return None if thought is None else str(thought)


@STREAMED
@pytest.mark.parametrize("api", CLIENTS)
@pytest.mark.parametrize("vendor", THINKING)
def test_a_vendor_gets_back_what_the_client_lost(
    server: ServerProcess, vendors: ThinkingVendors, vendor: str, api: str, stream: bool
) -> None:
    client = client_of(server, api, stream=stream)
    question = f"Weather in Bern, {vendor} by {api}, {stream}?"
    calls = client.ask(vendor, question)
    thought = list(vendors.thoughts.values())[-1]
    assert client.answer(vendor, calls) == "Sunny."
    assert sent_back(vendors, vendor) == thought
    # The user's next turn: what was thought in earlier ones is still there.
    again = client.ask(vendor, f"{question} And tomorrow?")
    later = list(vendors.thoughts.values())[-1]
    assert client.answer(vendor, again) == "Sunny."
    told = [sent_back(vendors, vendor, call) for call in ((0, 2) if vendor == "claude" else (0, 1))]
    assert told == [thought, later]


@STREAMED
@pytest.mark.parametrize("api", CLIENTS)
@pytest.mark.parametrize(("first", "second"), list(permutations(MODELS, 2)))
def test_a_conversation_switches_vendors_inside_a_tool_round(
    server: ServerProcess,
    vendors: ThinkingVendors,
    first: str,
    second: str,
    api: str,
    stream: bool,
) -> None:
    client = client_of(server, api, stream=stream)
    calls = client.ask(first, f"Weather in Bern, {first} to {second} by {api}, {stream}?")
    thought = list(vendors.thoughts.values())[-1]
    assert client.answer(second, calls) == "Sunny."
    assert thought not in str(vendors.seen[second].body)
    # And back: each has its own.
    client.answer(first, client.ask(second, "And tomorrow?"))


def test_claude_goes_on_without_thinking_where_its_turn_was_anothers(
    server: ServerProcess, vendors: ThinkingVendors
) -> None:
    client = client_of(server, "messages")
    client.answer("claude", client.ask("openai"))
    assert vendors.seen["claude"].body["thinking"] == {"type": "disabled"}
    assert "thinking=disabled" in client.adapted


def test_gemini_is_told_that_another_made_the_call(
    server: ServerProcess, vendors: ThinkingVendors
) -> None:
    client = client_of(server, "gemini")
    client.answer("gemini", client.ask("claude"))
    parts = vendors.seen["gemini"].body["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in parts] == [ANY_SIGNATURE]


@STREAMED
def test_deepseeks_messages_have_their_thinking_again(
    server: ServerProcess, vendors: ThinkingVendors, stream: bool
) -> None:
    client = client_of(server, "messages", stream=stream)
    calls = client.ask("deepseek-messages", f"Weather in Bern, {stream}?")
    thought = list(vendors.thoughts.values())[-1]
    assert client.answer("deepseek-messages", calls) == "Sunny."
    said = vendors.seen["anthropic"].body["messages"][1]["content"]
    assert [block["type"] for block in said] == ["thinking", "tool_use"]
    assert said[0]["thinking"] == thought


def test_what_a_client_keeps_is_relayed_as_it_came(
    server: ServerProcess, vendors: ThinkingVendors
) -> None:
    client = client_of(server, "chat")
    calls = client.ask("deepseek", "Weather in Bern, kept?")
    client.history[-1]["reasoning_content"] = "The client has its own of it."
    client.answer("deepseek", calls)
    assert sent_back(vendors, "deepseek") == "The client has its own of it."


@pytest.mark.parametrize("api", CLIENTS)
def test_keys_do_not_see_each_others(
    server: ServerProcess, vendors: ThinkingVendors, api: str
) -> None:
    one, other = (client_of(server, api, key=key) for key in KEYS)
    calls = one.ask("deepseek", f"Weather in Bern, for me alone, {api}?")
    thought = list(vendors.thoughts.values())[-1]
    other.history = [*one.history]
    assert other.answer("deepseek", calls) == "Sunny."
    assert sent_back(vendors, "deepseek") == " "
    assert thought not in str(vendors.seen["deepseek"].body)
    assert one.answer("deepseek", calls) == "Sunny."
    assert sent_back(vendors, "deepseek") == thought


@pytest.mark.parametrize("first", ["deepseek", "deepseek-messages", "gemini"])
def test_the_same_call_of_another_model_takes_no_thought(
    vendors: ThinkingVendors, tmp_path: Path, first: str
) -> None:
    """One process has answered the same with another model, and is asked to go on with a turn that
    another process knows: as two workers may be."""
    template = write_template(tmp_path / "lost.yaml", **template_of(vendors))

    def ask(server: ServerProcess, model: str, messages: list[Any]) -> Any:
        body = {
            "model": model,
            "max_tokens": 4096,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [{"name": TOOL["name"], "input_schema": PARAMETERS}],
            "messages": messages,
        }
        reply = wire.request("POST", f"{server.url}/v1/messages", body)
        assert reply.status == 200, reply.body
        return reply.json()["content"]

    with running(template) as one, running(template) as other:
        messages: list[Any] = [{"role": "user", "content": "Weather in Bern, by two?"}]
        ask(one, first, messages)
        said = ask(other, "claude", messages)
        assert [block["type"] for block in said] == ["thinking", "tool_use"]
        result = {"type": "tool_result", "tool_use_id": said[1]["id"], "content": "22 degrees"}
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": [result]},
        ]
        assert ask(one, "claude", messages)[0]["text"] == "Sunny."
    sent = vendors.seen["claude"].body
    assert sent["messages"][1]["content"] == said
    assert sent["thinking"]["type"] == "enabled"


@STREAMED
def test_a_thought_in_which_something_was_hidden_is_put_back_as_it_was(
    vendors: ThinkingVendors, tmp_path: Path, stream: bool
) -> None:
    """What a client has of it is not what the vendor has sealed."""
    hide = {"name": "x", "scan": "output", "expressions": {"VERB": "thinks"}, "mode": "redact"}
    template = write_template(tmp_path / "hidden.yaml", **template_of(vendors), guardrails=[hide])
    with running(template) as server:
        client = KeepingClient(server.url, stream=stream)
        calls = client.ask("claude", f"Weather in Bern, hidden, {stream}?")
        thought = list(vendors.thoughts.values())[-1]
        assert "thinks" in thought
        shown = client.history[-1]["content"][0]
        assert shown["thinking"] == thought.replace("thinks", "<VERB_1>")
        assert client.answer("claude", calls) == "Sunny."
    assert sent_back(vendors, "claude") == thought


def test_nothing_is_kept_where_the_template_says_so(
    vendors: ThinkingVendors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("forgetful") / "forgetful.yaml"
    template = write_template(path, **template_of(vendors, reasoning_memory=None))
    with running(template) as server:
        client = ChatClient(server.url)
        calls: list[Called] = client.ask("deepseek", "Weather in Bern, forgotten?")
        assert client.answer("deepseek", calls) == "Sunny."
        assert sent_back(vendors, "deepseek") == " "
