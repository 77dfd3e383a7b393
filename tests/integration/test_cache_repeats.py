"""Requests that come again byte for byte are answered from the cache without being read: nobody can
tell but by how soon, whatever has changed meanwhile."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

ADMIN = {"authorization": "Bearer the-admin-key"}


def template(folder: Path, *, price: float = 1, cached: bool = True, **server: Any) -> Path:
    cache = {"cache": {"exact": {"sampled": True}}} if cached else {}
    return write_template(
        folder / "repeats.yaml",
        server={"storage": f"sqlite:{folder / 'storage.sqlite'}", **cache, **server},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[
            {"id": "echo", "provider": "echo", "price": {"input": price, "output": price}},
            {"id": "brief", "provider": "echo", "cache": {"exact": {"ttl": 1, "sampled": True}}},
        ],
    )


class Wire:
    """One connection, on which the same bytes are said again and again."""

    def __init__(self, server: ServerProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, asked: bytes) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the body of the answer."""
        self._socket.sendall(asked)
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            assert name not in headers, name
            headers[name] = value
        if "content-length" in headers:
            return status, headers, self._file.read(int(headers["content-length"]))
        body = b""
        while size := int(self._file.readline(), 16):
            body += self._file.read(size)
            self._file.readline()
        self._file.readline()
        return status, headers, body


@contextmanager
def connected(server: ServerProcess) -> Iterator[Wire]:
    with closing(Wire(server)) as one:
        yield one


def request(text: str, model: str = "echo", *lines: str, **members: Any) -> bytes:
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": text}], **members}
    ).encode()
    head = ["POST /v1/chat/completions HTTP/1.1", "host: x", *lines, f"content-length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


VARY = {"age", "date", "x-request-id"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(template(tmp_path_factory.mktemp("repeats"))) as process:
        yield process


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_third_time_is_as_the_second(server: ServerProcess, stream: bool) -> None:
    asked = request(f"Hello {stream}", stream=stream)
    with connected(server) as one, connected(server) as other:
        first = one.ask(asked)
        assert first[1]["x-llama-compat-cache"] == "miss"
        found = [each.ask(asked) for each in (one, one, other, one)]
    assert {status for status, _, _ in found} == {200}
    assert {body for _, _, body in found} == {first[2]}
    same = [{name: headers[name] for name in headers.keys() - VARY} for _, headers, _ in found]
    assert all(each == same[0] for each in same)
    assert same[0]["x-llama-compat-cache"] == "hit"
    assert all(headers.keys() >= {"age", "date", "x-request-id"} for _, headers, _ in found)
    # Each is a request of its own, with an id and a line in the log.
    ids = [headers["x-request-id"] for _, headers, _ in (first, *found)]
    assert len(set(ids)) == 5
    for each in ids:
        assert "model=echo status=200" in server.wait_for_log(each)


def test_a_client_s_own_id_is_kept(server: ServerProcess) -> None:
    asked = request("My own", "echo", "x-request-id: mine")
    with connected(server) as one:
        assert {one.ask(asked)[1]["x-request-id"] for _ in range(4)} == {"mine"}


def test_another_header_is_another_request(server: ServerProcess) -> None:
    plain = request("Headers")
    anew = request("Headers", "echo", "cache-control: no-cache")
    with connected(server) as one:
        outcomes = [
            one.ask(asked)[1]["x-llama-compat-cache"]
            for asked in (plain, plain, plain, anew, anew, plain)
        ]
    assert outcomes == ["miss", "hit", "hit", "bypass", "bypass", "hit"]


def test_what_has_expired_is_asked_again(server: ServerProcess) -> None:
    asked = request("Brief", "brief")
    with connected(server) as one:
        assert [one.ask(asked)[1]["x-llama-compat-cache"] for _ in range(3)] == [
            "miss",
            "hit",
            "hit",
        ]
        wire.eventually(lambda: one.ask(asked)[1]["x-llama-compat-cache"] == "miss")
        assert one.ask(asked)[1]["x-llama-compat-cache"] == "hit"


def test_a_key_that_is_revoked_opens_nothing(tmp_path: Path) -> None:
    path = template(tmp_path, admin_key="the-admin-key", stored_keys=True)
    with running(path) as server, connected(server) as one:
        url = f"{server.url}/admin/keys"
        key = wire.request("POST", url, {"name": "ann"}, ADMIN).json()
        asked = request("Keys", "echo", f"authorization: Bearer {key['key']}")
        told = [one.ask(asked) for _ in range(4)]
        assert [status for status, _, _ in told] == [200] * 4
        assert told[-1][1]["x-llama-compat-cache"] == "hit"
        assert wire.request("DELETE", f"{url}/{key['id']}", headers=ADMIN).status == 200
        assert one.ask(asked)[0] == 401
        assert one.ask(request("Keys"))[0] == 401


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_another_template_counts_at_once(tmp_path: Path) -> None:
    with running(template(tmp_path)) as server, connected(server) as one:
        asked = request("Reload")
        assert [one.ask(asked)[0] for _ in range(3)] == [200] * 3
        template(tmp_path, cached=False)
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("is reloaded")
        assert "x-llama-compat-cache" not in one.ask(asked)[1]


def test_each_is_recorded(tmp_path: Path) -> None:
    with running(template(tmp_path, records={}, metrics=True)) as server:
        with connected(server) as one:
            for stream in (False, True):
                for _ in range(4):
                    assert one.ask(request("Records", stream=stream))[0] == 200

        def recorded() -> list[tuple[Any, ...]]:
            with closing(sqlite3.connect(tmp_path / "storage.sqlite")) as connection:
                return connection.execute(
                    "SELECT provider, cost, input_tokens, output_tokens, finish_reason, stream"
                    " FROM records ORDER BY time"
                ).fetchall()

        wire.eventually(lambda: len(recorded()) == 8)
        rows = recorded()
        assert [row[0] for row in rows] == ["echo", *["llama-compat-cache"] * 7]
        assert [row[1] for row in rows[1:]] == [0] * 7
        assert len({row[2:5] for row in rows}) == 1
        metrics = wire.request("GET", f"{server.url}/metrics").body.decode()
        counts = re.findall(r"^llama_compat_requests_total\{.*\} (\d+)", metrics, re.MULTILINE)
        assert sum(map(int, map(float, counts))) >= 8


def test_what_a_web_page_is_told_is_told_again(tmp_path: Path) -> None:
    path = template(tmp_path, cors={"origins": ["https://page.test"]})
    with running(path) as server, connected(server) as one:
        asked = request("Pages", "echo", "origin: https://page.test")
        told = [one.ask(asked)[1] for _ in range(4)]
        assert {each["access-control-allow-origin"] for each in told} == {"https://page.test"}
        assert told[-1]["x-llama-compat-cache"] == "hit"
