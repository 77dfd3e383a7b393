"""`llama-compat bench`: which server it asks, how, and what it says of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from typer.testing import CliRunner, Result

from routing.cli import app
from tests.conftest import needs_torch
from tests.forked import TORCH, Forked
from tests.integration.server_process import COMMAND, write_template
from tests.local_server import Handler, send, serving
from tests.tiny_models import make_model


def run(*arguments: str) -> Result:
    environment = {"COLUMNS": "120", "OPENAI_API_KEY": None}
    return CliRunner().invoke(app, ["bench", *arguments], env=environment)


class Streaming:
    """A server that streams, as the vendors do that refuse what they don't know.

    Attributes:
        refuses: names of members that it answers with 400.
        chats: whether it has chat completions.
        asked: what came, as `(path, body)`.
        events: of a reply; each has two tokens.
        pause: seconds behind each event; the fewer it says in a second, the less is computed.
    """

    def __init__(self, *refuses: str, chats: bool = True, events: int = 5) -> None:
        self.refuses, self.chats, self.events, self.pause = refuses, chats, events, 0.03
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def answer(self, handler: Handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        self.asked.append((handler.path, body))
        wrong = [name for name in self.refuses if name in body]
        is_chat = handler.path == "/v1/chat/completions"
        if wrong or (is_chat and not self.chats):
            send(handler, 400, json.dumps({"error": {"message": f"no {wrong}"}}).encode())
            return
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for _ in range(self.events):
            said = {"delta": {"content": "a b"}} if is_chat else {"text": "a b"}
            self._send(handler, {"choices": [{"index": 0, **said}]})
            time.sleep(self.pause)
        usage = {"prompt_tokens": 7, "completion_tokens": 2 * self.events}
        self._send(handler, {"choices": [], "usage": usage})
        self._write(handler, b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    def _send(self, handler: Handler, event: dict[str, Any]) -> None:
        self._write(handler, b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, handler: Handler, data: bytes) -> None:
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


def fork(command: list[str], *, stdout: IO[bytes], env: dict[str, str], **_: Any) -> Forked:
    """The server that it starts by a command, but of a process that has imported torch."""
    return Forked(
        [COMMAND, *command[command.index("run") :]],
        env=env,
        output=stdout.fileno(),
        imported=TORCH,
    )


FORKING = SimpleNamespace(
    Popen=fork, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)
"""In place of `subprocess`."""


def measured(server: Streaming) -> dict[str, Any]:
    with serving(server.answer) as url:
        result = run("m", "--url", f"{url}/v1", "--seconds", "1", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_server_that_runs_is_asked_by_1_8_and_32() -> None:
    server = Streaming()
    found = measured(server)
    assert (found["model"], found["prompt_tokens"]) == ("m", 7)
    assert list(found["clients"]) == ["1", "8", "32"]
    for each in found["clients"].values():
        assert 0 < each["begun"] <= each["requests"]
        assert each["output_throughput"] > 0
        assert each["median_ttft_ms"] > 0
    # An event has two tokens; one client reads a reply of five in 150 ms and more.
    one = found["clients"]["1"]
    # The first is sent a moment after the second has begun, and it counts from there.
    assert one["output_throughput"] <= 1.01 * 2 * 5 * one["requests"]
    assert one["output_throughput"] > 5 * (one["begun"] - 1)
    # No text comes twice, so that no cache answers.
    prompts = [body["messages"][0]["content"][:200] for _, body in server.asked]
    assert len(set(prompts)) == len(prompts)
    assert all(body["ignore_eos"] for _, body in server.asked)


@pytest.mark.parametrize(
    ("refuses", "chats", "path", "ignores"),
    [
        ((), False, "/v1/completions", True),
        (("ignore_eos",), True, "/v1/chat/completions", False),
        (("ignore_eos",), False, "/v1/completions", False),
    ],
)
def test_it_is_asked_as_it_takes_it(
    refuses: tuple[str, ...],
    chats: bool,
    path: str,
    ignores: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("routing.cli.machine.bench.CLIENTS", (32,))
    server = Streaming(*refuses, chats=chats)
    assert measured(server)["clients"]["32"]["begun"] > 0
    assert server.asked[-1][0] == path
    assert ("ignore_eos" in server.asked[-1][1]) is ignores


def test_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    result = run("hf:org/name")
    assert (result.exit_code, "llama-compat pull hf:org/name" in result.stderr) == (1, True)
    result = run("m", "--url", "http://127.0.0.1:1/v1")
    assert (result.exit_code, "127.0.0.1:1/v1 did not answer" in result.stderr) == (1, True)
    result = run("m", "--url", "http://a", "--template", "b")
    assert (result.exit_code, "leave one of both out" in result.stderr) == (1, True)
    server = Streaming("stream")
    with serving(server.answer) as url:
        result = run("m", "--url", f"{url}/v1")
    assert result.exit_code == 1
    assert "The model 'm' can't be asked to say anything" in result.stderr
    result = run("m", "--template", str(tmp_path / "none.yaml"))
    assert (result.exit_code, "The server did not start" in result.stderr) == (1, True)


@pytest.mark.server
def test_a_template_s_model_is_asked_and_gone_afterwards(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "echo.yaml",
        providers=[{"id": "echo", "type": "local::echo", "config": {"delay_ms": 20}}],
        models=[{"id": "m", "provider": "echo"}],
    )
    result = run("m", "--template", str(template), "--seconds", "1")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("1", "8", "32")][-3:] == ["1", "8", "32"]
    assert "First token" in result.stdout


@needs_torch
@pytest.mark.engine
@pytest.mark.server
def test_a_model_on_this_machine_is_served_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routing.cli.machine.bench.CLIENTS", (8,))
    if sys.platform == "linux":
        # How it starts one is shown by the server that echoes.
        monkeypatch.setattr("routing.cli.machine.bench.subprocess", FORKING)
    folder = make_model(tmp_path / "tiny", max_position_embeddings=2048)
    result = run(str(folder), "--seconds", "1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["clients"]["8"]["output_throughput"] > 0
