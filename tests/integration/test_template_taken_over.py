"""A template that is taken over through `/admin/template`, by all workers of a server."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.integration import wire
from tests.integration.server_process import START_SECONDS, running

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")

ADMIN = {"authorization": "Bearer the-admin-key"}

TEMPLATE = """\
# kept
server:
  admin_key: the-admin-key
  admin: {can_edit: true}
  storage: sqlite:FOLDER/operations.sqlite
providers: [{id: echo, type: "local::echo"}]
models:
  - {id: first, provider: echo}
"""


def names(url: str) -> list[str]:
    """What one worker has, asked over a connection of its own."""
    return [each["id"] for each in json.loads(wire.request("GET", url, None, {}).body)["data"]]


def test_all_workers_follow(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(TEMPLATE.replace("FOLDER", str(tmp_path)), "utf-8")
    with running(path, options=["--workers", "2"]) as server:
        deadline = time.monotonic() + START_SECONDS
        while server.log.count("serving at") < 2:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.05)
        url = f"{server.url}/admin/template"
        shown = json.loads(wire.request("GET", url, None, ADMIN).body)
        assert "the-admin-key" not in shown["text"]
        edited = shown["text"] + "  - {id: second, provider: echo}\n"
        headers = {**ADMIN, "if-match": f'"{shown["version"]}"'}
        reply = wire.request("PUT", url, {"text": edited}, headers)
        assert reply.status == 200, reply.body
        assert json.loads(reply.body)["others_told"] is True
        while server.log.count("is reloaded") < 2:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.05)
        # The kernel chooses the worker: in so many connections both have been asked.
        for _ in range(20):
            assert names(f"{server.base_url}/models") == ["first", "second"]
        assert "admin_key: the-admin-key\n" in path.read_text("utf-8")
        assert path.read_text("utf-8").startswith("# kept\n")
        again = wire.request("PUT", url, {"text": edited}, headers)
        assert (again.status, json.loads(again.body)["error"]["code"]) == (412, "template_changed")
