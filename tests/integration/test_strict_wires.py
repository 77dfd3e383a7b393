"""Odd conversations of every client API, at vendors that hold them against their own rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.conversations import CLIENTS
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.strict_wires import WIRES, StrictWires

PROVIDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("remote::openai", {"base_url": "{url}/v1", "wires": ["chat"]}),
    "mistral": ("remote::mistral", {"base_url": "{url}/v1"}),
    "responses": ("remote::openai", {"base_url": "{url}/v1", "wires": ["responses"]}),
    "anthropic": ("remote::anthropic-messages", {"base_url": "{url}"}),
    "gemini": ("remote::gemini-native", {"base_url": "{url}"}),
    "bedrock": ("remote::bedrock-converse", {"base_url": "{url}"}),
    "ollama": ("remote::ollama-native", {"base_url": "{url}"}),
}


@pytest.fixture(scope="module")
def vendors() -> Iterator[StrictWires]:
    with StrictWires() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def server(
    vendors: StrictWires, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    providers = []
    for name, (kind, config) in PROVIDERS.items():
        url = f"{vendors.url}/{name}"
        keyed = {} if name == "ollama" else {"api_key": "sk-x"}
        config = {**config, "base_url": config["base_url"].format(url=url), **keyed}
        providers.append({"id": name, "type": kind, "config": config})
    template = write_template(
        tmp_path_factory.mktemp("strict") / "strict.yaml",
        providers=providers,
        models=[{"id": name, "provider": name, "provider_model": "own"} for name in PROVIDERS],
    )
    with running(template) as server:
        yield server


REFUSED = {
    ("chat", "one demanded", "ollama"): "tool_choice",
    ("messages", "a long name", "ollama"): "tool_choice",
    ("chat", "files alone", "ollama"): "has a document",
    ("messages", "a paper in a result", "ollama"): "has a document",
    ("messages", "papers", "ollama"): "has a document",
    ("messages", "a paper to be cited", "ollama"): "has a document",
    ("responses", "a paper", "ollama"): "has a document",
    ("gemini", "a paper alone", "ollama"): "has a document",
}
"""What a vendor has no form for at all, and is refused by name before it is asked."""


def test_there_is_a_provider_of_each() -> None:
    assert PROVIDERS.keys() == WIRES.keys()


@pytest.mark.parametrize(
    ("client", "conversation"),
    [(client, name) for client, (_, bodies) in CLIENTS.items() for name in bodies],
)
def test_every_vendor_takes_it(
    server: ServerProcess, vendors: StrictWires, client: str, conversation: str
) -> None:
    path, bodies = CLIENTS[client]
    wrong = {}
    for vendor in PROVIDERS:
        body = {"model": vendor, **bodies[conversation]}
        if client == "gemini":
            del body["model"]
        url = f"{server.url}{path.format(model=vendor)}"
        vendors.asked.clear()
        reply = wire.request("POST", url, body)
        why = REFUSED.get((client, conversation, vendor))
        if why is None and reply.status != 200:
            wrong[vendor] = reply.body.decode()
        elif why is not None:
            assert reply.status == 400
            assert why in reply.body.decode()
            assert not vendors.asked
    assert wrong == {}
