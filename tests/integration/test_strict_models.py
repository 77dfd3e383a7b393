"""An application that was written for OpenAI works with models that take less than OpenAI's did.

Behind the server are models that refuse what the real ones refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import anthropic
import openai
import pytest

from tests.integration import wire
from tests.integration.conversations import PNG
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.strict_models import CHAT, CLAUDE, LEVELS, StrictModels

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "place",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OPENAI_VENDORS = {
    "gpt-5": "openai",
    "o3": "openai",
    "gpt-6.1-sol": "openai",
    "deepseek-v4-flash": "deepseek",
    "mistral-large-latest": "mistral",
    "grok-4": "xai",
}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[StrictModels]:
    with StrictModels() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def server(
    vendors: StrictModels, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    base = vendors.base_url("any")
    key = {"api_key": "sk-x"}
    wires = {"wires": ["chat"]}
    providers = [
        {"id": "claude", "type": "remote::anthropic-messages", "config": {**key, "base_url": base}},
        {
            "id": "strict",
            "type": "remote::anthropic-messages",
            "config": {**key, "base_url": base, "unsupported": "refuse"},
        },
        {
            "id": "adapting",
            "type": "remote::anthropic-messages",
            "config": {**key, "base_url": base, "unsupported": "adapt"},
        },
        {
            "id": "gemini",
            "type": "remote::gemini-native",
            "config": {**key, "base_url": base.removesuffix("/v1")},
        },
        *(
            {"id": name, "type": f"remote::{name}", "config": {**key, **wires, "base_url": base}}
            for name in ("openai", "deepseek", "mistral", "xai")
        ),
        {"id": "openai-whole", "type": "remote::openai", "config": {**key, "base_url": base}},
        {
            "id": "openai-adapting",
            "type": "remote::openai",
            "config": {**key, **wires, "base_url": base, "unsupported": "adapt"},
        },
    ]
    models: list[dict[str, Any]] = [
        {"id": name, "provider": "claude", "provider_model": name} for name in CLAUDE
    ]
    models += [{"id": name, "provider": "gemini"} for name in LEVELS]
    models += [{"id": name, "provider": vendor} for name, vendor in OPENAI_VENDORS.items()]
    models += [
        {"id": "calling", "provider": "openai-whole", "provider_model": "gpt-6.1-sol"},
        {"id": "refusing", "provider": "strict", "provider_model": "claude-opus-5"},
        {"id": "adapted", "provider": "adapting", "provider_model": "claude-opus-5"},
        {"id": "adapted-gpt", "provider": "openai-adapting", "provider_model": "gpt-5"},
        {
            "id": "either",
            "targets": [
                {"provider": "claude", "model": "claude-opus-5-5"},
                {"provider": "claude", "model": "claude-opus-5", "priority": 1},
            ],
        },
    ]
    path = tmp_path_factory.mktemp("models") / "models.yaml"
    with running(write_template(path, providers=providers, models=models)) as server:
        yield server


@cache
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


def ask(server: ServerProcess, model: str, stream: bool = False, **asked: Any) -> tuple[str, Any]:
    """What the model says, and the answer's headers."""
    body = {"model": model, "messages": [{"role": "user", "content": "Weather?"}], **asked}
    raw = client(server).chat.completions.with_raw_response.create(**body, stream=stream)
    if not stream:
        return raw.parse().choices[0].message.content or "", raw.headers
    chunks = [choice.delta.content or "" for chunk in raw.parse() for choice in chunk.choices]
    return "".join(chunks), raw.headers


@cache
def messages_client(server: ServerProcess) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)


def ask_messages(server: ServerProcess, model: str, **asked: Any) -> tuple[str, Any]:
    raw = messages_client(server).messages.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": "Weather?"}],
        extra_body=asked,
        max_tokens=5000,
    )
    return "".join(getattr(block, "text", "") for block in raw.parse().content), raw.headers


# Claude ------------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize("model", CLAUDE)
@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0.2},
        {"top_p": 0.5, "temperature": 0},
        {"temperature": 1},
        {"seed": 7, "frequency_penalty": 0.5},
        {"reasoning_effort": "low", "max_tokens": 3000},
        {"reasoning_effort": "low", "max_tokens": 500},
        {"reasoning_effort": "low", "temperature": 0.2},
        {"temperature": 0.2, "top_p": 0.9, "max_tokens": 500},
        {"reasoning_effort": "minimal"},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "xhigh"},
        {"max_completion_tokens": 1_000_000},
    ],
    ids=str,
)
def test_what_an_openai_client_sets_works(
    server: ServerProcess, model: str, asked: dict[str, Any], stream: bool
) -> None:
    said, _ = ask(server, model, stream, **asked)
    assert said == "Sunny."


@STREAMED
@pytest.mark.parametrize("model", CLAUDE)
def test_a_schema_is_kept_to(server: ServerProcess, model: str, stream: bool) -> None:
    said, headers = ask(server, model, stream, response_format=SCHEMA)
    if CLAUDE[model].schemas:
        assert said == "Sunny."  # it is the vendor that holds to it
        return
    assert json.loads(said) == {"city": "Bern"}
    assert headers["x-llama-compat-adapted"] == "response_format=tool"


@pytest.mark.parametrize("model", CLAUDE)
def test_a_reply_that_was_begun_is_gone_on_with(
    server: ServerProcess, vendors: StrictModels, model: str
) -> None:
    begun = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "It is"}]
    said, headers = ask(server, model, messages=begun)
    assert said == "Sunny."
    last = vendors.seen["claude"].body["messages"][-1]["role"]
    told = headers.get("x-llama-compat-adapted")
    prefilled = CLAUDE[model].prefilled
    assert (last, told) == (("assistant", None) if prefilled else ("user", "messages.prefill=user"))


def test_what_is_left_out_is_named(server: ServerProcess, vendors: StrictModels) -> None:
    _, headers = ask(server, "claude-opus-5", temperature=0.2, top_p=1, max_tokens=200_000)
    assert headers["x-llama-compat-dropped"] == "temperature"
    assert headers["x-llama-compat-adapted"] == "max_tokens=128000, top_p"
    sent = vendors.seen["claude"].body
    assert sent["max_tokens"] == 128_000
    assert not {"temperature", "top_p"} & sent.keys()


def test_a_model_that_samples_is_sent_the_temperature(
    server: ServerProcess, vendors: StrictModels
) -> None:
    _, headers = ask(server, "claude-haiku-4-5", temperature=0.2)
    assert vendors.seen["claude"].body["temperature"] == 0.2
    assert "x-llama-compat-dropped" not in headers


def test_a_model_without_room_to_think_does_not(
    server: ServerProcess, vendors: StrictModels
) -> None:
    asked = {"reasoning_effort": "high", "max_tokens": 1024, "temperature": 0.2}
    _, headers = ask(server, "claude-haiku-4-5", **asked)
    assert "reasoning_effort" in headers["x-llama-compat-dropped"]
    assert "thinking" not in vendors.seen["claude"].body


def test_where_the_template_wants_it_refused_it_is(server: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(server, "refusing", temperature=0.2)
    assert raised.value.param == "temperature"
    assert "takes no other than its default" in raised.value.message
    assert ask(server, "refusing", temperature=1)[0] == "Sunny."


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5"])
@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [TOOL], "tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
    ],
    ids=["tool_choice", "response_format"],
)
def test_what_a_client_would_miss_is_refused(
    server: ServerProcess, vendors: StrictModels, model: str, asked: dict[str, Any]
) -> None:
    vendors.seen.clear()
    with pytest.raises(openai.BadRequestError):
        ask(server, model, **asked)
    assert not vendors.seen  # it is known before the vendor is asked


def test_a_target_that_can_t_is_passed_over_for_one_that_can(
    server: ServerProcess, vendors: StrictModels
) -> None:
    _, headers = ask(server, "either", temperature=0.2)
    assert headers["x-llama-compat-target"] == "claude/claude-opus-5-5"
    _, headers = ask(server, "either", tools=[TOOL], tool_choice="required")
    assert headers["x-llama-compat-target"] == "claude/claude-opus-5"
    assert headers["x-llama-compat-skipped"] == "claude/claude-opus-5-5 (forced_tools)"
    assert headers["x-llama-compat-attempts"] == "1"


# Relayed -----------------------------------------------------------------------------------------


def test_a_relayed_call_passes_as_it_is(server: ServerProcess) -> None:
    with pytest.raises(anthropic.BadRequestError, match="deprecated for this model"):
        ask_messages(server, "claude-opus-5", temperature=0.2)


def test_unless_the_template_wants_it_adapted(server: ServerProcess, vendors: StrictModels) -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    said, headers = ask_messages(server, "adapted", temperature=0.2, thinking=thinking)
    assert said == "Sunny."
    assert headers["x-llama-compat-dropped"] == "temperature"
    assert headers["x-llama-compat-adapted"] == "output_config=low, thinking=low"
    sent = vendors.seen["claude"].body
    assert sent["thinking"] == {"type": "adaptive"}
    assert sent["output_config"] == {"effort": "low"}


def test_nor_is_there_anything_to_tell_where_nothing_is_done(server: ServerProcess) -> None:
    said, headers = ask_messages(server, "adapted")
    assert said == "Sunny."
    assert not {"x-llama-compat-dropped", "x-llama-compat-adapted"} & headers.keys()


def test_a_relayed_chat_is_adapted_too(server: ServerProcess, vendors: StrictModels) -> None:
    asked = {"temperature": 0.2, "max_tokens": 200_000, "reasoning_effort": "none", "top_p": 1}
    said, headers = ask(server, "adapted-gpt", **asked, presence_penalty=0, user="me")
    assert said == "Sunny."
    assert headers["x-llama-compat-dropped"] == "temperature"
    assert headers["x-llama-compat-adapted"] == (
        "max_tokens=128000, top_p, presence_penalty, reasoning_effort=minimal,"
        " max_tokens=max_completion_tokens"
    )
    sent = vendors.seen["chat"].body
    assert sent["max_completion_tokens"] == 128_000
    assert (sent["reasoning_effort"], sent["user"]) == ("minimal", "me")


# Others, translated from Messages ----------------------------------------------------------------


@pytest.mark.parametrize("model", CHAT)
@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0.2},
        {"system": "Be brief.", "top_p": 0.5},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"thinking": {"type": "disabled"}},
        {"output_config": {"effort": "max"}},
        {"max_tokens": 500_000},
    ],
    ids=str,
)
def test_other_vendors_models_take_what_is_adapted_for_them(
    server: ServerProcess, model: str, asked: dict[str, Any]
) -> None:
    assert ask_messages(server, model, **asked)[0] == "Sunny."


@pytest.mark.parametrize(("model", "role"), [("o3", "developer"), ("deepseek-v4-flash", "system")])
def test_instructions_are_in_the_role_that_a_model_takes(
    server: ServerProcess, vendors: StrictModels, model: str, role: str
) -> None:
    said: Any = [{"role": "developer", "content": "Be brief."}, {"role": "system", "content": "!"}]
    response = client(server).responses.with_raw_response.create(model=model, input=said)
    assert {each["role"] for each in vendors.seen["chat"].body["messages"]} == {role}
    # The Responses API's own words are the older ones already.
    adapted = response.headers.get("x-llama-compat-adapted")
    assert adapted == ("messages.role=developer" if role == "developer" else None)


def test_a_schema_is_a_forced_call_where_a_vendor_has_none(server: ServerProcess) -> None:
    schema = SCHEMA["json_schema"]["schema"]  # type: ignore[index]
    output = {"format": {"type": "json_schema", "schema": schema}}
    said, headers = ask_messages(server, "deepseek-v4-flash", output_config=output)
    assert json.loads(said) == {"city": "Bern"}
    assert "output_config.format=tool" in headers["x-llama-compat-adapted"]


@pytest.mark.parametrize("model", LEVELS)
@pytest.mark.parametrize("effort", ["none", "minimal", "low", "high", "xhigh"])
def test_gemini_thinks_as_much_as_it_can(server: ServerProcess, model: str, effort: str) -> None:
    said, _ = ask(server, model, reasoning_effort=effort, max_tokens=100_000)
    assert said == "Sunny."


@STREAMED
@pytest.mark.parametrize("model", LEVELS)
@pytest.mark.parametrize("form", [SCHEMA, {"type": "json_object"}], ids=["schema", "object"])
def test_gemini_is_held_to_json_beside_tools(
    server: ServerProcess, model: str, form: Any, stream: bool
) -> None:
    said, headers = ask(server, model, stream, response_format=form, tools=[TOOL])
    if LEVELS[model]:
        assert (said, headers.get("x-llama-compat-adapted")) == ("Sunny.", None)
        return
    assert json.loads(said) == {"city": "Bern"}
    assert headers["x-llama-compat-adapted"] == "response_format=tool"


# Tools that a vendor runs itself ------------------------------------------------------------------

LOOK: Any = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}

HOSTED: dict[str, tuple[str, Any, Any, dict[str, Any], str]] = {
    "responses": (
        "/v1/responses",
        {"type": "web_search"},
        {"type": "function", **LOOK},
        {"model": "claude-opus-5", "input": "Hi"},
        "tools[0].web_search",
    ),
    "messages": (
        "/v1/messages",
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "look", "input_schema": {"type": "object"}},
        {"model": "gpt-5", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]},
        "tools.web_search_20250305",
    ),
    "gemini": (
        "/v1beta/models/gpt-5:generateContent",
        {"googleSearch": {}},
        {"functionDeclarations": [LOOK]},
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "tools.googleSearch",
    ),
    "interactions": (
        "/v1beta/interactions",
        {"type": "google_search"},
        {"type": "function", **LOOK},
        {"model": "gpt-5", "input": "Hi", "store": False},
        "tools.google_search",
    ),
}
"""Where, the vendor's tool, one of the client's own, the rest of a request, and the name."""


@pytest.mark.parametrize("api", HOSTED)
def test_agents_go_on_without_a_tool_that_only_their_vendor_runs(
    server: ServerProcess, api: str
) -> None:
    path, hosted, own, rest, name = HOSTED[api]
    reply = wire.request("POST", f"{server.url}{path}", {**rest, "tools": [hosted, own]})
    assert reply.status == 200, reply.body
    assert reply.headers["x-llama-compat-dropped"] == name


@pytest.mark.parametrize("api", HOSTED)
def test_who_asks_for_nothing_but_a_vendors_tool_is_told_of_it(
    server: ServerProcess, api: str
) -> None:
    path, hosted, _, rest, name = HOSTED[api]
    reply = wire.request("POST", f"{server.url}{path}", {**rest, "tools": [hosted]})
    assert reply.status == 400
    assert name in reply.body.decode()


def test_a_tool_of_a_vendor_is_refused_where_nothing_may_be_left_out(server: ServerProcess) -> None:
    path, hosted, own, rest, name = HOSTED["responses"]
    asked = {**rest, "model": "refusing", "tools": [hosted, own]}
    reply = wire.request("POST", f"{server.url}{path}", asked)
    assert (reply.status, reply.error()["param"]) == (400, name)


# Lists of models ---------------------------------------------------------------------------------


def test_the_list_of_models_says_what_clients_use(server: ServerProcess) -> None:
    listed = {each.id: each for each in client(server).models.list()}
    assert listed["gpt-5"].shutdown_date == "2026-12-11"
    assert listed["claude-opus-5"].shutdown_date is None
    assert listed["claude-opus-5"].model_extra == {
        "context_length": 1_000_000,
        "max_output_tokens": 128_000,
        "architecture": {
            "input_modalities": ["text", "image", "file"],
            "output_modalities": ["text"],
        },
    }
    sdk = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
    model = sdk.models.retrieve("claude-opus-5-5")
    assert (model.max_input_tokens, model.max_tokens) == (1_000_000, 128_000)
    assert model.lifecycle == "active"
    ending = sdk.models.retrieve("gpt-5")
    assert ending.lifecycle == "deprecated"
    assert ending.retires_at is not None
    assert ending.retires_at.year == 2026


def test_a_strict_client_takes_it(server: ServerProcess) -> None:
    strict = openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="x", max_retries=0, _strict_response_validation=True
    )
    assert {each.id for each in strict.models.list()} >= CLAUDE.keys()


def test_functions_are_called_in_responses_where_chats_have_none(
    server: ServerProcess, vendors: StrictModels
) -> None:
    body: dict[str, Any] = {
        "model": "calling",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [TOOL],
        "seed": 7,
    }
    chats = client(server).chat.completions.with_raw_response
    raw = chats.create(**body)
    [call] = raw.parse().choices[0].message.tool_calls or ()
    assert call.function.name == "look"
    assert raw.headers["x-llama-compat-dropped"] == "seed"
    said = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
    given = {"role": "tool", "tool_call_id": call.id, "content": "22"}
    body["messages"] += [said, given]
    assert chats.create(**body).parse().choices[0].message.content == "Sunny."
    assert [item.get("type", "message") for item in vendors.seen["responses"].body["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    anthropic_client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
    message = anthropic_client.messages.create(
        model="calling",
        max_tokens=100,
        messages=[{"role": "user", "content": "Weather?"}],
        tools=[{"name": "look", "input_schema": {"type": "object"}}],
    )
    assert message.stop_reason == "tool_use"
    # Told not to think, or offered none, it answers in chats, as it is asked.
    for asked in ({"reasoning_effort": "none", "tools": [TOOL]}, {}):
        vendors.seen.clear()
        assert ask(server, "calling", seed=7, **asked)[0] == "Sunny."
        assert vendors.seen["chat"].body["seed"] == 7


@pytest.mark.parametrize("model", LEVELS)
def test_what_a_tool_shows_is_told_as_the_model_takes_it(
    server: ServerProcess, vendors: StrictModels, model: str
) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    shown: Any = [{"type": "text", "text": "It:"}, {"type": "image", "source": source}]
    calls: Any = [
        {"type": "tool_use", "id": f"toolu_{each}", "name": "look", "input": {}} for each in "ab"
    ]
    results: Any = [
        {"type": "tool_result", "tool_use_id": f"toolu_{each}", "content": shown} for each in "ba"
    ]
    anthropic_client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
    message = anthropic_client.messages.create(
        model=model,
        max_tokens=100,
        messages=[
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
        ],
        tools=[{"name": "look", "input_schema": {"type": "object"}}],
    )
    assert message.content[0].type == "text"
    parts = vendors.seen["gemini"].body["contents"][-1]["parts"]
    assert [part.get("functionResponse", {}).get("id") for part in parts[:2]] == [
        "toolu_a",
        "toolu_b",
    ]
    assert json.dumps(parts).count(PNG) == 2
    assert parts[-1] == {"text": "And?"} or "inlineData" in parts[-1]


ODATA: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"city": {}, "$top": {"type": "integer"}}},
    },
}


@STREAMED
def test_members_of_arguments_have_the_names_that_the_vendor_takes(
    server: ServerProcess, vendors: StrictModels, stream: bool
) -> None:
    choice = {"type": "function", "function": {"name": "look"}}
    sdk = client(server).chat.completions
    asked: Any = {
        "model": "claude-opus-5",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [ODATA],
        "tool_choice": choice,
    }
    if stream:
        with sdk.stream(**asked) as events:
            message = events.get_final_completion().choices[0].message
    else:
        message = sdk.create(**asked).choices[0].message
    [call] = message.tool_calls or ()
    assert json.loads(call.function.arguments) == {"city": "Bern"}
    [tool] = vendors.seen["claude"].body["tools"]
    [city, top] = tool["input_schema"]["properties"]
    assert (city, top.startswith("_top_")) == ("city", True)
