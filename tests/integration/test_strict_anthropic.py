"""Anthropic's API as it is since 2026-10-21, by every client's SDK, at a vendor that is strict."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import anthropic
import openai
import pytest

from tests.integration import wire
from tests.integration.native_suite import Reply
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.strict_anthropic import (
    BINDING,
    BOUND,
    DECLINED,
    FALLBACK,
    KEY,
    StrictAnthropic,
)
from tests.integration.test_second_turns import PARAMETERS, TURNS

OLD, NEW = "2023-06-01", "2026-10-21"
QUESTION = "Weather in Bern?"
MODELS = [*sorted(BOUND), "claude-opus-5", "claude-haiku-4-5"]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
DROPPED = "x-llama-compat-dropped"


@pytest.fixture(scope="module")
def vendor() -> Iterator[StrictAnthropic]:
    with StrictAnthropic() as vendor:
        yield vendor


@pytest.fixture(scope="module")
def chatting() -> Iterator[NativeVendor]:
    with NativeVendor() as server:
        yield server


@pytest.fixture(scope="module")
def server(
    vendor: StrictAnthropic, chatting: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = {"base_url": vendor.base_url(), "api_key": KEY}
    configs = {
        "old": config,
        "new": {**config, "version": NEW},
        "as-x-api-key": {**config, "version": NEW, "key_header": "x-api-key"},
    }
    template = write_template(
        tmp_path_factory.mktemp("strict") / "strict.yaml",
        server={"log_usage": True},
        providers=[
            *(
                {"id": name, "type": "remote::anthropic-messages", "config": each}
                for name, each in configs.items()
            ),
            {
                "id": "openai",
                "type": "remote::openai",
                "config": {"base_url": f"{chatting.url}/v1", "api_key": "sk-x"},
            },
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            *(
                {"id": f"{name}/{model}", "provider": name, "provider_model": model}
                for name in configs
                for model in MODELS
            ),
            {"id": "gpt", "provider": "openai", "provider_model": "gpt-6-sol"},
            {"id": "echo", "provider": "echo"},
        ],
    )
    with running(template) as server:
        yield server


@pytest.fixture(scope="module")
def keyed(
    vendor: StrictAnthropic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = {"base_url": vendor.base_url(), "api_key": KEY}
    template = write_template(
        tmp_path_factory.mktemp("keyed") / "keyed.yaml",
        server={"api_keys": ["key-of-this-server"]},
        providers=[
            {"id": "claude", "type": "remote::anthropic-messages", "config": config},
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            {"id": "claude-opus-5", "provider": "claude"},
            {"id": "echo", "provider": "echo"},
        ],
    )
    with running(template) as server:
        yield server


def messages(server: ServerProcess, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0, **options)


@cache
def chats(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


# Keys and versions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "header"),
    [("old", "x-api-key"), ("new", "authorization"), ("as-x-api-key", "x-api-key")],
)
@pytest.mark.parametrize("client", ["messages", "chat"])
def test_the_key_is_sent_as_the_versions_clients_do(
    server: ServerProcess, vendor: StrictAnthropic, provider: str, header: str, client: str
) -> None:
    model = f"{provider}/claude-opus-5"
    assert TURNS[client](server.url, model, model, False) == "Sunny."
    sent = {"x-api-key", "authorization"} & vendor.heard.headers.keys()
    assert sent == {header}
    assert vendor.heard.headers[header].removeprefix("Bearer ") == KEY
    # The SDK names its own version; who has none to name is asked for in the template's.
    expected = NEW if client == "messages" or provider != "old" else OLD
    assert vendor.heard.headers["anthropic-version"] == expected


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    "key", [{"x-api-key": "key-of-this-server"}, {"authorization": "Bearer key-of-this-server"}]
)
@pytest.mark.parametrize("model", ["claude-opus-5", "echo"])
def test_a_client_gives_its_key_in_either_header(
    keyed: ServerProcess, version: str, key: dict[str, str], model: str
) -> None:
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {**key, "anthropic-version": version}
    said = wire.request("POST", f"{keyed.url}/v1/messages", body, headers)
    assert (said.status, said.json()["type"]) == (200, "message")
    counted = wire.request(
        "POST",
        f"{keyed.url}/v1/messages/count_tokens",
        {"model": model, "messages": body["messages"]},
        headers,
    )
    assert counted.json()["input_tokens"] > 0
    listed = wire.request("GET", f"{keyed.url}/v1/models", None, headers)
    assert listed.json()["data"][0]["type"] == "model"
    refused = wire.request("POST", f"{keyed.url}/v1/messages", body, {"x-api-key": "wrong"})
    assert refused.status == 401


@pytest.mark.parametrize(
    "asked", [{"temperature": 1}, {"temperature": 0.2, "top_p": 0.5}, {"top_p": 1}], ids=str
)
@STREAMED
def test_an_openai_client_may_say_how_to_sample_whatever_the_version(
    server: ServerProcess, vendor: StrictAnthropic, asked: dict[str, Any], stream: bool
) -> None:
    raw = chats(server).chat.completions.with_raw_response.create(
        model="new/claude-haiku-4-5",
        messages=[{"role": "user", "content": QUESTION}],
        stream=stream,
        **asked,
    )
    assert raw.status_code == 200
    assert not asked.keys() & vendor.heard.body.keys()
    named = raw.headers.get(DROPPED, "") + raw.headers.get("x-llama-compat-adapted", "")
    assert all(name in named for name in asked)


def test_the_older_version_still_samples(server: ServerProcess, vendor: StrictAnthropic) -> None:
    chats(server).chat.completions.create(
        model="old/claude-haiku-4-5",
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0.2,
    )
    assert vendor.heard.body["temperature"] == 0.2


CITED = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}


@pytest.mark.parametrize(
    ("version", "members", "complaint"),
    [
        (NEW, {"temperature": 1}, "temperature"),
        (OLD, {"temperature": 0.5}, "temperature"),
        (OLD, {"brand_new": 1}, "brand_new"),
        (OLD, {"fallbacks": "default"}, "fallbacks"),  # without its beta
        (
            NEW,
            {
                "messages": [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [DOCUMENT]},
                ]
            },
            "document",
        ),
        (
            NEW,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "x", "citations": [CITED]}],
                    }
                ]
            },
            "citations",
        ),
    ],
)
def test_what_the_vendor_refuses_is_refused_in_its_words(
    server: ServerProcess, version: str, members: dict[str, Any], complaint: str
) -> None:
    body = {"model": "old/claude-opus-5", "max_tokens": 9, "messages": [], **members}
    body["messages"] = body["messages"] or [{"role": "user", "content": "Hi"}]
    headers = {"x-api-key": "x", "anthropic-version": version}
    refused = wire.request("POST", f"{server.url}/v1/messages", body, headers)
    assert refused.status == 400
    assert complaint in refused.json()["error"]["message"]
    assert refused.json()["request_id"] == "req_1"


@STREAMED
def test_a_top_level_cache_control_goes_on_and_the_usage_comes_back(
    server: ServerProcess, vendor: StrictAnthropic, stream: bool
) -> None:
    options: Any = {
        "model": "old/claude-opus-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": QUESTION}],
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    }
    with messages(server) as client:
        if stream:
            with client.messages.stream(**options) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(**options)
    assert vendor.heard.body["cache_control"] == options["cache_control"]
    assert (said.usage.cache_creation_input_tokens, said.usage.cache_read_input_tokens) == (5, 10)


def test_a_cache_control_means_nothing_elsewhere(server: ServerProcess) -> None:
    with messages(server) as client:
        said = client.messages.create(
            model="echo",
            max_tokens=100,
            messages=[{"role": "user", "content": "Hi"}],
            cache_control={"type": "ephemeral"},
        )
    assert said.content[0].type == "text"


# Thoughts -----------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize("client", TURNS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("provider", ["old", "new"])
def test_a_tool_is_called_and_answered(
    server: ServerProcess,
    vendor: StrictAnthropic,
    provider: str,
    model: str,
    client: str,
    stream: bool,
) -> None:
    name = f"{provider}/{model}"
    assert TURNS[client](server.url, name, name, stream) == "Sunny."
    # What a client loses, as chat and Ollama's API have no place for it, is put back.
    thinks = model != "claude-haiku-4-5"
    assert vendor.heard.kept == (1 if thinks else 0)
    assert vendor.heard.dropped == []


FUNCTION = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}


class Responses:
    """A conversation in OpenAI's Responses API, whose client gives all of it back each time."""

    def __init__(self, server: ServerProcess, model: str, *, stream: bool = False) -> None:
        self.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
        self.model = model
        self.stream = stream
        self.items: list[Any] = []
        self.headers: Any = {}

    def ask(self, *items: Any, **options: Any) -> str:
        self.items += items
        raw = self.client.responses.with_raw_response.create(
            model=self.model,
            input=self.items,
            store=False,
            include=["reasoning.encrypted_content"],
            stream=self.stream,
            **{"tools": [FUNCTION], **options},
        )
        self.headers = raw.headers
        answered: Any = raw.parse()
        if self.stream:
            *_, last = answered
            answered = last.response
        for item in answered.output:
            self.items.append(item.model_dump(exclude_none=True))
            if item.type == "function_call":
                output = {"type": "function_call_output", "call_id": item.call_id}
                self.items.append({**output, "output": "22 degrees"})
        return str(answered.output_text)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@STREAMED
def test_a_talk_goes_on_without_the_tools_that_were_called(
    server: ServerProcess, vendor: StrictAnthropic, stream: bool
) -> None:
    talk = Responses(server, "old/claude-haiku-4-5", stream=stream)
    talk.ask(user(QUESTION))
    talk.ask()
    assert talk.ask(user("Thank you."), tools=[]) == "Sunny."
    assert vendor.heard.body["tool_choice"] == {"type": "none"}


@STREAMED
@pytest.mark.parametrize("model", sorted(BOUND))
def test_thoughts_are_taken_back_over_many_turns(
    server: ServerProcess, vendor: StrictAnthropic, model: str, stream: bool
) -> None:
    talk = Responses(server, f"old/{model}", stream=stream)
    talk.ask(user(QUESTION), instructions="Be brief.")
    assert talk.ask(instructions="Be brief.") == "Sunny."
    talk.ask(user("And in Basel?"), instructions="Be brief.")
    assert talk.ask(instructions="Be brief.") == "Sunny."
    assert (vendor.heard.kept, vendor.heard.dropped) == (3, [])
    assert DROPPED not in talk.headers


@STREAMED
@pytest.mark.parametrize("model", sorted(BOUND))
@pytest.mark.parametrize("before", [True, False], ids=["before-the-user", "after-the-user"])
def test_an_instruction_that_comes_later_leaves_them_valid(
    server: ServerProcess, vendor: StrictAnthropic, model: str, stream: bool, before: bool
) -> None:
    talk = Responses(server, f"old/{model}", stream=stream)
    talk.ask(user(QUESTION), instructions="Be brief.")
    talk.ask(instructions="Be brief.")
    said = [{"role": "developer", "content": "It is past midnight."}, user("And in Basel?")]
    talk.ask(*(said if before else reversed(said)), instructions="Be brief.")
    assert talk.ask(instructions="Be brief.") == "Sunny."
    assert (vendor.heard.kept, vendor.heard.dropped) == (3, [])
    assert [turn["role"] for turn in vendor.heard.body["messages"]].count("system") == 1


def test_models_that_know_no_later_instructions_have_them_in_the_system_prompt(
    server: ServerProcess, vendor: StrictAnthropic
) -> None:
    chats(server).chat.completions.create(
        model="old/claude-haiku-4-5",
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "system", "content": "It is past midnight."},
            {"role": "user", "content": QUESTION},
        ],
    )
    assert vendor.heard.body["system"][0]["text"] == "It is past midnight."


CHANGES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": "Be verbose."},
    "tools": {"tools": [FUNCTION, {**FUNCTION, "name": "look"}]},
    "no tools": {"tools": []},
}


@STREAMED
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", sorted(BOUND))
def test_what_a_change_makes_invalid_is_left_out_and_named(
    server: ServerProcess, vendor: StrictAnthropic, model: str, change: str, stream: bool
) -> None:
    talk = Responses(server, f"new/{model}", stream=stream)
    talk.ask(user(QUESTION), instructions="Be brief.")
    talk.ask(instructions="Be brief.")
    talk.ask(user("And in Basel?"), **{"instructions": "Be brief.", **CHANGES[change]})
    assert vendor.heard.dropped == ["prefix_binding_mismatch"] * 2
    assert talk.headers[DROPPED] == "messages.thinking"
    assert vendor.heard.headers["anthropic-beta"] == BINDING


@pytest.mark.parametrize("change", [{}, *CHANGES.values()], ids=["none", *CHANGES])
def test_their_tokens_are_counted_whatever_has_changed(
    server: ServerProcess, change: dict[str, Any]
) -> None:
    talk = Responses(server, "new/claude-opus-5-5")
    talk.ask(user(QUESTION), instructions="Be brief.")
    talk.ask(instructions="Be brief.")
    body = {
        "model": talk.model,
        "input": talk.items,
        "tools": [FUNCTION],
        "instructions": "Be brief.",
    }
    counted = wire.request("POST", f"{server.url}/v1/responses/input_tokens", {**body, **change})
    assert counted.json()["input_tokens"] == 11


def test_a_reply_that_is_to_be_json_is_a_forced_call_after_thoughts(
    server: ServerProcess, vendor: StrictAnthropic
) -> None:
    talk = Responses(server, "old/claude-haiku-5-5")
    talk.ask(user(QUESTION), tools=[])
    talk.ask(user("As JSON."), tools=[], text={"format": {"type": "json_object"}})
    assert vendor.heard.body["tools"][0]["name"] == "reply"
    assert vendor.heard.dropped == ["prefix_binding_mismatch"]
    assert talk.headers[DROPPED] == "messages.thinking"


@STREAMED
def test_where_no_thought_is_wanted_none_is_given_back(
    server: ServerProcess, vendor: StrictAnthropic, stream: bool
) -> None:
    talk = Responses(server, "old/claude-sonnet-5-5", stream=stream)
    talk.ask(user(QUESTION))
    talk.ask(reasoning={"effort": "none"})
    assert vendor.heard.body["thinking"] == {"type": "between_tools"}
    assert (vendor.heard.kept, vendor.heard.dropped) == (0, [])
    assert talk.headers[DROPPED] == "messages.thinking"


@STREAMED
@pytest.mark.parametrize("model", sorted(BOUND))
def test_relayed_they_are_the_clients_to_keep(
    server: ServerProcess, vendor: StrictAnthropic, model: str, stream: bool
) -> None:
    history: list[Any] = [user(QUESTION)]
    tool: Any = {"name": "get_weather", "input_schema": PARAMETERS}

    def ask(client: Any, **options: Any) -> Any:
        asked = {
            "model": f"old/{model}",
            "max_tokens": 100,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": history,
            "tools": [tool],
            **options,
        }
        if stream:
            with client.messages.stream(**asked) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(**asked)
        history.append({"role": "assistant", "content": said.content})
        return said

    with messages(server) as client:
        for question in (None, "And in Basel?"):
            if question is not None:
                history.append(user(question))
            (call,) = (block for block in ask(client).content if block.type == "tool_use")
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "22 degrees"}
            history.append({"role": "user", "content": [result]})
            ask(client, cache_control={"type": "ephemeral"})
        assert (vendor.heard.kept, vendor.heard.dropped) == (3, [])
        history.append(user("Thanks."))
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            ask(client, system="Be verbose.")
        thinking = {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        }
        told = client.beta.messages.create(
            model=f"old/{model}",
            max_tokens=100,
            system="Be verbose.",
            messages=history,
            tools=[tool],
            thinking=thinking,  # type: ignore[arg-type]
            betas=[BINDING],
        )
        assert told.input_transformations is not None
        assert len(told.input_transformations) == 4
        history[1]["content"][0].thinking = "Something else."
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
            ask(client)


@STREAMED
@pytest.mark.parametrize("model", sorted(BOUND))
@pytest.mark.parametrize("off", [False, True], ids=["thinking", "not-thinking"])
def test_relayed_what_is_put_back_refuses_no_request(
    server: ServerProcess, vendor: StrictAnthropic, model: str, off: bool, stream: bool
) -> None:
    """A client that loses thoughts is free to change its instructions, at Anthropic itself too."""
    if off and model == "claude-opus-5-5":
        pytest.skip("it always thinks")
    asked: dict[str, Any] = {
        "model": f"old/{model}",
        "max_tokens": 100,
        "messages": [user(f"{QUESTION} {model} {off} {stream}")],
        "tools": [{"name": "get_weather", "input_schema": PARAMETERS}],
        "extra_headers": {"anthropic-beta": "of-the-client"},
    }
    with messages(server) as client:

        def ask(**options: Any) -> Any:
            if not stream:
                return client.messages.create(**asked, **options)
            with client.messages.stream(**asked, **options) as events:
                return events.get_final_message()

        said = ask(system="Be brief.").content
        (call,) = (block for block in said if block.type == "tool_use")
        lost = [block for block in said if block.type != "thinking"]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "22 degrees"}
        asked["messages"] += [
            {"role": "assistant", "content": lost},
            {"role": "user", "content": [result]},
        ]
        ask(system="Be brief.")
        assert (vendor.heard.kept, vendor.heard.dropped) == (1, [])
        assert vendor.heard.headers["anthropic-beta"] == f"of-the-client,{BINDING}"
        thinking = {"sonnet": "between_tools"}.get(model.split("-")[1], "disabled")
        options: Any = {"thinking": {"type": thinking}} if off else {}
        ask(system="Be verbose.", **options)
        told = [] if off else ["prefix_binding_mismatch"]
        assert (vendor.heard.kept, vendor.heard.dropped) == (0, told)


# Fallbacks ----------------------------------------------------------------------------------------


@STREAMED
def test_all_that_fallbacks_cost_is_counted(
    server: ServerProcess, vendor: StrictAnthropic, stream: bool
) -> None:
    name = f"fallbacks-{stream}"
    history: list[Any] = [user(DECLINED)]
    options: Any = {
        "model": "old/claude-opus-5",
        "max_tokens": 100,
        "fallbacks": "default",
        "betas": [FALLBACK],
        "extra_headers": {"x-request-id": name},
    }
    with messages(server) as client:
        if stream:
            with client.beta.messages.stream(messages=history, **options) as events:
                said = events.get_final_message()
        else:
            said = client.beta.messages.create(messages=history, **options)
        assert said.usage.iterations is not None
        assert [each.type for each in said.usage.iterations] == ["message", "fallback_message"]
        assert said.usage.output_tokens == 25
        # 7 + 3 + 2 and 4 of who declined, 40 + 5 + 10 and 25 of who answered
        assert " tokens=67+29" in server.wait_for_log(name)
        # What came is taken back, and means nothing elsewhere.
        history += [{"role": "assistant", "content": said.content}, user("Go on.")]
        options["extra_headers"] = {}
        client.beta.messages.create(messages=history, **options)
        elsewhere = client.beta.messages.with_raw_response.create(
            messages=history, **{**options, "model": "echo"}
        )
        assert elsewhere.headers[DROPPED] == "fallbacks"
        with pytest.raises(anthropic.BadRequestError, match="fallbacks"):
            client.beta.messages.create(
                messages=history,
                **{**options, "model": "echo", "fallbacks": [{"model": "claude-opus-4-7"}]},
            )


# Tiers --------------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize(
    ("asked", "sent", "answered"),
    [
        ("auto", "auto", "priority"),
        ("priority", "auto", "priority"),
        ("default", "standard_only", "default"),
        ("flex", None, "priority"),
        (None, None, "priority"),
    ],
)
def test_openais_tiers_at_anthropic(
    server: ServerProcess,
    vendor: StrictAnthropic,
    asked: Any,
    sent: str | None,
    answered: str,
    stream: bool,
) -> None:
    wanted: dict[str, Any] = {} if asked is None else {"service_tier": asked}
    options: Any = {"model": "new/claude-opus-5", "messages": [user(QUESTION)], **wanted}
    if stream:
        chunks = list(chats(server).chat.completions.create(stream=True, **options))
        assert chunks[-1].service_tier == answered
    else:
        assert chats(server).chat.completions.create(**options).service_tier == answered
    assert vendor.heard.body.get("service_tier") == sent
    talk = Responses(server, "new/claude-opus-5", stream=stream)
    raw = talk.client.responses.create(
        model=talk.model, input=[user(QUESTION)], stream=stream, **wanted
    )
    last = list(raw)[-1].response if stream else raw
    assert last.service_tier == answered
    assert vendor.heard.body.get("service_tier") == sent


@STREAMED
@pytest.mark.parametrize(
    ("asked", "sent", "told", "answered"),
    [
        ("standard_only", "default", "default", "standard"),
        ("auto", "auto", "priority", "priority"),
        (None, None, None, None),
    ],
)
def test_anthropics_tiers_at_openai(
    server: ServerProcess,
    chatting: NativeVendor,
    asked: str | None,
    sent: str | None,
    told: str | None,
    answered: str | None,
    stream: bool,
) -> None:
    vendor, reply = OpenAIVendor(chatting, server.base_url), Reply(text="Sunny.")
    member = b"" if told is None else b'"service_tier": "%b", ' % told.encode()
    whole, streamed = (
        said.replace(b'{"id": "chatcmpl-1"', b'{%b"id": "chatcmpl-1"' % member)
        for said in (vendor.whole(reply), vendor.stream(reply))
    )
    chatting.will_answer(
        Answer([whole]), streamed=Answer([streamed], content_type="text/event-stream")
    )
    options: Any = {"model": "gpt", "max_tokens": 100, "messages": [user(QUESTION)]}
    if asked is not None:
        options["service_tier"] = asked
    with messages(server) as client:
        if stream:
            with client.messages.stream(**options) as events:
                usages = [each.usage for each in events if each.type == "message_delta"]
            usage = usages[-1].to_dict()
        else:
            usage = client.messages.create(**options).usage.to_dict()
    assert chatting.last.body.get("service_tier") == sent
    assert usage.get("service_tier") == answered
