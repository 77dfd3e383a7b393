"""Request bodies: one that is slow to read stops nobody else, and all together have a bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.connections import connect, post, read_answer
from tests.abuse.watch import MIB, cpu_seconds
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

Unharmed = Callable[..., AbstractContextManager[Any]]

SIZE = 16 * MIB

ECHO: dict[str, Any] = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}


def asking(messages: bytes) -> bytes:
    return b'{"model":"echo","max_tokens":1,"messages":' + messages + b"}"


def saying(content: bytes) -> bytes:
    return asking(b'[{"role":"user","content":"' + content + b'"}]')


def members(count: int) -> bytes:
    return b",".join(b'"%d":1' % number for number in range(count))


ESCAPES_SECONDS = 0.1
"""What msgspec takes, in one call, to undo the 8 million escapes of one string."""

BODIES: dict[str, tuple[int, bytes]] = {
    "backslashes in an open string": (400, saying(b"\\" * SIZE)[:-4]),
    "backslashes and half a character": (200, saying(b"\\\\" * (SIZE // 2) + b"\\ud83d")),
    "halves of characters": (200, saying(b"\\ud83d" * (SIZE // 6))),
    "halves of characters in a name": (400, b'{"' + b"\\ud83d" * (SIZE // 6) + b'":1}'),
    "words": (200, saying(b"word " * (SIZE // 5))),
    "line ends": (200, saying(b"\\n" * (SIZE // 2))),
    "white space": (400, b" " * SIZE),
    "no text": (400, b"\x80" * SIZE),
    "numbers": (400, asking(b"[" + b"1," * (SIZE // 2) + b"1]")),
    "objects": (400, asking(b"[" + b"{}," * (SIZE // 3) + b"{}]")),
    "strings of brackets": (400, asking(b"[" + b'"[{",' * (SIZE // 5) + b"1]")),
    "members": (400, b'{"model":"echo",' + members(SIZE // 11) + b"}"),
    "arrays in one another": (400, asking(b"[" * (SIZE // 2) + b"]" * (SIZE // 2))),
    "one number": (400, asking(b"9" * SIZE)),
}


@pytest.mark.parametrize(("status", "body"), BODIES.values(), ids=BODIES.keys())
def test_others_do_not_wait_for_a_large_body(
    server: ServerProcess, unharmed: Unharmed, status: int, body: bytes
) -> None:
    before = cpu_seconds(server)
    holds = ESCAPES_SECONDS if body.count(b"\\") > SIZE // 3 else 0.0
    with unharmed(server, grows=16 * SIZE, holds=holds):
        reply = wire.request("POST", f"{server.base_url}/chat/completions", body)
    assert reply.status == status, reply.body[:500]
    assert cpu_seconds(server) - before < 30


@pytest.mark.lengthy
def test_an_echo_of_millions_of_words_leaves_others_their_turn(
    server: ServerProcess, unharmed: Unharmed
) -> None:
    body = saying(b"word " * (SIZE // 5)).replace(b'"max_tokens":1,', b"")
    with unharmed(server, grows=24 * SIZE):
        reply = wire.request("POST", f"{server.base_url}/chat/completions", body)
    assert reply.json()["usage"]["completion_tokens"] == SIZE // 5


LONG = "9" * 5000

PLACES: list[tuple[str, str, str]] = [
    (
        "/v1/chat/completions",
        "n",
        '{"model":"echo","messages":[{"role":"user","content":"x"}],"n":@}',
    ),
    (
        "/v1/chat/completions",
        "messages",
        '{"model":"echo","messages":[{"role":"user","content":@}]}',
    ),
    ("/v1/chat/completions", "surprise", '{"model":"echo","messages":[],"surprise":{"a":[1,-@]}}'),
    ("/v1/completions", "seed", '{"model":"echo","prompt":"x","seed":@}'),
    ("/v1/embeddings", "dimensions", '{"model":"echo","input":"x","dimensions":@}'),
    ("/v1/responses", "max_output_tokens", '{"model":"echo","input":"x","max_output_tokens":@}'),
    ("/v1/messages", "max_tokens", '{"model":"echo","messages":[],"max_tokens":@}'),
    ("/api/chat", "options", '{"model":"echo","messages":[],"options":{"seed":@}}'),
    (
        "/v1beta/models/echo:generateContent",
        "generationConfig",
        '{"contents":[],"generationConfig":{"seed":@}}',
    ),
]


@pytest.mark.parametrize(("path", "name", "body"), PLACES)
def test_an_integer_of_thousands_of_digits_is_refused_by_name(
    server: ServerProcess, path: str, name: str, body: str
) -> None:
    reply = wire.request("POST", server.url + path, body.replace("@", LONG).encode())
    assert reply.status == 400
    assert f"'{name}'" in reply.body.decode()
    assert "digits" in reply.body.decode()


def test_as_many_digits_in_a_text_are_text(server: ServerProcess) -> None:
    body = saying(LONG.encode() + b'\\"' + LONG.encode())
    assert wire.request("POST", f"{server.base_url}/chat/completions", body).status == 200


@pytest.mark.parametrize("where", ["arguments", "schema"])
def test_as_many_digits_in_json_inside_a_text_are_no_fault_of_the_server(
    server: ServerProcess, where: str
) -> None:
    chat: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
    if where == "arguments":
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": f"[{LONG}]"}}
        chat["messages"].append({"role": "assistant", "tool_calls": [call]})
        chat["messages"].append({"role": "tool", "tool_call_id": "1", "content": "x"})
    else:
        chat["guided_json"] = f'{{"maximum":{LONG}}}'
    reply = wire.request("POST", f"{server.base_url}/chat/completions", chat)
    assert reply.status in (200, 400)


def test_a_template_with_such_a_number_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(f"server:\n  port: {LONG}\nproviders: []\nmodels: []\n")
    server = ServerProcess(path)
    try:
        assert server.wait() == 2
    finally:
        server.kill()
    assert "long.yaml:2" in server.log
    assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("bodies") / "small.yaml",
        server={"max_bodies_bytes": 8 * MIB, "max_body_bytes": 8 * MIB},
        providers=[{"id": "echo", "type": "local::echo", "config": {"unsupported": "drop"}}],
        models=ECHO["models"],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log


def test_bodies_that_are_too_much_together_are_told_to_come_again(
    small: ServerProcess, unharmed: Unharmed
) -> None:
    half = saying(b"x" * (5 * MIB))
    with connect(small) as first:
        # It is there but for its last byte, and so held.
        request = post(half)
        first.sendall(request[:-1])
        with unharmed(small, grows=32 * MIB):
            reply = wire.request("POST", f"{small.base_url}/chat/completions", half)
            while reply.status == 200:  # the first has not all been read yet
                reply = wire.request("POST", f"{small.base_url}/chat/completions", half)
            assert reply.status == 503
            assert reply.error()["code"] == "server_busy"
            assert reply.headers["retry-after"] == "1"
            # What is small goes on.
            little = saying(b"x" * 1000)
            assert wire.request("POST", f"{small.base_url}/chat/completions", little).status == 200
        first.sendall(request[-1:])
        assert read_answer(first).startswith(b"HTTP/1.1 200 ")
    # All of it has been given back.
    whole = saying(b"x" * (7 * MIB))
    for _ in range(3):
        assert wire.request("POST", f"{small.base_url}/chat/completions", whole).status == 200


def test_the_names_of_what_is_dropped_have_a_bound(small: ServerProcess) -> None:
    chat: dict[str, Any] = json.loads(saying(b"x"))
    chat |= {f"surprise-{number}": 1 for number in range(20_000)}
    reply = wire.request("POST", f"{small.base_url}/chat/completions", chat)
    assert reply.status == 200
    dropped = reply.headers["x-llama-compat-dropped"]
    assert dropped.startswith("surprise-0, surprise-1, ")
    named, _, more = dropped.rpartition(" and ")
    assert len(dropped) < 2100
    assert int(more.removesuffix(" more")) + len(named.split(", ")) == 20_000


def test_one_very_long_name_is_cut(small: ServerProcess) -> None:
    chat = {**json.loads(saying(b"x")), "\N{SNOWMAN}" * 100_000: 1, "other": 1}
    reply = wire.request("POST", f"{small.base_url}/chat/completions", chat)
    assert reply.status == 200
    assert len(reply.headers["x-llama-compat-dropped"]) < 2100
    assert reply.headers["x-llama-compat-dropped"].endswith(" and 1 more")
