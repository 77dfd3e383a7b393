"""The official client's `interactions`: translated, relayed to a vendor as strict as Google, and
kept."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import openai
import pytest
from google import genai
from google.genai import _interactions as errors
from google.genai import types

from tests import sdk_interactions as sdk
from tests.integration import chat_vendor, wire
from tests.integration.interactions_vendor import ANSWER, SEAL, THOUGHTS, StrictInteractions
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template

KEYS = {"first": "sk-first-client", "second": "sk-second-client"}

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
TOOL: Any = {
    "type": "function",
    "function": {name: WEATHER[name] for name in ("name", "description", "parameters")},
}


@pytest.fixture(scope="module")
def google() -> Iterator[StrictInteractions]:
    with StrictInteractions() as one:
        yield one


@pytest.fixture(scope="module")
def vendor() -> Iterator[NativeVendor]:
    with NativeVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(
    google: StrictInteractions, vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of two workers that keeps interactions."""
    folder = tmp_path_factory.mktemp("interactions")
    native = "remote::gemini-native"
    base = {"base_url": google.url, "api_key": "AIza-test"}
    template = write_template(
        folder / "kept.yaml",
        server={
            "api_keys": list(KEYS.values()),
            "storage": f"sqlite:{folder / 'kept.sqlite'}",
            "responses_store": {},
        },
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "dropping", "type": "local::echo", "config": {"unsupported": "drop"}},
            {"id": "slow", "type": "local::echo", "config": {"delay_ms": 200}},
            {"id": "bridged", "type": "remote::passthrough", "config": {"base_url": vendor.url}},
            {"id": "google", "type": native, "config": {**base, "apis": ["interactions"]}},
            {"id": "told", "type": native, "config": {"base_url": vendor.url, "api_key": "x"}},
        ],
        models=[
            {"id": "echo", "provider": "echo"},
            {"id": "dropping", "provider": "dropping"},
            {"id": "slow", "provider": "slow"},
            {"id": "bridged", "provider": "bridged", "provider_model": "own"},
            {"id": "google", "provider": "google", "provider_model": "gemini-3-pro"},
            {"id": "told", "provider": "told", "provider_model": "gemini-3-pro"},
        ],
    )
    with running(template, options=["--workers", "2"]) as process:
        yield process


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    with running("echo") as process:
        yield process


@cache
def client_of(server: ServerProcess, key: str = "first", version: str = "v1beta") -> genai.Client:
    options = types.HttpOptions(
        base_url=server.url,
        api_version=version,
        timeout=60_000,
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    return genai.Client(api_key=KEYS[key], http_options=options)


@pytest.fixture(scope="module", params=["v1", "v1beta"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> genai.Client:
    return client_of(server, version=request.param)


def ask(client: genai.Client, model: str = "echo", input: Any = "Hello", **members: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return client.interactions.create(model=model, input=input, **members)


def post(server: ServerProcess, body: dict[str, Any]) -> wire.Reply:
    headers = {"x-goog-api-key": KEYS["first"]}
    return wire.request("POST", f"{server.url}/v1beta/interactions", body, headers)


def told(events: Any) -> tuple[str, Any]:
    """What a stream says, and its last event."""
    said, last = "", None
    for event in events:
        if event.event_type == "step.delta" and event.delta.type == "text":
            said += event.delta.text
        last = event
    return said, last


# Translated ---------------------------------------------------------------------------------------


def test_says_what_the_model_says(client: genai.Client) -> None:
    interaction = ask(client, input="Say it again.")
    assert (interaction.output_text, interaction.status) == ("Say it again.", "completed")
    assert interaction.model == "echo"
    assert interaction.usage.total_tokens > 0
    said, last = told(ask(client, input="Say it again.", stream=True))
    assert (said, last.event_type) == ("Say it again.", "interaction.completed")
    assert last.interaction.usage.total_tokens == interaction.usage.total_tokens


def test_every_event_is_one_that_the_sdk_knows(server: ServerProcess) -> None:
    reply = post(server, {"model": "echo", "input": "Hello there", "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = reply.body.split(b"\n\n")
    assert (done, rest) == (b"event: done\ndata: [DONE]", b"")
    for event in events:
        name, data = event.split(b"\n")
        read = sdk.check_event(data.removeprefix(b"data: "))
        assert name == f"event: {read.event_type}".encode()


def test_says_what_the_system_and_tools_are(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, "It is 20 °C.", thoughts="Look outside.")
    interaction = ask(
        client,
        "bridged",
        [
            {"type": "user_input", "content": [sdk.text("Weather?")]},
            sdk.output(sdk.text("Where?")),
            {"type": "user_input", "content": [sdk.text("In Bern.")]},
        ],
        system_instruction="Be brief.",
        tools=[WEATHER],
        generation_config={
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["get_weather"]}},
            "thinking_level": "low",
            "max_output_tokens": 50,
        },
    )
    thought, output = interaction.steps
    assert (thought.type, thought.summary[0].text) == ("thought", "Look outside.")
    assert (output.type, interaction.output_text) == ("model_output", "It is 20 °C.")
    asked = vendor.last.body
    assert [message["role"] for message in asked["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert asked["tools"][0]["function"]["parameters"] == WEATHER["parameters"]
    assert asked["reasoning_effort"] == "low"


def test_an_image_is_drawn_only_where_it_can_be_seen(server: ServerProcess) -> None:
    image = {"type": "image", "data": "ZG90", "mime_type": "image/png"}
    refused = post(server, {"model": "echo", "input": [image]})
    assert refused.status == 400
    assert refused.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"model": "none"}, 404, "model_not_found", "none"),
        ({}, 400, "invalid_request", "model"),
        ({"agent": "echo"}, 400, "parameter_unknown", "agent"),
        ({"model": "echo", "novelty": 1}, 400, "parameter_unknown", "novelty"),
        (
            {"model": "echo", "tools": [{"type": "google_search"}]},
            400,
            "parameter_unknown",
            "google_search",
        ),
        ({"model": "echo", "input": [{"type": "audio"}]}, 400, "invalid_request", "input[0]"),
        ({"model": "echo", "stream": "yes"}, 400, "invalid_request", "stream"),
    ],
)
def test_errors_are_googles(
    server: ServerProcess, body: dict[str, Any], status: int, code: str, says: str
) -> None:
    reply = post(server, {"input": "Hi", **body})
    assert reply.status == status
    error = reply.json()["error"]
    assert error.keys() == {"code", "message"}
    assert error["code"] == code
    assert says in error["message"]


def test_what_google_alone_has_is_dropped_and_named_where_the_template_says_so(
    server: ServerProcess,
) -> None:
    call = {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["x"]}}
    asked = {
        "input": [{"type": "user_input", "content": "Hi"}, call],
        "tools": [{"type": "google_search"}],
        "generation_config": {"speech_config": {}, "thinking_level": "low"},
        "response_modalities": ["audio"],
        "novelty": 1,
    }
    reply = post(server, {"model": "dropping", **asked})
    assert reply.status == 200
    assert reply.json()["steps"] == [sdk.output(sdk.text("Hi"))]
    assert set(reply.headers["x-llama-compat-dropped"].split(", ")) == {
        "input[1].google_search_call",
        "tools.google_search",
        "generation_config.speech_config",
        "generation_config.thinking_level",
        "response_modalities",
        "novelty",
    }
    # Who asks for an agent is never answered by a model.
    refused = post(server, {"agent": "dropping", "input": "Hi"})
    assert (refused.status, refused.json()["error"]["code"]) == (400, "parameter_unknown")


def test_the_sdk_raises_what_it_would_of_google(server: ServerProcess) -> None:
    client = client_of(server)
    with pytest.raises(errors.NotFoundError, match="model_not_found"):
        ask(client, "none")
    with pytest.raises(errors.BadRequestError, match="parameter_unknown"):
        ask(client, extra_body={"novelty": 1})
    stranger = genai.Client(
        api_key="wrong",
        http_options=types.HttpOptions(
            base_url=server.url, retry_options=types.HttpRetryOptions(attempts=1)
        ),
    )
    with pytest.raises(errors.AuthenticationError, match="authentication"):
        ask(stranger)


def test_a_vendor_that_breaks_off_is_told_of(vendor: NativeVendor, client: genai.Client) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "He"}, "finish_reason": None}]}
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "own"}
    piece = b"data: " + json.dumps({**frame, **chunk}).encode() + b"\n\n"
    vendor.will_answer(Answer([piece], content_type="text/event-stream", break_off=True))
    said, last = told(ask(client, "bridged", stream=True))
    assert said == "He"
    assert last.event_type == "error"
    assert last.error.code == "bad_gateway"


# Kept ---------------------------------------------------------------------------------------------


def test_a_conversation_goes_on(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, "Bern.", thoughts="Hm.")
    first = ask(client, "bridged", "Where?")
    assert first.id.startswith("int_")
    chat_vendor.will_say(vendor, "Sunny.")
    said, last = told(
        ask(
            client,
            "bridged",
            [{"type": "user_input", "content": [sdk.text("And the weather?")]}],
            previous_interaction_id=first.id,
            stream=True,
        )
    )
    assert said == "Sunny."
    messages = [(each["role"], each["content"]) for each in vendor.last.body["messages"]]
    assert messages == [
        ("user", "Where?"),
        ("assistant", "Bern."),
        ("user", "And the weather?"),
    ]
    kept = client.interactions.get(last.interaction.id)
    assert kept.previous_interaction_id == first.id
    assert [step.type for step in kept.steps or ()] == ["user_input", "model_output"]
    assert kept.output_text == "Sunny."
    chat_vendor.will_say(vendor, "Yes.")
    ask(client, "bridged", "Sure?", previous_interaction_id=kept.id)
    assert len(vendor.last.body["messages"]) == 5


def test_a_tools_result_goes_on_from_the_call(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, "", calls=[("get_weather", {"city": "Bern"})])
    first = ask(client, "bridged", "Weather?", tools=[WEATHER])
    assert first.status == "requires_action"
    (call,) = [step for step in first.steps if step.type == "function_call"]
    assert call.arguments == {"city": "Bern"}
    chat_vendor.will_say(vendor, "Sunny.")
    result = {"type": "function_result", "call_id": call.id, "name": call.name, "result": "sunny"}
    second = ask(client, "bridged", [result], tools=[WEATHER], previous_interaction_id=first.id)
    assert second.output_text == "Sunny."
    _, made, answered = vendor.last.body["messages"]
    assert made["tool_calls"][0]["id"] == answered["tool_call_id"] == call.id
    assert answered["content"] == "sunny"


def test_what_is_kept_is_its_owners_until_it_is_deleted(server: ServerProcess) -> None:
    client, other = client_of(server), client_of(server, "second")
    interaction = ask(client)
    with pytest.raises(errors.NotFoundError, match="not_found"):
        other.interactions.get(interaction.id)
    with pytest.raises(errors.NotFoundError):
        other.interactions.delete(interaction.id)
    with pytest.raises(errors.BadRequestError, match="not among the stored"):
        ask(other, previous_interaction_id=interaction.id)
    assert client.interactions.get(interaction.id).output_text == "Hello"
    client.interactions.delete(interaction.id)
    with pytest.raises(errors.NotFoundError):
        client.interactions.get(interaction.id)
    with pytest.raises(errors.BadRequestError, match="not among the stored"):
        ask(client, previous_interaction_id=interaction.id)


def test_what_is_not_to_be_kept_is_not(server: ServerProcess) -> None:
    client = client_of(server)
    interaction = ask(client, store=False)
    with pytest.raises(errors.NotFoundError):
        client.interactions.get(interaction.id)


@pytest.mark.parametrize("previous", ["", "int_none", "resp_none", "v1_none"])
def test_what_was_never_kept_is_no_conversation(server: ServerProcess, previous: str) -> None:
    reply = post(server, {"model": "echo", "input": "Hi", "previous_interaction_id": previous})
    assert reply.status == 400
    assert "previous_interaction_id" not in reply.json()
    assert "not among the stored" in reply.json()["error"]["message"]


def test_neither_api_is_told_of_the_others(server: ServerProcess) -> None:
    client = client_of(server)
    with openai.OpenAI(
        base_url=server.base_url, api_key=KEYS["first"], max_retries=0, timeout=60
    ) as responses:
        response = responses.responses.create(model="echo", input="Hi")
        interaction = ask(client)
        with pytest.raises(errors.NotFoundError):
            client.interactions.get(response.id)
        with pytest.raises(errors.BadRequestError):
            ask(client, previous_interaction_id=response.id)
        with pytest.raises(openai.NotFoundError):
            responses.responses.retrieve(interaction.id)
        with pytest.raises(openai.BadRequestError):
            responses.responses.create(
                model="echo", input="Hi", previous_response_id=interaction.id
            )


def test_what_runs_in_the_background_is_asked_for_until_it_is_done(client: genai.Client) -> None:
    interaction = ask(client, "slow", "One two three", background=True)
    assert interaction.status == "in_progress"
    deadline = time.monotonic() + 60
    while interaction.status == "in_progress":
        assert time.monotonic() < deadline
        interaction = client.interactions.get(interaction.id)
    assert (interaction.status, interaction.output_text) == ("completed", "One two three")
    assert interaction.usage.total_tokens > 0
    assert client.interactions.cancel(interaction.id).status == "completed"


def test_what_runs_in_the_background_can_be_cancelled(client: genai.Client) -> None:
    interaction = ask(client, "slow", "word " * 500, background=True)
    assert client.interactions.cancel(interaction.id).status == "cancelled"
    assert client.interactions.get(interaction.id).status == "cancelled"
    with pytest.raises(errors.BadRequestError, match="store"):
        ask(client, background=True, store=False)
    with pytest.raises(errors.BadRequestError, match="background"):
        ask(client, background=True, stream=True)


def test_a_server_that_keeps_nothing_says_so(forgetful: ServerProcess) -> None:
    client = client_of(forgetful)
    interaction = ask(client, store=True)
    assert interaction.output_text == "Hello"
    for member in ({"previous_interaction_id": interaction.id}, {"background": True}):
        with pytest.raises(errors.BadRequestError, match="keeps no interactions"):
            ask(client, **member)
    with pytest.raises(errors.NotFoundError, match="keeps no interactions"):
        client.interactions.get(interaction.id)


# A vendor as strict as Google ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_relayed_conversation_is_the_vendors_to_keep(
    google: StrictInteractions, client: genai.Client, stream: bool
) -> None:
    first = ask(client, "google", "Weather?", tools=[WEATHER], stream=stream)
    if stream:
        *_, completed = first
        assert completed.event_type == "interaction.completed"
        first = completed.interaction
    assert (first.id[:3], first.status) == ("v1_", "requires_action")
    assert google.asked[-1]["model"] == "gemini-3-pro"
    assert google.revisions[-1] == "2026-05-20"
    result = {"type": "function_result", "call_id": "call_1", "name": "f", "result": "sunny"}
    second = ask(client, "google", [result], previous_interaction_id=first.id)
    assert second.output_text == ANSWER
    with pytest.raises(errors.NotFoundError, match="What a vendor keeps"):
        client.interactions.get(second.id)


def test_a_relayed_conversation_of_the_clients_own_keeps_its_seals(
    google: StrictInteractions, client: genai.Client
) -> None:
    asked: list[Any] = [{"type": "user_input", "content": [sdk.text("Weather?")]}]
    first = ask(client, "google", asked, tools=[WEATHER], store=False)
    steps = [step.model_dump(exclude_none=True) for step in first.steps]
    result = {"type": "function_result", "call_id": "call_1", "name": "f", "result": "sunny"}
    second = ask(client, "google", [*asked, *steps, result], tools=[WEATHER], store=False)
    assert second.output_text == ANSWER
    steps[0]["signature"] = "Y2hhbmdlZA=="
    with pytest.raises(errors.BadRequestError, match="signature of a thought is not valid"):
        ask(client, "google", [*asked, *steps, result], tools=[WEATHER], store=False)


def test_a_relayed_call_keeps_the_vendors_words(client: genai.Client) -> None:
    with pytest.raises(errors.BadRequestError, match=r"Unknown parameter: '\.novelty'"):
        ask(client, "google", extra_body={"novelty": 1})
    with pytest.raises(errors.NotFoundError, match="Interaction 'v1_none' not found"):
        ask(client, "google", previous_interaction_id="v1_none")


def test_what_was_kept_here_goes_on_at_the_vendor(
    google: StrictInteractions, vendor: NativeVendor, server: ServerProcess
) -> None:
    client = client_of(server)
    chat_vendor.will_say(vendor, "", thoughts="Hm.", calls=[("get_weather", {"city": "Bern"})])
    first = ask(client, "bridged", "Weather?", tools=[WEATHER])
    (call,) = [step for step in first.steps if step.type == "function_call"]
    result = {"type": "function_result", "call_id": call.id, "name": call.name, "result": "sunny"}
    thought = {"type": "thought", "signature": "bGxhbWFfY29tcGF0AGFudGhyb3BpYwAAeA=="}
    second = ask(
        client,
        "google",
        [thought, result],
        tools=[WEATHER],
        previous_interaction_id=first.id,
        store=False,
    )
    assert second.output_text == ANSWER
    kinds = [step["type"] for step in google.asked[-1]["input"]]
    assert kinds == ["user_input", "function_call", "function_result"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_openais_clients_talk_to_it_in_two_turns(
    google: StrictInteractions, server: ServerProcess, stream: bool
) -> None:
    with openai.OpenAI(
        base_url=server.base_url, api_key=KEYS["first"], max_retries=0, timeout=60
    ) as client:
        messages: list[Any] = [{"role": "user", "content": "Weather?"}]
        if stream:
            with client.chat.completions.stream(
                model="google", messages=messages, tools=[TOOL]
            ) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = (
                client.chat.completions.create(model="google", messages=messages, tools=[TOOL])
                .choices[0]
                .message
            )
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Bern"}
        given = message.model_dump(exclude_none=True)
        for each in given["tool_calls"]:
            each.pop("index", None)
            each["function"].pop("parsed_arguments", None)
        given.pop("parsed", None)
        answer: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        second = client.chat.completions.create(
            model="google", messages=[*messages, given, answer], tools=[TOOL]
        )
        assert second.choices[0].message.content == ANSWER
        thought, made = google.asked[-1]["input"][1:3]
        assert (thought["type"], thought["signature"]) == ("thought", SEAL)
        assert made["type"] == "function_call"
        assert google.asked[-1]["store"] is False
        assert THOUGHTS in (given.get("reasoning_content") or "")


def test_the_same_call_of_another_model_takes_no_signature(
    google: StrictInteractions, vendor: NativeVendor, tmp_path: Path
) -> None:
    """One process has answered the same with another model, and is asked to go on with a turn that
    another process knows: as two workers may be."""
    gemini = {"base_url": google.url, "api_key": "AIza-test", "apis": ["interactions"]}
    template = write_template(
        tmp_path / "one.yaml",
        providers=[
            {"id": "bridged", "type": "remote::passthrough", "config": {"base_url": vendor.url}},
            {"id": "google", "type": "remote::gemini-native", "config": gemini},
        ],
        models=[
            {"id": "bridged", "provider": "bridged", "provider_model": "own"},
            {"id": "google", "provider": "google", "provider_model": "gemini-3-pro"},
        ],
    )

    def ask(server: ServerProcess, model: str, messages: list[Any]) -> Any:
        with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            told = client.chat.completions.create(model=model, messages=messages, tools=[TOOL])
        return told.choices[0].message

    with running(template) as one, running(template) as other:
        messages: list[Any] = [{"role": "user", "content": "Weather?"}]
        chat_vendor.will_say(vendor, "", thoughts="Hm.", calls=[("get_weather", {"city": "Bern"})])
        assert ask(one, "bridged", messages).tool_calls
        said = ask(other, "google", messages)
        answer = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "sunny"}
        ask(one, "google", [*messages, said.model_dump(exclude_none=True), answer])
    thought = google.asked[-1]["input"][1]
    assert (thought["type"], thought["signature"]) == ("thought", SEAL)


def test_a_relayed_stream_keeps_its_bytes(vendor: NativeVendor, server: ServerProcess) -> None:
    events: list[dict[str, Any]] = sdk.stream_events(
        sdk.interaction([sdk.thought("Hm."), sdk.output(sdk.text("Hi")), {"type": "novel", "x": 1}])
    )
    events[3]["novelty"] = {"of": "Google's"}
    stream = sdk.stream_bytes(events)
    vendor.will_answer(
        Answer(
            [stream[at : at + 7] for at in range(0, len(stream), 7)],
            content_type="text/event-stream",
        )
    )
    reply = post(server, {"model": "told", "input": "Hi", "stream": True, "novelty": 1})
    assert reply.body == stream
    assert vendor.last.body == {
        "model": "gemini-3-pro",
        "input": "Hi",
        "stream": True,
        "novelty": 1,
    }


def test_a_relayed_stream_that_breaks_off_is_told_of(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    events = sdk.stream_events(sdk.interaction([sdk.output(sdk.text("Hello there"))]))
    cut = sdk.stream_bytes(events[:-1])
    vendor.will_answer(Answer([cut], content_type="text/event-stream"))
    reply = post(server, {"model": "told", "input": "Hi", "stream": True})
    error, done, _ = reply.body.split(b"\n\n")[-3:]
    assert error.startswith(b"event: error\n")
    assert done == b"event: done\ndata: [DONE]"


def test_a_whole_interaction_is_a_stream_too(vendor: NativeVendor, server: ServerProcess) -> None:
    whole = sdk.interaction([sdk.output(sdk.text("Hi"))])
    vendor.will_answer(Answer([sdk.as_json(whole)]))
    reply = post(server, {"model": "told", "input": "Hi", "stream": True})
    names = [line for line in reply.body.split(b"\n") if line.startswith(b"event: ")]
    assert names == [
        b"event: interaction.created",
        b"event: step.start",
        b"event: step.stop",
        b"event: interaction.completed",
        b"event: done",
    ]
