"""The Responses API as the official client sees it: translated, relayed, and kept."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.clients.openresponses import model as suite_model
from tests.clients.scripted_models import ScriptedModels
from tests.integration import wire
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.sdk_responses import check_events, check_response, parse_stream

KEYS = {"first": "sk-first-client", "second": "sk-second-client"}
MODELS = ["echo", "slow", "chat", "responses"]

LOOK: Any = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}
SPACE: Any = {"type": "namespace", "name": "team", "description": "People.", "tools": [LOOK]}


@pytest.fixture(scope="module")
def chat_vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(suite_model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def responses_vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(suite_model, responses=True) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def broken_vendor() -> Iterator[NativeVendor]:
    with NativeVendor() as vendor:
        yield vendor


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory,
    chat_vendor: ScriptedModels,
    responses_vendor: ScriptedModels,
    broken_vendor: NativeVendor,
) -> Iterator[ServerProcess]:
    """A server of two workers that keeps responses."""
    folder = tmp_path_factory.mktemp("responses")
    both = ["chat", "responses"]
    template = write_template(
        folder / "kept.yaml",
        server={
            "api_keys": list(KEYS.values()),
            "responses_store": {"path": str(folder / "responses.sqlite")},
        },
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "slow", "type": "local::echo", "config": {"delay_ms": 200}},
            {
                "id": "chat",
                "type": "remote::passthrough",
                "config": {"base_url": chat_vendor.url, "unsupported": "drop"},
            },
            {
                "id": "responses",
                "type": "remote::passthrough",
                "config": {"base_url": responses_vendor.url, "wires": both},
            },
            {
                "id": "broken",
                "type": "remote::passthrough",
                "config": {"base_url": broken_vendor.url, "wires": both},
            },
        ],
        models=[
            {"id": name, "provider": name, "provider_model": f"own-{name}"}
            for name in [*MODELS, "broken"]
        ],
    )
    with running(template, options=["--workers", "2"]) as server:
        yield server


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    with running("echo") as server:
        yield server


@pytest.fixture(scope="module")
def client(kept: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(kept) as one:
        yield one


def client_of(server: ServerProcess, key: str = "first") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key=KEYS[key], max_retries=0, timeout=60)


def post(server: ServerProcess, body: dict[str, Any], path: str = "/responses") -> wire.Reply:
    headers = {"authorization": f"Bearer {KEYS['first']}"}
    return wire.request("POST", server.base_url + path, body, headers)


# --------------------------------------------------------------------------------------------------
# Translated and relayed alike
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["echo", "chat", "responses"])
def test_text(client: openai.OpenAI, model: str) -> None:
    response = client.responses.create(model=model, input="Say hello in exactly 3 words.")
    expected = "Say hello in exactly 3 words." if model == "echo" else "Hello there, friend!"
    assert (response.output_text, response.status, response.model) == (expected, "completed", model)
    assert response.usage is not None
    assert response.usage.total_tokens > 0


@pytest.mark.parametrize("model", ["echo", "chat", "responses"])
def test_streamed_text(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="Count from 1 to 5.") as stream:
        said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert (
        final.output_text == said == ("Count from 1 to 5." if model == "echo" else "1, 2, 3, 4, 5")
    )
    assert final.model == model


@pytest.mark.parametrize("prefix", ["/v1", "/v1/openai/v1"])
@pytest.mark.parametrize("model", ["echo", "chat"])
def test_every_event_is_as_it_should_be(kept: ServerProcess, model: str, prefix: str) -> None:
    body = {"model": model, "input": "Hello!", "stream": True}
    headers = {"authorization": f"Bearer {KEYS['first']}"}
    reply = wire.request("POST", f"{kept.url}{prefix}/responses", body, headers)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert check_events(parse_stream(reply.body))["model"] == model


@pytest.mark.parametrize("model", ["chat", "responses"])
def test_a_tool_is_called_and_answered(client: openai.OpenAI, model: str) -> None:
    asked: list[Any] = [{"role": "user", "content": "Look!"}]
    with client.responses.stream(model=model, input=asked, tools=[LOOK]) as stream:
        response = stream.get_final_response()
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "San Francisco, CA"})
    asked += [item.model_dump(exclude={"parsed_arguments"}) for item in response.output]
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "Fog."})
    assert client.responses.create(model=model, input=asked, tools=[LOOK]).output_text == "OK."


def test_a_namespace_is_flattened_for_a_chat_vendor(
    client: openai.OpenAI, chat_vendor: ScriptedModels
) -> None:
    response = client.responses.create(model="chat", input="Look!", tools=[SPACE])
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.namespace, call.name) == ("team", "look")
    path, sent = chat_vendor.received[-1]
    assert path == "/v1/chat/completions"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["team__look"]


def test_a_request_is_relayed_as_it_came(
    kept: ServerProcess, responses_vendor: ScriptedModels
) -> None:
    body = {
        "model": "responses",
        "input": "Hi",
        "tools": [{"type": "web_search"}, SPACE],
        "previous_response_id": "resp_of_the_vendor",
        "future": {"x": 1},
        "store": True,
    }
    assert post(kept, body).status == 200
    path, sent = responses_vendor.received[-1]
    assert (path, sent) == ("/v1/responses", {**body, "model": "own-responses"})


def test_a_hosted_tool_is_refused_or_dropped_by_name(kept: ServerProcess) -> None:
    body = {"input": "Hi", "tools": [{"type": "web_search"}]}
    refused = post(kept, {**body, "model": "echo"})
    assert (refused.status, refused.error()["param"]) == (400, "tools[0].web_search")
    dropped = post(kept, {**body, "model": "chat"})
    assert dropped.status == 200
    assert dropped.headers["x-llama-compat-dropped"] == "tools[0].web_search"


@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens", "/responses/compact"])
def test_a_model_that_is_not_there_is_404(kept: ServerProcess, path: str) -> None:
    reply = post(kept, {"model": "nobody", "input": "Hi"}, path)
    assert (reply.status, reply.error()["code"]) == (404, "model_not_found")


def test_tokens_are_counted_where_somebody_can(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="echo", input="one two three")
    assert counted.input_tokens == 3
    with pytest.raises(openai.NotFoundError, match="counting tokens"):
        client.responses.input_tokens.count(model="chat", input="one two three")


def test_a_conversation_is_compacted_and_gone_on_from(
    client: openai.OpenAI, chat_vendor: ScriptedModels
) -> None:
    compacted = client.responses.compact(model="chat", input="We launch on Tuesday.")
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    items: list[Any] = [item.model_dump(exclude_none=True) for item in compacted.output]
    client.responses.create(model="chat", input=[*items, {"role": "user", "content": "When?"}])
    _, sent = chat_vendor.received[-1]
    assert "support is notified" in sent["messages"][1]["content"]


# --------------------------------------------------------------------------------------------------
# What goes wrong behind us
# --------------------------------------------------------------------------------------------------


def events_of(text: str, *, whole: bool) -> list[bytes]:
    response = {"id": "resp_v", "object": "response", "model": "v", "output": [], "status": "x"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_text.delta", "delta": text},
    ]
    if whole:
        events.append({"type": "response.completed", "response": response})
    return [
        b"event: %b\ndata: %b\n\n"
        % (each["type"].encode(), json.dumps({**each, "sequence_number": number}).encode())
        for number, each in enumerate(events)
    ]


@pytest.mark.undocumented
def test_a_stream_that_is_cut_ends_in_an_error(
    kept: ServerProcess, broken_vendor: NativeVendor
) -> None:
    pieces = events_of("Hel", whole=False)
    broken_vendor.will_answer(Answer(pieces, content_type="text/event-stream"))
    reply = post(kept, {"model": "broken", "input": "Hi", "stream": True})
    events = parse_stream(reply.body)
    assert [each["sequence_number"] for each in events] == [0, 1, 2, 3]
    assert [each["type"] for each in events[2:]] == ["error", "response.failed"]
    assert events[2]["error"]["code"] == events[2]["code"] == "upstream_stream_ended"
    assert (events[3]["response"]["id"], events[3]["response"]["model"]) == ("resp_v", "broken")


def test_an_error_before_anything_is_said_has_its_own_status(
    kept: ServerProcess, broken_vendor: NativeVendor
) -> None:
    error = {"type": "error", "code": "rate_limit_exceeded", "message": "Slowly."}
    pieces = [events_of("", whole=False)[0], b"data: " + json.dumps(error).encode() + b"\n\n"]
    broken_vendor.will_answer(Answer(pieces, content_type="text/event-stream"))
    reply = post(kept, {"model": "broken", "input": "Hi", "stream": True})
    assert reply.status != 200
    assert reply.error()["message"] == "Slowly."


async def test_the_vendors_connection_is_closed_when_the_client_leaves(
    kept: ServerProcess, broken_vendor: NativeVendor
) -> None:
    pieces = events_of("Hel", whole=False)
    broken_vendor.will_answer(Answer(pieces, content_type="text/event-stream", hold=True))
    async with openai.AsyncOpenAI(base_url=kept.base_url, api_key=KEYS["first"]) as client:
        stream = await client.responses.create(model="broken", input="Hi", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
    assert await asyncio.to_thread(broken_vendor.hung_up.wait, 20)


# --------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------


def test_a_response_is_kept_gone_on_from_and_forgotten(
    client: openai.OpenAI, chat_vendor: ScriptedModels
) -> None:
    first = client.responses.create(
        model="chat", input="My name is Ada.", instructions="Be a pirate."
    )
    assert first.store is True  # type: ignore[attr-defined]
    assert client.responses.retrieve(first.id).output == first.output
    second = client.responses.create(
        model="chat", input="What is my name?", previous_response_id=first.id
    )
    assert (second.output_text, second.previous_response_id) == ("Your name is Ada.", first.id)
    _, sent = chat_vendor.received[-1]
    said = [(message["role"], message["content"]) for message in sent["messages"]]
    assert said == [
        ("user", "My name is Ada."),
        ("assistant", "Your name is Ada."),
        ("user", "What is my name?"),
    ]
    listed = client.responses.input_items.list(second.id)
    assert [item.content[0].text for item in listed.data] == ["What is my name?"]  # type: ignore[union-attr]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chat", input="Hi", previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"
    third = client.responses.with_raw_response.create(
        model="chat", input="And now?", previous_response_id=second.id
    )
    _, sent = chat_vendor.received[-1]
    assert [message["content"] for message in sent["messages"]] == [
        "What is my name?",
        "Your name is Ada.",
        "And now?",
    ]
    assert third.headers["x-llama-compat-dropped"] == f"previous_response_id={first.id}"


def test_a_streamed_response_is_kept_before_its_end_is_told(client: openai.OpenAI) -> None:
    for _ in range(5):
        with client.responses.stream(model="echo", input="Hi") as stream:
            final = stream.get_final_response()
        assert client.responses.retrieve(final.id).output_text == "Hi"


def test_what_is_not_to_be_kept_is_not(client: openai.OpenAI) -> None:
    response = client.responses.create(model="echo", input="Hi", store=False)
    assert response.store is False  # type: ignore[attr-defined]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_response_is_its_owners_alone(kept: ServerProcess, client: openai.OpenAI) -> None:
    response = client.responses.create(model="echo", input="Hi")
    with client_of(kept, "second") as other:
        for ask in (
            lambda: other.responses.retrieve(response.id),
            lambda: other.responses.delete(response.id),
            lambda: other.responses.cancel(response.id),
            lambda: other.responses.input_items.list(response.id),
        ):
            with pytest.raises(openai.NotFoundError):
                ask()
        with pytest.raises(openai.BadRequestError):
            other.responses.create(model="echo", input="Hi", previous_response_id=response.id)
    assert client.responses.retrieve(response.id).id == response.id


def test_an_item_can_be_referred_to(client: openai.OpenAI, chat_vendor: ScriptedModels) -> None:
    first = client.responses.create(model="echo", input="Remember cobalt.")
    reference: Any = {"type": "item_reference", "id": first.output[0].id}
    client.responses.create(model="chat", input=[reference, {"role": "user", "content": "What?"}])
    _, sent = chat_vendor.received[-1]
    assert [message["content"] for message in sent["messages"]] == ["Remember cobalt.", "What?"]


def test_a_kept_conversation_goes_on_with_a_vendor_that_knows_nothing_of_it(
    client: openai.OpenAI, responses_vendor: ScriptedModels
) -> None:
    first = client.responses.create(model="echo", input="My name is Ada.")
    client.responses.create(model="responses", input="Who?", previous_response_id=first.id)
    _, sent = responses_vendor.received[-1]
    assert "previous_response_id" not in sent
    assert [item["role"] for item in sent["input"]] == ["user", "assistant", "user"]


def test_a_response_in_the_background(client: openai.OpenAI) -> None:
    queued = client.responses.create(model="echo", input="Hi", background=True)
    assert (queued.status, queued.background) == ("queued", True)
    deadline = time.monotonic() + 20
    while (response := client.responses.retrieve(queued.id)).status != "completed":
        assert time.monotonic() < deadline, response.status
    assert response.output_text == "Hi"
    assert response.created_at == queued.created_at
    check_response(response.model_dump(mode="json", by_alias=True, exclude_unset=True))


def test_a_response_in_the_background_is_cancelled_wherever_it_runs(client: openai.OpenAI) -> None:
    text = " ".join(["word"] * 500)
    queued = [client.responses.create(model="slow", input=text, background=True) for _ in range(4)]
    for each in queued:
        assert client.responses.cancel(each.id).status == "cancelled"
        assert client.responses.retrieve(each.id).status == "cancelled"


def test_a_conversation_that_fits_need_not_be_cut(client: openai.OpenAI) -> None:
    raw = client.responses.with_raw_response.create(model="echo", input="Hi", truncation="auto")
    assert raw.headers["x-llama-compat-dropped"] == "truncation"
    response = raw.parse()
    assert (response.status, response.truncation) == ("completed", "disabled")


def test_what_a_background_response_cannot_do_is_refused_by_name(kept: ServerProcess) -> None:
    body = {"model": "echo", "input": "Hi", "background": True}
    for more, param in [
        ({"stream": True}, "background"),
        ({"store": False}, "background"),
        ({"temperature": 9}, "temperature"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ]:
        reply = post(kept, {**body, **more})
        assert (reply.status, reply.error()["param"]) == (400, param)


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("order=up", "order"), ("after=x", "after")]
)
def test_lists_of_input_items_check_their_query(
    kept: ServerProcess, client: openai.OpenAI, query: str, param: str
) -> None:
    response = client.responses.create(model="echo", input="Hi")
    url = f"{kept.base_url}/responses/{response.id}/input_items?{query}"
    reply = wire.request("GET", url, headers={"authorization": f"Bearer {KEYS['first']}"})
    assert (reply.status, reply.error()["param"]) == (400, param)


def test_input_items_come_in_pages(client: openai.OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(5)]
    response = client.responses.create(model="echo", input=items)
    listed = client.responses.input_items.list(response.id, limit=2, order="asc")
    texts = [item.content[0].text for item in listed]  # type: ignore[union-attr]
    assert texts == ["0", "1", "2", "3", "4"]


# --------------------------------------------------------------------------------------------------
# Without a store
# --------------------------------------------------------------------------------------------------


def test_without_a_store_nothing_is_kept(forgetful: ServerProcess) -> None:
    url = f"{forgetful.base_url}/responses"
    whole = wire.request("POST", url, {"model": "echo", "input": "Hi", "store": True})
    assert whole.json()["store"] is False
    for member in ({"previous_response_id": "resp_1"}, {"background": True}):
        refused = wire.request("POST", url, {"model": "echo", "input": "Hi", **member})
        assert refused.status == 400
        assert "responses_store" in refused.error()["message"]
    one = f"{url}/{whole.json()['id']}"
    for method, path in [("GET", one), ("DELETE", one), ("POST", f"{one}/cancel")]:
        missing = wire.request(method, path)
        assert missing.status == 404
        assert "responses_store" in missing.error()["message"]


def test_another_method_is_405(forgetful: ServerProcess) -> None:
    assert wire.request("GET", f"{forgetful.base_url}/responses").status == 405
