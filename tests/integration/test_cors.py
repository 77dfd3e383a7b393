"""Web pages of other origins: which of them the browser lets use the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

ORIGIN = "https://app.example.com"


def template(folder: Path, **server: Any) -> Path:
    return write_template(
        folder / "cors.yaml",
        server={"api_keys": ["sk-one-key"], **server},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("cors")
    with running(template(folder, cors={"origins": [ORIGIN]})) as process:
        yield process


def preflight(server: ServerProcess, origin: str) -> wire.Reply:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return wire.request("OPTIONS", f"{server.base_url}/chat/completions", headers=headers)


def ask(server: ServerProcess, key: str = "sk-one-key", **more: Any) -> wire.Reply:
    return wire.request(
        "POST",
        f"{server.base_url}/chat/completions",
        {"model": "echo", "messages": [{"role": "user", "content": "Hi"}], **more},
        {"origin": ORIGIN, "authorization": f"Bearer {key}"},
    )


def test_a_browser_asks_first_and_needs_no_key(server: ServerProcess) -> None:
    reply = preflight(server, ORIGIN)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == ORIGIN
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-max-age"] == "600"
    assert reply.headers["access-control-allow-credentials"] is None


def test_other_origins_are_refused(server: ServerProcess) -> None:
    reply = preflight(server, "https://evil.example.com")
    assert reply.status == 400
    assert reply.headers["access-control-allow-origin"] is None


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("key", "status"), [("sk-one-key", 200), ("sk-two", 401)])
def test_answers_may_be_read_errors_too(
    server: ServerProcess, stream: bool, key: str, status: int
) -> None:
    reply = ask(server, key, stream=stream)
    assert reply.status == status
    assert reply.headers["access-control-allow-origin"] == ORIGIN
    assert "x-request-id" in reply.headers["access-control-expose-headers"]


def test_without_it_no_page_is_let_in(tmp_path: Path) -> None:
    with running(template(tmp_path)) as process:
        assert preflight(process, ORIGIN).status == 401
        assert ask(process).headers["access-control-allow-origin"] is None
