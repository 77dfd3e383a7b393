"""Odd conversations of every client API, at vendors that hold them against their own rules."""

from __future__ import annotations

import json
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


# What is in messages and tools, and not every vendor has a place for ------------------------------

NAMED = {"role": "user", "content": "Weather, in JSON?", "name": "ann"}
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
STRICT_TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": CLOSED, "strict": True},
}

CONTINUING = ("mistral", "ollama")
"""Those that continue prompts themselves, of which the stand-ins know nothing."""

PLACELESS = {
    "chat": "",
    "mistral": "messages.name",
    "responses": "messages.name",
    "anthropic": "messages.name",
    "gemini": "messages.name, tools.strict",
    "bedrock": "messages.name",
    "ollama": "messages.name, tools.strict",
}


def chatted(server: ServerProcess, vendor: str, **members: Any) -> wire.Reply:
    body = {"model": vendor, "messages": [NAMED], **members}
    return wire.request("POST", f"{server.url}/v1/openai/v1/chat/completions", body)


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_what_a_vendor_has_no_place_for_is_told(
    server: ServerProcess, vendors: StrictWires, vendor: str
) -> None:
    reply = chatted(server, vendor, tools=[STRICT_TOOL])
    assert reply.status == 200
    assert reply.headers.get("x-llama-compat-dropped", "") == PLACELESS[vendor]
    sent = json.dumps(vendors.asked[-1][0])
    assert ('"ann"' in sent, '"strict": true' in sent) == (
        "messages.name" not in PLACELESS[vendor],
        "tools.strict" not in PLACELESS[vendor],
    )


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_a_choice_of_schemas_is_one_object_where_there_is_no_place_for_it_and_named(
    server: ServerProcess, vendors: StrictWires, vendor: str
) -> None:
    path, bodies = CLIENTS["gemini"]
    url = f"{server.url}{path.format(model=vendor)}"
    reply = wire.request("POST", url, bodies["one of two schemas"])
    assert reply.status == 200, reply.body
    sent = json.dumps(vendors.asked[-1][0])
    is_joined = vendor not in ("gemini", "mistral")
    dropped = reply.headers.get("x-llama-compat-dropped", "")
    assert ("tools.parameters.anyOf" in dropped) is is_joined
    assert ('"oneOf"' in sent) is not is_joined
    assert '"city"' in sent


CHATS_HINTS: dict[str, Any] = {
    "metadata": {"team": "blue"},
    "prediction": {"type": "content", "content": "{}"},
    "safety_identifier": "s-1",
    "service_tier": "flex",
    "user": "u-1",
}
LONG = "user_" + 64 * "a" + "_account__session_" + 36 * "b"
"""Who asks, as Claude Code says it."""

HINTS: list[tuple[str, dict[str, Any], dict[str, str], dict[str, dict[str, Any]]]] = [
    (
        "chat",
        CHATS_HINTS,
        {
            "chat": "",
            "mistral": "safety_identifier, service_tier, user",
            "responses": "metadata, prediction",
            "anthropic": "metadata, prediction, service_tier, user",
            "gemini": "metadata, prediction, safety_identifier, user",
            "bedrock": "prediction, safety_identifier, service_tier, user",
            "ollama": "metadata, prediction, safety_identifier, service_tier, user",
        },
        {
            "chat": CHATS_HINTS,
            "mistral": {name: CHATS_HINTS[name] for name in ("metadata", "prediction")},
            "responses": {"safety_identifier": "s-1", "service_tier": "flex", "user": "u-1"},
            "anthropic": {"metadata": {"user_id": "s-1"}},
            "gemini": {"serviceTier": "flex"},
            "bedrock": {"requestMetadata": {"team": "blue"}},
        },
    ),
    (
        "responses",
        {"metadata": {"team": "blue", "who": "Zo\u00eb"}},
        dict.fromkeys(PROVIDERS, ""),
        {
            "responses": {"metadata": {"team": "blue", "who": "Zo\u00eb"}},
            "bedrock": {"requestMetadata": {"team": "blue"}},
        },
    ),
    (
        "messages",
        {"metadata": {"user_id": "u-1"}, "service_tier": "auto"},
        {
            "chat": "",
            "responses": "",
            "anthropic": "",
            **dict.fromkeys(("mistral", "gemini", "bedrock", "ollama"), "metadata.user_id"),
        },
        {
            "chat": {"service_tier": "auto", "user": "u-1"},
            "responses": {"service_tier": "auto", "user": "u-1"},
            "anthropic": {"metadata": {"user_id": "u-1"}, "service_tier": "auto"},
        },
    ),
    (
        "messages",
        {"metadata": {"user_id": LONG}},
        {name: "" if name == "anthropic" else "metadata.user_id" for name in PROVIDERS},
        {"anthropic": {"metadata": {"user_id": LONG}}},
    ),
    (
        "gemini",
        {"safetySettings": [], "labels": {"team": "blue"}, "serviceTier": "priority"},
        {
            "chat": "labels",
            "mistral": "labels, serviceTier",
            "responses": "labels",
            "anthropic": "labels",
            "gemini": "",
            "bedrock": "labels, serviceTier",
            "ollama": "labels, serviceTier",
        },
        {
            "chat": {"service_tier": "priority"},
            "responses": {"service_tier": "priority"},
            "anthropic": {"service_tier": "auto"},
            "gemini": {"labels": {"team": "blue"}, "serviceTier": "priority", "safetySettings": []},
        },
    ),
]
HINTED = {*CHATS_HINTS, "requestMetadata", "serviceTier", "labels", "safetySettings"}


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize(("client", "hints", "told", "sent"), HINTS)
def test_a_hint_is_told_where_it_has_a_place_and_named_where_not(
    server: ServerProcess,
    vendors: StrictWires,
    client: str,
    hints: dict[str, Any],
    told: dict[str, str],
    sent: dict[str, dict[str, Any]],
    vendor: str,
) -> None:
    path, bodies = CLIENTS[client]
    body = {"model": vendor, **next(iter(bodies.values())), **hints}
    if client == "gemini":
        del body["model"]
    reply = wire.request("POST", f"{server.url}{path.format(model=vendor)}", body)
    assert reply.status == 200, reply.body
    named = reply.headers.get("x-llama-compat-dropped", "").split(", ")
    assert (
        ", ".join(sorted(each for each in named if each in {*hints, "metadata.user_id"}))
        == (told[vendor])
    )
    asked = vendors.asked[-1][0]
    assert {name: asked[name] for name in HINTED & asked.keys()} == sent.get(vendor, {})


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_what_a_format_is_for_is_told_wherever_that_may_stand(
    server: ServerProcess, vendors: StrictWires, vendor: str
) -> None:
    described = {"name": "place", "description": "Where it is.", "schema": CLOSED, "strict": True}
    shape = {"type": "json_schema", "json_schema": described}
    assert chatted(server, vendor, response_format=shape).status == 200
    assert json.dumps(vendors.asked[-1][0]).count("Where it is.") == 1


@pytest.mark.parametrize("vendor", [name for name in PROVIDERS if name not in CONTINUING])
@pytest.mark.parametrize(
    ("members", "refused"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [STRICT_TOOL]}, "tools"),
        ({"reasoning_effort": "high", "verbosity": "low"}, None),
    ],
)
def test_a_prompt_that_is_continued_has_nothing_of_chats(
    server: ServerProcess,
    vendors: StrictWires,
    vendor: str,
    members: dict[str, Any],
    refused: str | None,
) -> None:
    vendors.asked.clear()
    body = {"model": vendor, "prompt": "Once", "max_tokens": 20, **members}
    reply = wire.request("POST", f"{server.url}/v1/openai/v1/completions", body)
    if refused is not None:
        assert (reply.status, reply.json()["error"]["param"]) == (400, refused)
        assert not vendors.asked
        return
    assert reply.status == 200
    told = set(reply.headers["x-llama-compat-dropped"].split(", "))
    assert told == {"reasoning_effort", "verbosity"}


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("effort", ["none", "max"])
def test_every_word_for_how_hard_to_think_is_taken(
    server: ServerProcess, vendors: StrictWires, vendor: str, effort: str
) -> None:
    """Nothing says how a model of no known family is told on Bedrock, and Gemini always thinks."""
    reply = chatted(server, vendor, reasoning_effort=effort)
    assert reply.status == 200
    dropped = reply.headers.get("x-llama-compat-dropped", "")
    untold = vendor == "bedrock" or (vendor, effort) == ("gemini", "none")
    assert ("reasoning_effort" in dropped) is untold
