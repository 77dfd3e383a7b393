"""Records of requests: all of them, whatever becomes of them, and after whatever end."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import wire
from tests.integration.relay import MESSAGES, UPSTREAM_KEY
from tests.integration.scripted_upstream import BEHAVIOURS, ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template

pytestmark = pytest.mark.ours

KEY = "a-key-that-nobody-else-has"

WAIT_SECONDS = 20


class Recorded:
    """A gateway that records, and the file that it records to."""

    def __init__(self, process: ServerProcess, path: Path) -> None:
        self.process = process
        self.path = path

    def open(
        self, model: str, request_id: str, *, path: str = "/v1/chat/completions", **members: Any
    ) -> Any:
        """Ask for something; a reply whose body the test reads."""
        asked = {} if "input" in members else {"messages": MESSAGES}
        body = {"model": model, **asked, **members}
        headers = {"x-request-id": request_id, "authorization": f"Bearer {KEY}"}
        return wire.open_reply("POST", self.process.url + path, body, headers)

    def ask(self, model: str, **members: Any) -> tuple[wire.Reply, dict[str, Any]]:
        """Ask for something; the whole reply, and the record of it."""
        request_id = f"test-{uuid.uuid4().hex}"
        with self.open(model, request_id, **members) as reply:
            whole = wire.Reply(reply.status, reply.headers, reply.read())
        return whole, self.record(request_id)

    def record(self, request_id: str) -> dict[str, Any]:
        """The record of a request, as soon as it is there."""
        (row,) = self.rows("SELECT * FROM records WHERE request_id = ?", request_id)
        return row

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """What the file has, as soon as it has anything."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            with sqlite3.connect(self.path) as connection:
                connection.row_factory = sqlite3.Row
                found = [dict(row) for row in connection.execute(statement, values)]
            connection.close()
            if found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)


def template(folder: Path, upstream: ScriptedUpstream, **records: Any) -> Path:
    models = [
        {
            "id": name,
            "provider": "up",
            "provider_model": name,
            "price": {"input": 1, "output": 10, "cached_input": 0.5},
        }
        for name in BEHAVIOURS
        if not name.startswith("/")
    ]
    return write_template(
        folder / "records.yaml",
        server={
            "api_keys": [KEY],
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "records": records,
            "responses_store": {"path": str(folder / "responses.sqlite")},
        },
        providers=[
            {
                "id": "up",
                "type": "remote::passthrough",
                "config": {
                    "base_url": upstream.url,
                    "api_key": UPSTREAM_KEY,
                    "timeouts": {"first_byte": 5, "between_bytes": 0.5},
                },
            },
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            *models,
            {
                "id": "mirrored",
                "provider": "up",
                "provider_model": "plain",
                "routing": {"mirror": {"model": "echo", "sample": 1}},
            },
            {
                "id": "mirrored-in-vain",
                "provider": "up",
                "provider_model": "plain",
                "routing": {"mirror": {"model": "status-500", "sample": 1}},
            },
            {"id": "echo", "provider": "echo", "aliases": ["parrot"]},
        ],
    )


@pytest.fixture(scope="module")
def recorded(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("records")
    path = template(folder, upstream, record_bodies="errors", redact=["Hello[?]"])
    with running(path) as process:
        yield Recorded(process, folder / "operations.sqlite")


def subset(record: dict[str, Any], **expected: Any) -> bool:
    found = {name: record[name] for name in expected}
    assert found == expected
    return True


# What goes well -----------------------------------------------------------------------------------


def test_a_whole_reply(recorded: Recorded) -> None:
    reply, record = recorded.ask("plain")
    assert reply.status == 200
    usage = reply.json()["usage"]
    assert subset(
        record,
        api="openai",
        operation="chat",
        route="plain",
        model="plain",
        served="plain",
        provider="up",
        target="up/plain",
        attempts=1,
        status=200,
        error="",
        stream=0,
        cancelled=0,
        finish_reason="stop",
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        estimated=0,
        first_content=None,
    )
    assert record["key"].startswith("key-")
    assert KEY not in str(record)
    assert 0 <= record["overhead"] < record["duration"]
    assert record["cost"] == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 10_000
    assert abs(record["time"] - time.time()) < 60


def test_a_stream_s_usage_is_asked_for_and_taken_out_again(recorded: Recorded) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    with recorded.open("plain", request_id, stream=True) as reply:
        assert all("usage" not in chunk for chunk in wire.chunks(reply))
    record = recorded.record(request_id)
    assert subset(record, stream=1, finish_reason="stop", input_tokens=7, output_tokens=5)
    assert subset(record, estimated=0, cost=7 * 1000 + 5 * 10_000)
    assert 0 < record["first_content"] <= record["duration"]


def test_other_client_apis(recorded: Recorded) -> None:
    _, record = recorded.ask("parrot", path="/v1/messages", max_tokens=10)
    assert subset(record, api="anthropic", operation="messages", finish_reason="end_turn")
    assert subset(record, route="echo", model="parrot", provider="echo", cost=None)
    _, record = recorded.ask("echo", path="/api/chat", stream=False)
    assert subset(record, operation="ollama_chat", finish_reason="stop")
    _, record = recorded.ask("echo", path="/v1/responses", input="Hi")
    assert subset(record, operation="responses", finish_reason="completed")


def test_what_no_vendor_counts_is_estimated_and_says_so(recorded: Recorded) -> None:
    _, record = recorded.ask("usage-absent", stream=True)
    assert record["estimated"] == 1
    assert record["input_tokens"] > 0
    assert 3 <= record["output_tokens"] <= 6
    assert record["cost"] == record["input_tokens"] * 1000 + record["output_tokens"] * 10_000


def test_a_response_in_the_background_is_recorded_when_it_is_done(recorded: Recorded) -> None:
    reply, record = recorded.ask("echo", path="/v1/responses", input="Say this", background=True)
    assert reply.json()["status"] in ("queued", "in_progress")
    assert subset(record, operation="responses", provider="echo", finish_reason="completed")
    assert subset(record, attempts=1, estimated=0, cancelled=0)
    assert record["input_tokens"] > 0
    assert record["output_tokens"] == 2


# What does not ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_mirror_is_recorded_as_what_it_is(recorded: Recorded, stream: bool) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    with recorded.open("mirrored", request_id, stream=stream) as reply:
        reply.read()
    own, copy = recorded.record(request_id), recorded.record(f"{request_id}-mirror")
    assert own["key"] != "mirror"
    assert subset(own, route="mirrored", provider="up", status=200, error="")
    assert subset(
        copy, key="mirror", route="echo", provider="echo", status=200, error="", cancelled=0
    )
    assert (copy["stream"], copy["attempts"]) == (int(stream), 1)
    assert copy["input_tokens"] > 0
    assert copy["output_tokens"] > 0


def test_a_mirror_that_fails_is_recorded_too(recorded: Recorded) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    with recorded.open("mirrored-in-vain", request_id) as reply:
        assert reply.status == 200
    copy = recorded.record(f"{request_id}-mirror")
    assert subset(copy, key="mirror", route="status-500", status=500, error="server_error")


def test_a_request_without_a_key(recorded: Recorded) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    url = f"{recorded.process.url}/v1/chat/completions"
    assert wire.request("POST", url, {}, {"x-request-id": request_id}).status == 401
    # It is counted, and not kept; what is asked by somebody is, if it is not even looked at.
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": f"{request_id}-get"}
    assert wire.request("GET", url, headers=headers).status == 405
    record = recorded.record(f"{request_id}-get")
    assert subset(record, status=405, model="", attempts=0)
    assert subset(record, input_tokens=None, output_tokens=None, cost=None, overhead=None)
    assert record["key"]
    one = "SELECT count(*) AS records FROM records WHERE request_id = ?"
    assert recorded.rows(one, request_id) == [{"records": 0}]


def test_a_model_that_there_is_not(recorded: Recorded) -> None:
    reply, record = recorded.ask("no-such-model")
    assert reply.status == 404
    assert subset(record, status=404, model="no-such-model", route="", provider="", attempts=0)
    assert subset(record, error="not_found", input_tokens=None, cost=None)


@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("status-500", 500, "server_error"),
        ("status-429", 429, "rate_limit"),
        ("status-401", 502, "authentication"),
        ("html-200", 502, "server_error"),
    ],
)
def test_a_vendor_s_failure(recorded: Recorded, model: str, status: int, error: str) -> None:
    reply, record = recorded.ask(model)
    assert reply.status == status
    assert subset(record, status=status, error=error, target=f"up/{model}", input_tokens=None)
    assert record["message"]
    (bodies,) = recorded.rows("SELECT * FROM bodies WHERE request_id = ?", record["request_id"])
    assert json.loads(bodies["request"])["messages"][0]["content"] == "[redacted]"
    assert bodies["reply"] == reply.body
    assert UPSTREAM_KEY not in str(record)


def test_a_stream_that_breaks_off(recorded: Recorded) -> None:
    reply, record = recorded.ask("closed-between-events", stream=True)
    assert reply.status == 200
    assert subset(record, status=200, error="connection", cancelled=0, estimated=1)
    assert record["output_tokens"] > 0
    (bodies,) = recorded.rows("SELECT * FROM bodies WHERE request_id = ?", record["request_id"])
    assert json.loads(bodies["reply"])["choices.0.delta.content"].startswith("Hel")


def test_a_vendor_that_hangs(recorded: Recorded) -> None:
    _, record = recorded.ask("hangs-between-events", stream=True)
    assert subset(record, error="timeout", cancelled=0)


def test_a_client_that_leaves_in_mid_stream(recorded: Recorded) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    with recorded.open("comments-forever", request_id, stream=True) as reply:
        next(wire.events(reply))
    record = recorded.record(request_id)
    assert subset(record, status=200, cancelled=1, error="", estimated=1)
    assert record["input_tokens"] > 0
    assert record["cost"] > 0


def test_a_client_that_leaves_before_there_is_anything(
    recorded: Recorded, upstream: ScriptedUpstream
) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    body = json.dumps({"model": "holds", "messages": MESSAGES}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: {request_id}\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", recorded.process.port)) as connection:
        connection.sendall(head.encode() + body)
        upstream.request(request_id)
    record = recorded.record(request_id)
    assert subset(record, status=499, cancelled=1, provider="up", attempts=1, input_tokens=None)


def test_bodies_of_what_went_well_are_not_kept(recorded: Recorded) -> None:
    _, record = recorded.ask("plain")
    statement = "SELECT COUNT(*) AS count FROM bodies WHERE request_id = ?"
    assert recorded.rows(statement, record["request_id"]) == [{"count": 0}]


# After the end ------------------------------------------------------------------------------------


def test_all_is_written_at_a_clean_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running(template(tmp_path, upstream)) as process:
        own = Recorded(process, tmp_path / "operations.sqlite")
        ids = [f"stop-{number}" for number in range(50)]
        for request_id in ids:
            with own.open("echo", request_id) as reply:
                reply.read()
        assert process.stop() == 0
    written = own.rows("SELECT request_id FROM records ORDER BY id")
    assert [row["request_id"] for row in written] == ids


def test_what_was_written_is_there_after_a_kill(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = template(tmp_path, upstream)
    with running(path) as process:
        own = Recorded(process, tmp_path / "operations.sqlite")
        with own.open("echo", "before") as reply:
            reply.read()
        own.record("before")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with sqlite3.connect(own.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert own.record("before")["status"] == 200
    with running(path) as process:
        again = Recorded(process, own.path)
        with again.open("echo", "after") as reply:
            reply.read()
        assert again.record("after")["status"] == 200


# When the storage fails ---------------------------------------------------------------------------


def test_a_locked_file_costs_no_request(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running(template(tmp_path, upstream, queue=5)) as process:
        own = Recorded(process, tmp_path / "operations.sqlite")
        other = sqlite3.connect(own.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in range(20):
            with own.open("echo", f"r{number}") as reply:
                assert reply.status == 200
                reply.read()
        other.execute("ROLLBACK")
        other.close()
        assert "records of requests were dropped" in process.wait_for_log("were dropped")
        assert own.record("r0")["status"] == 200


def test_a_place_where_no_file_can_be_costs_no_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    path = template(tmp_path, upstream)
    settings = yaml.safe_load(path.read_text())
    settings["server"]["storage"] = f"sqlite:{path}/operations.sqlite"
    path.write_text(yaml.safe_dump(settings))
    with running(path) as process:
        own = Recorded(process, tmp_path)
        with own.open("echo", "r") as reply:
            assert reply.status == 200
        process.wait_for_log("records of requests wait to be written: sqlite:")
