"""Guardrails, by every client API's own SDK, before vendors whose language it is and others."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.said import WEATHER, Ask, Refused
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import NativeVendor
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor
from tests.integration.test_native_gemini import GeminiVendor

VENDORS: dict[str, type[Vendor]] = {
    "openai": OpenAIVendor,
    "anthropic": AnthropicVendor,
    "gemini": GeminiVendor,
}
TYPES = {
    "openai": "remote::passthrough",
    "anthropic": "remote::anthropic-messages",
    "gemini": "remote::gemini-native",
}
CHATS = [name for name in CLIENTS if name != "completions"]

CARD = "4111 1111 1111 1111"
MAIL = "alice@example.com"

RAILS: dict[str, dict[str, Any]] = {
    "block": {"scan": ["output", "tool_arguments"], "patterns": ["cards"]},
    "redact": {"scan": ["output", "tool_arguments"], "patterns": ["cards"], "mode": "redact"},
    "monitor": {"patterns": ["cards"], "mode": "monitor"},
    "refuse": {"scan": "input", "patterns": ["cards"]},
    "hide": {"scan": "input", "patterns": ["emails"], "mode": "redact", "restore": True},
}
"""A model of each vendor for each."""


@pytest.fixture(scope="module")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("guardrails")
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(vendor.server_type()) for name, vendor in VENDORS.items()
        }
        process = stack.enter_context(running(template(folder, servers)))
        found: dict[str, Any] = {
            name: vendor(servers[name], process.base_url)  # type: ignore[call-arg]
            for name, vendor in VENDORS.items()
        }
        yield {**found, "server": process, "storage": folder / "storage.sqlite"}


def template(folder: Path, servers: dict[str, NativeVendor]) -> Path:
    def config(name: str) -> dict[str, Any]:
        if name == "openai":
            return {"base_url": f"{servers[name].url}/v1"}
        keyed = {"base_url": servers[name].url, "api_key": "sk-x"}
        return {**keyed, "apis": ["generate_content"]} if name == "gemini" else keyed

    return write_template(
        folder / "guardrails.yaml",
        server={"storage": f"sqlite:{folder / 'storage.sqlite'}", "records": {}},
        providers=[{"id": name, "type": TYPES[name], "config": config(name)} for name in servers],
        models=[
            {
                "id": f"{name}-{rail}",
                "provider": name,
                "provider_model": "claude" if name == "anthropic" else "theirs",
                "guardrails": [{"name": rail, **settings}],
            }
            for name in servers
            for rail, settings in RAILS.items()
        ],
    )


@pytest.fixture(scope="module")
def clients(vendors: dict[str, Any]) -> dict[str, Client]:
    url = vendors["server"].url
    return {name: client(url) for name, client in CLIENTS.items()}  # type: ignore[call-arg]


each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
each_client = pytest.mark.parametrize("client", CHATS)
each_vendor = pytest.mark.parametrize("vendor", VENDORS)


@each_way
@each_client
@each_vendor
def test_what_is_blocked_ends_in_the_clients_own_words(
    vendors: dict[str, Any], clients: dict[str, Client], vendor: str, client: str, stream: bool
) -> None:
    vendors[vendor].will_say(Reply(text=f"Sure, it is {CARD}, and no other one."))
    said = clients[client].ask(Ask(f"{vendor}-block"), stream=stream)
    assert said.stop == "filter"
    assert "4111" not in said.text
    assert "other" not in said.text


@each_way
@each_client
@each_vendor
def test_what_is_hidden_is_not_there(
    vendors: dict[str, Any], clients: dict[str, Client], vendor: str, client: str, stream: bool
) -> None:
    vendors[vendor].will_say(Reply(text=f"Sure, it is {CARD}, and no other.", thoughts="Hm."))
    said = clients[client].ask(Ask(f"{vendor}-redact"), stream=stream)
    assert (said.text, said.stop) == ("Sure, it is <CARD_1>, and no other.", "end")


@each_way
@each_client
@each_vendor
def test_the_arguments_of_tools_are_looked_through(
    vendors: dict[str, Any], clients: dict[str, Client], vendor: str, client: str, stream: bool
) -> None:
    if "tools" not in clients[client].can:
        pytest.skip("it has no tools")
    vendors[vendor].will_say(Reply(calls=[("get_weather", {"city": f'"{CARD}"\nö'})], stop="calls"))
    ask = Ask(f"{vendor}-redact", tools=[WEATHER])
    said = clients[client].ask(ask, stream=stream)
    assert said.calls == [("get_weather", {"city": '"<CARD_1>"\nö'})]
    said = clients[client].ask(Ask(f"{vendor}-block", tools=[WEATHER]), stream=stream)
    assert CARD not in json.dumps(said.calls)


@each_way
@each_client
@each_vendor
def test_what_nobody_may_ask_is_refused(
    vendors: dict[str, Any], clients: dict[str, Client], vendor: str, client: str, stream: bool
) -> None:
    vendors[vendor].will_say(Reply(text="Fine."))
    with pytest.raises(Refused) as refused:
        clients[client].ask(Ask(f"{vendor}-refuse", text=f"Pay with {CARD}!"), stream=stream)
    assert refused.value.status == 400
    assert not vendors[vendor].server.received


@each_way
@each_client
@each_vendor
def test_what_was_hidden_from_the_vendor_comes_back(
    vendors: dict[str, Any], clients: dict[str, Client], vendor: str, client: str, stream: bool
) -> None:
    vendors[vendor].will_say(Reply(text="Mail to <EMAIL_1> is on its way, not to <EMAIL_2>."))
    ask = Ask(f"{vendor}-hide", text=f"Write to {MAIL}.")
    said = clients[client].ask(ask, stream=stream)
    assert said.text == f"Mail to {MAIL} is on its way, not to <EMAIL_2>."
    sent = vendors[vendor].server.last.content
    assert b"<EMAIL_1>" in sent
    assert MAIL.encode() not in sent


@each_way
@each_client
def test_what_is_only_counted_goes_by(
    vendors: dict[str, Any], clients: dict[str, Client], client: str, stream: bool
) -> None:
    text = f"It is {CARD}."
    vendors["openai"].will_say(Reply(text=text))
    assert clients[client].ask(Ask("openai-monitor"), stream=stream).text == text


def test_a_header_says_what_was_hidden(vendors: dict[str, Any]) -> None:
    vendors["openai"].will_say(Reply(text=f"It is {CARD}."))
    url = f"{vendors['server'].base_url}/chat/completions"
    body = {"model": "openai-redact", "messages": [{"role": "user", "content": "Hi"}]}
    reply = wire.request("POST", url, body)
    assert reply.headers["x-llama-compat-guardrails"] == "redacted=redact"
    body["model"] = "openai-monitor"
    assert "x-llama-compat-guardrails" not in wire.request("POST", url, body).headers


def test_verdicts_are_recorded(vendors: dict[str, Any]) -> None:
    url = f"{vendors['server'].base_url}/chat/completions"
    body = {"model": "openai-refuse", "messages": [{"role": "user", "content": f"It is {CARD}"}]}
    refused = wire.request("POST", url, body)
    assert (refused.status, refused.json()["error"]["code"]) == (400, "content_filter")
    found: list[str] = []
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        with closing(sqlite3.connect(vendors["storage"])) as database:
            statement = "SELECT guardrails FROM records WHERE request_id = ?"
            found = [
                row[0] for row in database.execute(statement, (refused.headers["x-request-id"],))
            ]
    assert found == ["refuse:block"]
    # Nobody asked for bodies to be recorded.
    folder = vendors["storage"].parent
    assert not [
        each for each in folder.glob("storage.sqlite*") if CARD.encode() in each.read_bytes()
    ]
