"""What nobody should send over a WebSocket, and what nobody should leave unread."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.connections import send_until_closed, send_until_it_waits
from tests.abuse.watch import MIB, Seen, descriptors
from tests.abuse.websockets import (
    NONSENSE,
    PING,
    PONG,
    TEXT,
    close_code,
    create,
    frame,
    read,
    read_text,
    upgraded,
)

# Imported for what it registers.
from tests.integration import upstream_failures  # noqa: F401
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template

LIMITS: dict[str, Any] = {
    "header_seconds": 2,
    "body_seconds": 2,
    "write_seconds": 2,
    "max_body_bytes": 8 * MIB,
    "max_bodies_bytes": 32 * MIB,
    "websockets": {"idle_seconds": 600, "ping_seconds": 1, "pong_seconds": 2},
}

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}

Unharmed = Callable[..., AbstractContextManager[Seen]]


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("websockets") / "hurried.yaml"
    with running(write_template(path, server=LIMITS, **ECHO)) as process:
        yield process
        assert "Traceback" not in process.log


def is_well(server: ServerProcess) -> None:
    """Another client is answered as ever."""
    with upgraded(server) as connection:
        connection.sendall(create(model="echo", input="well"))
        while (event := read_text(connection))["type"] != "response.completed":
            assert event["type"] != "error", event


def test_who_answers_no_ping_is_gone(hurried: ServerProcess) -> None:
    with upgraded(hurried) as connection:
        opcode, _ = read(connection)
        assert opcode == PING
        assert close_code(connection) == 0
    assert "answered no ping" in hurried.wait_for_log("pong_seconds")
    is_well(hurried)


def test_half_a_frame_is_not_waited_for(hurried: ServerProcess) -> None:
    whole = create(model="echo", input="x" * 1000)
    with upgraded(hurried) as connection:
        connection.sendall(whole[:-1])
        event = read_text(connection)
        assert (event["type"], event["status"]) == ("error", 408)
        assert event["error"]["code"] == "request_timeout"
        assert close_code(connection) == 1008
    is_well(hurried)


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"x" * (8 * MIB + 1)),
        frame(b"x" * (8 * MIB), fin=False) + frame(b"x", 0),
        struct.pack("!BBQ", 0x81, 0xFF, 1 << 62) + b"\0\0\0\0" + b"x" * MIB,
    ],
    ids=["at once", "in two", "as claimed"],
)
def test_a_huge_frame_is_refused(hurried: ServerProcess, unharmed: Unharmed, sent: bytes) -> None:
    with unharmed(hurried, grows=40 * MIB), upgraded(hurried) as connection:
        send_until_closed(connection, sent)
        assert close_code(connection) in (1009, 0)
    is_well(hurried)


def test_many_large_halves_have_room_for_so_many(
    hurried: ServerProcess, unharmed: Unharmed
) -> None:
    half = frame(b"x" * (8 * MIB))[: 6 * MIB]
    # Of 240 MiB 32 are kept.
    with unharmed(hurried, grows=100 * MIB, holds=0.5), ExitStack() as stack:
        connections = [stack.enter_context(upgraded(hurried)) for _ in range(40)]
        sending = [
            threading.Thread(target=send_until_closed, args=(each, half)) for each in connections
        ]
        for each in sending:
            each.start()
        for each in sending:
            each.join()
        errors = [read_text(each) for each in connections]
        codes = [close_code(each) for each in connections]
    assert {event["status"] for event in errors} == {408, 503}
    assert set(codes) == {1008, 1013}
    is_well(hurried)


@pytest.mark.parametrize(
    "flood",
    [
        frame(b"{}"),
        frame(b"not JSON"),
        create(model="echo", input="again", generate=False),
        create(model="echo", input="again"),
        create(model="echo", input="again", stream_id="x" * 128),
    ],
    ids=["{}", "no JSON", "warm", "asked", "lane"],
)
def test_a_flood_of_frames_waits(hurried: ServerProcess, unharmed: Unharmed, flood: bytes) -> None:
    with unharmed(hurried, grows=24 * MIB), upgraded(hurried) as connection:
        # Nothing is read: its answers are not taken, so no more of it is.
        took = send_until_it_waits(connection, flood * (65536 // len(flood)), 1.0)
    assert took < 64 * MIB
    is_well(hurried)


@pytest.mark.parametrize(
    "flood",
    [
        frame(b"", PING),
        frame(b"p" * 125, PING),
        frame(b"", PONG),
        frame(b"x", fin=False) + frame(b"", 0, fin=False) * 10_000,
        frame(b"", fin=False) + frame(b"", 0),
    ],
    ids=["pings", "long pings", "pongs", "a message without end", "messages"],
)
def test_a_flood_of_nothing_ends(hurried: ServerProcess, unharmed: Unharmed, flood: bytes) -> None:
    with unharmed(hurried, grows=24 * MIB), upgraded(hurried) as connection:
        sent = send_until_closed(connection, flood * (16 * MIB // len(flood)))
        assert close_code(connection) in (1008, 0)
    assert sent < 16 * MIB
    is_well(hurried)


def test_lanes_without_end_wait(hurried: ServerProcess, unharmed: Unharmed) -> None:
    frames = [
        create(model="echo", input="x" * 200, stream_id=f"lane {number}") for number in range(5000)
    ]
    with unharmed(hurried, grows=24 * MIB), upgraded(hurried) as connection:
        sending = threading.Thread(target=connection.sendall, args=(b"".join(frames),))
        sending.start()
        completed = set()
        while len(completed) < len(frames):
            event = read_text(connection)
            assert event["type"] != "error"
            if event["type"] == "response.completed":
                completed.add(event["stream_id"])
        sending.join()


def test_a_conversation_without_end_is_forgotten(
    hurried: ServerProcess, unharmed: Unharmed
) -> None:
    with unharmed(hurried, grows=120 * MIB, holds=0.5), upgraded(hurried) as connection:
        previous = None
        for _ in range(30):
            asked = {"input": "x" * MIB, "generate": False, "previous_response_id": previous}
            connection.sendall(create(model="echo", **asked))
            while (event := read_text(connection))["type"] not in ("response.completed", "error"):
                pass
            if event["type"] == "error":
                break
            previous = event["response"]["id"]
        assert event["error"]["code"] == "previous_response_not_found"


def test_nonsense_is_no_frame(hurried: ServerProcess) -> None:
    before = descriptors(hurried)
    for at in range(0, 4096, 64):
        with upgraded(hurried) as connection:
            send_until_closed(connection, NONSENSE[at:])
            close_code(connection)
    is_well(hurried)
    assert descriptors(hurried) <= before + 5


def test_who_does_not_read_frees_what_answers(tmp_path: Path) -> None:
    with ScriptedUpstream() as upstream:
        template = write_template(
            tmp_path / "floods.yaml",
            server={"write_seconds": 2},
            providers=[
                {
                    "id": "up",
                    "type": "remote::passthrough",
                    "config": {"base_url": upstream.url, "wires": ["chat"]},
                }
            ],
            models=[{"id": "floods", "provider": "up"}],
        )
        with (
            running(template) as server,
            upgraded(server, b"x-request-id: deaf\r\n") as connection,
        ):
            connection.sendall(create(model="floods", input="?"))
            upstream.request("deaf-1").wait_until_disconnected()
            assert "took no events" in server.wait_for_log("write_seconds")
            assert "client disconnected" in server.wait_for_log("deaf-1 ")
            assert "Traceback" not in server.log


def test_idle_ones_take_nobody_s_place(tmp_path: Path) -> None:
    template = write_template(tmp_path / "few.yaml", server={"max_connections": 8}, **ECHO)
    with running(template) as server, ExitStack() as stack:
        silent = [stack.enter_context(upgraded(server)) for _ in range(20)]
        is_well(server)
        assert close_code(silent[0]) == 0
        silent[-1].sendall(create(model="echo", input="still here"))
        assert read_text(silent[-1])["type"] == "response.created"


def test_a_stream_id_can_t_make_answers_large(hurried: ServerProcess) -> None:
    with upgraded(hurried) as connection:
        connection.sendall(create(model="echo", input="a b c", stream_id="x" * 100_000))
        opcode, data = read(connection)
    assert opcode == TEXT
    assert len(data) < 2000
    assert json.loads(data)["error"]["param"] == "stream_id"
