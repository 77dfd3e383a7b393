"""The Responses API over a WebSocket, as the official client sees it and as raw messages."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.clients.openresponses import model as suite_model
from tests.clients.scripted_models import ScriptedModels
from tests.integration import wire
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.upstream_behaviours import PIECES, TEXT
from tests.sdk_responses import check_events, check_response

KEY = "sk-everybody-else"
LIMITED = "sk-limited-client"

SCRIPTED = ["one-at-a-time", "holds", "cut-between-events", "plain"]

WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def chat_vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(suite_model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def responses_vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(suite_model, responses=True) as vendor:
        yield vendor


def template(path: Path, *vendors: Any, **server: Any) -> Path:
    """A template with a model of each kind; `vendors` are the upstream, and those of the two."""
    upstream, chat, responses = (*vendors, None, None, None)[:3]
    providers: list[dict[str, Any]] = [{"id": "echo", "type": "local::echo"}]
    models = [{"id": "echo", "provider": "echo", "price": {"input": 1, "output": 10}}]
    for name, vendor, wires in [
        ("up", upstream, ["chat"]),
        ("chat", chat, ["chat"]),
        ("responses", responses, ["chat", "responses"]),
    ]:
        if vendor is not None:
            config = {"base_url": vendor.url, "wires": wires, "unsupported": "drop"}
            providers.append({"id": name, "type": "remote::passthrough", "config": config})
    if upstream is not None:
        models += [{"id": each, "provider": "up", "provider_model": each} for each in SCRIPTED]
    models += [{"id": each["id"], "provider": each["id"]} for each in providers[1:]]
    return write_template(
        path,
        server={"storage": f"sqlite:{path.parent / 'storage.sqlite'}", "records": {}, **server},
        keys=[
            {"name": "everybody", "key": KEY},
            {"name": "limited", "key": LIMITED, "limits": {"requests_per_minute": 2}},
        ],
        providers=providers,
        models=models,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("websocket")


@pytest.fixture(scope="module")
def server(
    folder: Path,
    upstream: ScriptedUpstream,
    chat_vendor: ScriptedModels,
    responses_vendor: ScriptedModels,
) -> Iterator[ServerProcess]:
    path = template(folder / "server.yaml", upstream, chat_vendor, responses_vendor)
    with running(path) as process:
        yield process
        assert "Traceback" not in process.log


@contextmanager
def raw(
    server: ServerProcess, key: str = KEY, *, prefix: str = "/v1", **headers: str
) -> Iterator[ClientConnection]:
    """A connection of raw messages."""
    url = f"ws://127.0.0.1:{server.port}{prefix}/responses"
    more = {"authorization": f"Bearer {key}"} if key else {}
    more |= {name.replace("_", "-"): value for name, value in headers.items()}
    with connect(url, additional_headers=more, compression=None, max_size=None) as connection:
        yield connection


def create(connection: ClientConnection, **members: Any) -> None:
    event = {"type": "response.create", "model": "echo", "input": "Hi", **members}
    connection.send(json.dumps(event))


def read(connection: ClientConnection) -> dict[str, Any]:
    event = json.loads(connection.recv(WAIT_SECONDS))
    assert isinstance(event, dict)
    return event


def is_last(event: dict[str, Any]) -> bool:
    ends = ("response.completed", "response.incomplete", "response.failed", "error")
    return event["type"] in ends


def answer(connection: ClientConnection) -> list[dict[str, Any]]:
    """The events of the next response, or of the next error."""
    events = [read(connection)]
    while not is_last(events[-1]):
        events.append(read(connection))
    return events


def ask(connection: ClientConnection, **members: Any) -> dict[str, Any]:
    """The response to one message."""
    create(connection, **members)
    last = answer(connection)[-1]
    assert last["type"] == "response.completed", last
    response: dict[str, Any] = last["response"]
    return response


def refused(connection: ClientConnection, **members: Any) -> dict[str, Any]:
    """The error that one message is answered with."""
    create(connection, **members)
    (event,) = answer(connection)
    assert event["type"] == "error"
    return event


def text_of(response: dict[str, Any]) -> str:
    message = response["output"][-1]
    return "".join(part["text"] for part in message["content"])


# --------------------------------------------------------------------------------------------------
# The official client
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/v1", "/v1/openai/v1"])
def test_the_official_client_has_a_conversation(server: ServerProcess, prefix: str) -> None:
    client = openai.OpenAI(base_url=server.url + prefix, api_key=KEY)
    with client, client.responses.connect() as connection:
        connection.response.create(model="chat", input="My name is Alice.", store=False)
        said, first = "", None
        for event in connection:
            if event.type == "response.output_text.delta":
                said += event.delta
            if event.type == "response.completed":
                first = event.response
                break
        assert first is not None
        assert said == first.output_text
        assert first.store is False
        connection.response.create(
            model="chat",
            input="What is my name?",
            previous_response_id=first.id,
            stream_id="main",
            store=False,
        )
        for event in connection:
            assert event.stream_id == "main"  # type: ignore[union-attr]
            if event.type == "response.completed":
                break
        assert event.response.output_text == "Your name is Alice."
        assert event.response.previous_response_id == first.id


async def test_the_official_client_without_threads(server: ServerProcess) -> None:
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY)
    async with client, client.responses.connect() as connection:
        await connection.response.create(model="echo", input="one two")
        async for event in connection:
            if event.type == "response.completed":
                break
        assert event.response.output_text == "one two"
        await connection.response.create(model="nothing", input="one two")
        async for event in connection:
            assert event.type == "error"
            assert (event.status, event.error.code) == (404, "model_not_found")
            break


@pytest.mark.parametrize("model", ["echo", "chat"])
def test_events_are_those_of_a_stream(server: ServerProcess, model: str) -> None:
    with raw(server) as connection:
        create(connection, model=model, input="Count from 1 to 5.")
        events = answer(connection)
    headers = events[0].pop("headers")
    assert headers["x-request-id"].endswith("-1")
    assert check_events(events)["model"] == model
    body = {"model": model, "input": "Count from 1 to 5.", "stream": True}
    reply = wire.request(
        "POST", f"{server.url}/v1/responses", body, {"authorization": f"Bearer {KEY}"}
    )
    over_http = [line for line in reply.body.decode().splitlines() if line.startswith("event: ")]
    assert [f"event: {event['type']}" for event in events] == over_http


def test_what_was_dropped_is_named(server: ServerProcess) -> None:
    with raw(server) as connection:
        create(connection, model="chat", tools=[{"type": "web_search"}])
        first = answer(connection)[0]
    assert first["headers"]["x-llama-compat-dropped"] == "tools[0].web_search"


# --------------------------------------------------------------------------------------------------
# Conversations
# --------------------------------------------------------------------------------------------------


def test_a_conversation_forks(server: ServerProcess, chat_vendor: ScriptedModels) -> None:
    with raw(server) as connection:
        root = ask(connection, model="chat", input="My name is Alice.")
        for stream_id in ("left", "right"):
            response = ask(
                connection,
                model="chat",
                input=f"Go {stream_id}.",
                previous_response_id=root["id"],
                stream_id=stream_id,
            )
            assert text_of(response) == "Your name is Alice."
            _, body = chat_vendor.received[-1]
            assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
            assert body["messages"][-1]["content"] == f"Go {stream_id}."


def test_a_response_that_generates_nothing_is_gone_on_from(
    server: ServerProcess, chat_vendor: ScriptedModels
) -> None:
    asked = len(chat_vendor.received)
    with raw(server) as connection:
        warm = ask(connection, model="chat", input="My name is Alice.", generate=False)
        check_response(warm)
        assert warm["output"] == []
        assert len(chat_vendor.received) == asked
        response = ask(connection, model="chat", input=[], previous_response_id=warm["id"])
        assert text_of(response) == "Your name is Alice."


def test_nobody_else_goes_on_from_it(server: ServerProcess) -> None:
    with raw(server) as connection, raw(server) as other:
        response = ask(connection)
        error = refused(other, previous_response_id=response["id"])
        assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
        assert ask(connection, previous_response_id=response["id"])


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"model": "nobody"}])
def test_after_a_failure_a_conversation_begins_anew(
    server: ServerProcess, wrong: dict[str, Any]
) -> None:
    with raw(server) as connection:
        response = ask(connection)
        assert refused(connection, previous_response_id=response["id"], **wrong)
        error = refused(connection, previous_response_id=response["id"])
        assert error["error"]["code"] == "previous_response_not_found"


def test_a_vendor_with_the_api_gets_the_whole_conversation(
    server: ServerProcess, responses_vendor: ScriptedModels
) -> None:
    with raw(server) as connection:
        first = ask(connection, model="responses", input="My name is Alice.", store=False)
        warm = ask(
            connection,
            model="responses",
            input="I like tea.",
            previous_response_id=first["id"],
            generate=False,
        )
        second = ask(
            connection,
            model="responses",
            input="What is my name?",
            previous_response_id=warm["id"],
            stream_id="a",
        )
    assert text_of(second) == "Your name is Alice."
    _, body = responses_vendor.received[-1]
    assert body.keys().isdisjoint({"type", "stream_id", "generate", "previous_response_id"})
    assert body["stream"] is True
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "user", "user"]


def test_what_is_stored_outlives_the_connection(tmp_path: Path) -> None:
    path = template(tmp_path / "stored.yaml", responses_store={})
    with running(path) as server:
        with raw(server) as connection:
            first = ask(connection, input="one", store=False)
            second = ask(connection, input="two", previous_response_id=first["id"])
            warm = ask(connection, input="three", previous_response_id=second["id"], generate=False)
            assert (first["store"], second["store"], warm["store"]) == (False, True, True)
        with raw(server) as connection:
            response = ask(connection, input="four", previous_response_id=warm["id"])
            assert response["usage"]["input_tokens"] == 6  # one one two two three four
            error = refused(connection, previous_response_id=first["id"])
            assert error["error"]["code"] == "previous_response_not_found"


# --------------------------------------------------------------------------------------------------
# Lanes
# --------------------------------------------------------------------------------------------------


def test_lanes_are_side_by_side(server: ServerProcess, upstream: ScriptedUpstream) -> None:
    with raw(server, x_request_id="lanes") as connection:
        create(connection, model="one-at-a-time", stream_id="slow")
        held = upstream.request("lanes-1")
        begun = []
        while "delta" not in (event := read(connection)):
            begun.append(event)
        assert event["stream_id"] == "slow"
        for _ in range(3):
            create(connection, input="quick", stream_id="quick")
            events = answer(connection)
            assert {each["stream_id"] for each in events} == {"quick"}
        held.release()
        last = answer(connection)[-1]
        assert (last["stream_id"], text_of(last["response"])) == ("slow", TEXT)


@pytest.mark.parametrize("lane", [{}, {"stream_id": "a"}])
def test_in_a_lane_one_comes_after_the_other(
    server: ServerProcess, upstream: ScriptedUpstream, lane: dict[str, str]
) -> None:
    name = f"queue-{len(lane)}"
    with raw(server, x_request_id=name) as connection:
        create(connection, model="one-at-a-time", **lane)
        for text in ("second", "third"):
            create(connection, input=text, **lane)
        upstream.request(f"{name}-1").release()
        texts = [text_of(answer(connection)[-1]["response"]) for _ in range(3)]
    assert texts == [TEXT, "second", "third"]


# --------------------------------------------------------------------------------------------------
# Each message is a request
# --------------------------------------------------------------------------------------------------


def test_each_message_has_a_line_and_a_record(server: ServerProcess, folder: Path) -> None:
    with raw(server, x_request_id="counted") as connection:
        ask(connection, input="one two")
        refused(connection, model="nobody")
        connection.send("not JSON")
        answer(connection)
    line = server.wait_for_log("counted-1 ")
    assert "POST /v1/responses model=echo status=200" in line
    assert "model=nobody status=404" in server.wait_for_log("counted-2 ")
    assert "status=400" in server.wait_for_log("counted-3 ")
    found: list[Any] = []
    while len(found) < 3:
        with sqlite3.connect(folder / "storage.sqlite") as database:
            found = database.execute(
                "SELECT request_id, status, input_tokens FROM records"
                " WHERE request_id LIKE 'counted-%' ORDER BY request_id"
            ).fetchall()
        database.close()
    assert [(each[0], each[1]) for each in found] == [
        ("counted-1", 200),
        ("counted-2", 404),
        ("counted-3", 400),
    ]
    assert found[0][2] == 2


def test_limits_hold_for_each_message(server: ServerProcess) -> None:
    with raw(server, LIMITED) as connection:
        ask(connection)
        ask(connection, generate=False)
        error = refused(connection)
        assert (error["status"], error["error"]["code"]) == (429, "rate_limit_exceeded")
        assert float(error["error"]["headers"]["retry-after"]) > 0
        assert error["headers"] == error["error"]["headers"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", "invalid_json"),
        ("[]", "invalid_json"),
        ("{", "invalid_json"),
        ("{}", "unknown_event_type"),
        ('{"type": "response.steer", "previous_response_id": "r"}', "unknown_event_type"),
        ('{"type": "response.create"}', "missing_required_parameter"),
        ('{"type": "response.create", "model": "echo", "background": true}', None),
        ('{"type": "response.create", "model": "echo", "stream_id": ' + "[" * 500, "invalid_json"),
    ],
)
def test_a_message_that_is_wrong_harms_no_other(
    server: ServerProcess, message: str, code: str | None
) -> None:
    with raw(server) as connection:
        connection.send(message)
        (event,) = answer(connection)
        assert (event["type"], event["status"]) == ("error", 400)
        assert event["error"]["code"] == (code or "unsupported_parameter")
        assert event["error"]["type"] == "invalid_request_error"
        assert text_of(ask(connection)) == "Hi"


def test_a_response_that_breaks_off_has_one_last_event(
    server: ServerProcess, upstream: ScriptedUpstream
) -> None:
    with raw(server, x_request_id="cut") as connection:
        create(connection, model="cut-between-events")
        upstream.request("cut-1").release()
        events = answer(connection)
        assert events[0]["type"] == "response.created"
        assert events[-1]["type"] == "response.failed"
        assert text_of(ask(connection)) == "Hi"


def test_who_leaves_frees_what_answers(server: ServerProcess, upstream: ScriptedUpstream) -> None:
    with raw(server, x_request_id="leaves") as connection:
        for stream_id in ("a", "b"):
            create(connection, model="one-at-a-time", stream_id=stream_id)
        create(connection, model="one-at-a-time", stream_id="a")
        begun = [upstream.request(f"leaves-{number}") for number in (1, 2)]
    for request in begun:
        request.wait_until_disconnected()
    for number in (1, 2):
        assert "client disconnected" in server.wait_for_log(f"leaves-{number} ")
    assert not upstream.requests("leaves-3")


# --------------------------------------------------------------------------------------------------
# Who gets one
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "sk-nobody-knows"])
def test_a_key_is_wanted_at_the_handshake(server: ServerProcess, key: str) -> None:
    with pytest.raises(InvalidStatus) as refusal, raw(server, key):
        pass
    response = refusal.value.response
    assert response.status_code == 401
    assert json.loads(response.body or b"")["error"]["code"] == "invalid_api_key"


def test_web_pages_of_others_are_refused(server: ServerProcess) -> None:
    with pytest.raises(InvalidStatus) as refusal, raw(server, origin="https://evil.example"):
        pass
    assert refusal.value.response.status_code == 403
    with raw(server, origin=f"http://127.0.0.1:{server.port}") as connection:
        assert ask(connection)


def test_web_pages_that_the_template_names_are_let_in(tmp_path: Path) -> None:
    path = template(tmp_path / "cors.yaml", cors={"origins": ["https://app.example.com"]})
    with running(path) as server:
        with raw(server, origin="https://app.example.com") as connection:
            assert ask(connection)
        with pytest.raises(InvalidStatus), raw(server, origin="https://evil.example"):
            pass


def test_there_need_be_none(tmp_path: Path) -> None:
    path = template(tmp_path / "none.yaml", websockets=None)
    with running(path) as server:
        with pytest.raises(InvalidStatus) as refusal, raw(server):
            pass
        response = refusal.value.response
        assert response.status_code == 426
        assert json.loads(response.body or b"")["error"]["code"] == "websocket_not_supported"


def test_other_paths_have_none(server: ServerProcess) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "authorization": f"Bearer {KEY}",
    }
    for path in ("/chat/completions", "/responses/compact"):
        reply = wire.request("GET", server.base_url + path, headers=headers)
        assert reply.status == 426
        assert "no WebSocket" in reply.error()["message"]
    assert wire.request("GET", f"{server.base_url}/models", headers=headers).status == 200


# --------------------------------------------------------------------------------------------------
# Its end
# --------------------------------------------------------------------------------------------------


def closed(connection: ClientConnection) -> tuple[int, str]:
    """How the server closes it; nothing else comes before that."""
    with pytest.raises(ConnectionClosed) as ending:
        connection.recv(WAIT_SECONDS)
    assert ending.value.rcvd is not None
    return ending.value.rcvd.code, ending.value.rcvd.reason


def test_it_is_as_old_as_it_may_be(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = template(tmp_path / "short.yaml", upstream, websockets={"max_seconds": 2})
    with running(path) as server, raw(server, x_request_id="old") as connection:
        create(connection, model="one-at-a-time")
        running_still = upstream.request("old-1")
        while (event := read(connection))["type"] != "error":
            pass
        assert event["status"] == 400
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert closed(connection)[0] == 1000
        running_still.wait_until_disconnected()


def test_where_nothing_is_asked_it_is_closed(tmp_path: Path) -> None:
    path = template(tmp_path / "idle.yaml", websockets={"idle_seconds": 1, "ping_seconds": 0.5})
    with running(path) as server, raw(server) as connection:
        ask(connection)
        assert closed(connection)[0] == 1000


def test_a_server_that_ends_answers_what_was_asked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path = template(tmp_path / "ends.yaml", upstream)
    with running(path) as server, raw(server) as idle, raw(server, x_request_id="ends") as busy:
        ask(idle)
        create(busy, model="one-at-a-time")
        held = upstream.request("ends-1")
        server.send_signal(signal.SIGTERM)
        assert closed(idle)[0] == 1001
        held.release()
        assert text_of(answer(busy)[-1]["response"]) == TEXT
        assert closed(busy)[0] == 1001
        assert server.wait() == 0


def test_a_server_that_waits_no_longer_says_so(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = template(tmp_path / "hurry.yaml", upstream, shutdown_grace_seconds=1)
    with running(path) as server, raw(server, x_request_id="hurry") as connection:
        create(connection, model="one-at-a-time")
        upstream.request("hurry-1")
        while "delta" not in read(connection):
            pass
        server.send_signal(signal.SIGTERM)
        last = answer(connection)[-1]
        assert last["type"] == "response.failed"
        assert "shutting down" in last["response"]["error"]["message"]
        assert closed(connection)[0] == 1001
        assert server.wait() == 0


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_after_a_reload_the_next_message_gets_the_new_template(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path = template(tmp_path / "reload.yaml", upstream)
    with running(path) as server, raw(server, x_request_id="reload") as connection:
        response = ask(connection)
        create(connection, model="one-at-a-time", stream_id="slow")
        held = upstream.request("reload-2")
        path.write_text(path.read_text().replace("id: plain", "id: renamed"))
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("is reloaded")
        create(connection, model="renamed", previous_response_id=response["id"], stream_id="a")
        events = [event for event in answer(connection) if event["stream_id"] == "a"]
        assert text_of(events[-1]["response"]) == TEXT
        held.release()
        while not is_last(event := read(connection)):
            pass
        assert text_of(event["response"]) == TEXT
        path.write_text(path.read_text().replace(KEY, "sk-another-key-now"))
        server.send_signal(signal.SIGHUP)
        while server.log.count("is reloaded") < 2:
            pass
        error = refused(connection)
        assert (error["status"], error["error"]["code"]) == (401, "invalid_api_key")
        assert closed(connection)[0] == 1008


def test_pieces_come_as_they_are_said(server: ServerProcess, upstream: ScriptedUpstream) -> None:
    with raw(server, x_request_id="pieces") as connection:
        create(connection, model="one-at-a-time")
        while "delta" not in (event := read(connection)):
            pass
        assert event["delta"] == PIECES[0]
        upstream.request("pieces-1").release()
        answer(connection)
