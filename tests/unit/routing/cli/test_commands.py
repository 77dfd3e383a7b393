"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from llama_compat import __version__
from llama_compat.distribution import list_templates
from routing.cli import app
from tests.conftest import needs_torch
from tests.local_server import Handler, send, serving

COMMAND = str(Path(sys.executable).with_name("llama-compat"))


def llama_compat(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
    environment = {"COLUMNS": "80", "OPENAI_API_KEY": None, **(env or {})}
    return CliRunner().invoke(app, arguments, input=stdin, env=environment)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text(
        "version: 1\n"
        "server:\n"
        "  prot: 8321\n"
        "providers:\n"
        "  - id: echo\n"
        "    type: local::ecco\n"
        "models:\n"
        "  - id: echo\n"
        "    provider: echo\n"
    )
    return path


def test_version() -> None:
    result = llama_compat("--version")
    assert (result.exit_code, result.stdout) == (0, f"llama-compat {__version__}\n")


def test_list_shows_every_template_that_ships() -> None:
    result = llama_compat("list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name, _ in list_templates())
    assert max(map(len, result.stdout.splitlines())) <= 80


# check and run -----------------------------------------------------------------------------------


def test_check_shows_what_a_template_offers() -> None:
    result = llama_compat("check", "echo")
    assert result.exit_code == 0
    assert "local::echo" in result.stdout
    assert "echo is fine. Serve it:  llama-compat run echo" in result.stdout


@pytest.mark.parametrize("command", ["check", "run"])
def test_every_problem_of_a_template_is_told(command: str, broken: Path) -> None:
    result = llama_compat(command, str(broken))
    assert result.exit_code == 2
    assert result.stdout == ""
    key, type = result.stderr.splitlines()
    assert key.startswith(f"{broken}:3: server.prot: ")
    assert "'port'" in key
    assert type.startswith(f"{broken}:6: providers[0].type: ")
    assert "'local::echo'" in type


def test_a_template_that_is_not_there_is_told() -> None:
    result = llama_compat("run", "no-such-template")
    assert result.exit_code == 2
    assert result.stderr.startswith("no-such-template: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_port_in_use_is_one_sentence_with_what_mends_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = llama_compat("run", "echo", "--host", "127.0.0.1", "--port", str(port))
    assert result.exit_code == 1
    [sentence] = result.stderr.splitlines()
    assert f"Can't listen on 127.0.0.1 port {port}: address already in use." in sentence
    assert "llama-compat run echo --port " in sentence


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_told_so(host: str) -> None:
    result = llama_compat("run", "echo", "--host", host, "--port", "8321")
    assert result.exit_code == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"Can't listen on {host} port 8321: ")
    assert sentence.endswith("an address of this machine: llama-compat run echo --host 0.0.0.0")


@needs_torch
@pytest.mark.engine
def test_a_model_that_is_not_there_is_one_sentence_with_what_mends_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [COMMAND, "run", "starter", "--port", "0"],
        env={**os.environ, "LLAMA_COMPAT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    assert "llama-compat pull starter" in ended.stderr
    assert "Traceback" not in ended.stderr


def template_of_remotes(path: Path, **base_urls: str) -> str:
    providers = [
        {"id": name, "type": "remote::vllm", "config": {"base_url": url, "models": "discover"}}
        for name, url in base_urls.items()
    ]
    path.write_text(json.dumps({"version": 1, "providers": providers}))
    return str(path)


def two_models(handler: Handler) -> None:
    models = [{"id": name, "object": "model"} for name in ("one", "two")]
    send(handler, 200, json.dumps({"object": "list", "data": models}).encode())


def test_check_live_counts_the_models_of_remotes_that_answer(tmp_path: Path) -> None:
    with serving(two_models) as url:
        result = llama_compat(
            "check", "--live", template_of_remotes(tmp_path / "t.yaml", a=f"{url}/v1")
        )
    assert result.exit_code == 0
    assert ["a", "yes", "2"] in [line.split() for line in result.stdout.splitlines()]


def test_check_live_fails_if_one_remote_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as closed, serving(two_models) as url:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        template = template_of_remotes(tmp_path / "t.yaml", here=f"{url}/v1", gone=gone)
        result = llama_compat("check", "--live", template)
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["here", "yes", "2"] in rows
    assert any(row[:2] == ["gone", "no"] for row in rows)
    assert "refused" in result.stdout


# pull --------------------------------------------------------------------------------------------


def test_pulling_what_is_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "models" / "starter").mkdir(parents=True)
    result = llama_compat("pull", "starter", env={"LLAMA_COMPAT_HOME": str(tmp_path)})
    assert result.exit_code == 0
    assert result.stdout.startswith("starter is there already, in ")


def test_pulling_what_has_no_source_is_refused(tmp_path: Path) -> None:
    result = llama_compat("pull", "startr", env={"LLAMA_COMPAT_HOME": str(tmp_path)})
    assert result.exit_code == 1
    assert result.stderr.startswith("'startr' can't be pulled: give 'starter'")


# chat --------------------------------------------------------------------------------------------


class ChatServer:
    """Answers each chat with what is in `answers`, as pieces of deltas.

    Attributes:
        requests: the bodies of the chats so far.
        keys: the Authorization headers of all requests.
        hold: a stream sends its last piece when it is set.
        hung_up: set when a client leaves a stream that is held.
    """

    def __init__(self) -> None:
        self.answers: list[list[dict[str, str]]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.hold = threading.Event()
        self.hold.set()
        self.hung_up = threading.Event()
        self.url = ""

    def answer(self, handler: Handler) -> None:
        self.keys.append(handler.headers.get("authorization"))
        if handler.path == "/v1/models":
            two_models(handler)
        elif handler.path != "/v1/chat/completions":
            send(handler, 404, b'{"error": {"message": "no such route"}}')
        else:
            body = handler.rfile.read(int(handler.headers["content-length"]))
            self.requests.append(json.loads(body))
            if self.answers:
                self._stream(handler, self.answers.pop(0))
            else:
                send(handler, 429, b'{"error": {"message": "Enough for today."}}')

    def _stream(self, handler: Handler, deltas: list[dict[str, str]]) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        *first, last = deltas
        for delta in first:
            handler.wfile.write(event(delta))
        if not self.hold.is_set():
            handler.rfile.read(1)  # until the client hangs up
            self.hung_up.set()
            return
        handler.wfile.write(event(last) + b"data: [DONE]\n\n")
        handler.close_connection = True

    def said(self, index: int) -> list[tuple[str, str]]:
        """The messages of a request: role and content."""
        return [(each["role"], each["content"]) for each in self.requests[index]["messages"]]


def event(delta: dict[str, str]) -> bytes:
    chunk = {
        "id": "chat",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "one",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer()
    with serving(server.answer) as url:
        server.url = f"{url}/v1"
        yield server


def test_chat_through_a_pipe_prints_the_answers_alone(server: ChatServer) -> None:
    server.answers = [[{"content": "Hel"}, {"content": "lo."}], [{"content": "Bye."}]]
    result = llama_compat("chat", "--base-url", server.url, stdin="Hi\n\nGo\n")
    assert (result.exit_code, result.stdout) == (0, "Hello.\nBye.\n")
    assert server.requests[0] == {
        "model": "one",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }
    assert server.said(1) == [("user", "Hi"), ("assistant", "Hello."), ("user", "Go")]


def test_chat_sends_what_it_is_told_to(server: ChatServer) -> None:
    server.answers = [[{"content": "Arr."}]]
    options = ["--model", "two", "--system", "A pirate.", "--temperature", "0"]
    options += ["--max-tokens", "5", "--api-key", "secret"]
    result = llama_compat("chat", "--base-url", server.url, *options, stdin="Hi\n")
    assert result.exit_code == 0
    assert server.keys == ["Bearer secret"]
    assert server.said(0) == [("system", "A pirate."), ("user", "Hi")]
    [request] = server.requests
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("two", 0, 5)


def test_chat_resets_and_exits(server: ChatServer) -> None:
    server.answers = [[{"content": "One."}], [{"content": "Two."}], [{"content": "Three."}]]
    stdin = "first\n/reset\nsecond\n/exit\nnever sent\n"
    result = llama_compat("chat", "--base-url", server.url, "--system", "Be brief.", stdin=stdin)
    assert (result.exit_code, result.stdout) == (0, "One.\nTwo.\n")
    assert server.said(1) == [("system", "Be brief."), ("user", "second")]


def test_chat_shows_reasoning_apart_and_does_not_send_it_back(server: ChatServer) -> None:
    server.answers = [[{"reasoning_content": "Hm."}, {"content": "4"}], [{"content": "5"}]]
    result = llama_compat("chat", "--base-url", server.url, stdin="2+2\n2+3\n")
    assert result.stdout == "Hm.\n\n4\n5\n"
    assert server.said(1)[1] == ("assistant", "4")


def test_chat_lets_no_model_control_the_terminal(server: ChatServer) -> None:
    server.answers = [[{"content": "a\x1b[2J\x07b\tc\n[bold]d"}]]
    result = llama_compat("chat", "--base-url", server.url, stdin="Hi\n")
    assert result.stdout == "a[2Jb\tc\n[bold]d\n"


def test_chat_ends_with_what_the_server_said_was_wrong(server: ChatServer) -> None:
    result = llama_compat("chat", "--base-url", server.url, stdin="Hi\nAgain\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "The server answered 429: Enough for today.\n"
    assert len(server.requests) == 1


def test_chat_without_a_server_is_one_sentence_with_what_mends_it() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        result = llama_compat("chat", "--base-url", url, stdin="Hi\n")
    assert result.exit_code == 1
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"No server answers at {url}. Start one (llama-compat run ")


def test_chat_at_the_wrong_path_says_so(server: ChatServer) -> None:
    url = server.url.removesuffix("/v1")
    result = llama_compat("chat", "--base-url", url, stdin="Hi\n")
    assert result.exit_code == 1
    assert result.stderr == f"There is no OpenAI API at {url}: should that end in /v1?\n"


def test_ctrl_c_stops_the_answer_and_not_the_chat(server: ChatServer) -> None:
    server.answers = [[{"content": "half"}, {"content": "never"}], [{"content": "whole"}]]
    server.hold.clear()
    terminal = Terminal("chat", "--base-url", server.url)
    terminal.read_until("> ")
    terminal.type("one\n")
    terminal.read_until("half")
    terminal.type("\x03")
    terminal.read_until("[stopped]")
    assert server.hung_up.wait(30)
    server.hold.set()
    terminal.type("two\n")
    terminal.read_until("whole")
    terminal.read_until("> ")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert server.said(1) == [("user", "one"), ("assistant", "half"), ("user", "two")]


class Terminal:
    """A `llama-compat` process with a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            environment = {**os.environ, "TERM": "dumb", "OPENAI_API_KEY": "none"}
            os.execve(COMMAND, [COMMAND, *arguments], environment)
        self._unread = ""

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def read_until(self, text: str) -> None:
        """Read until `text` has been printed; fails if the process ends first."""
        while text not in self._unread:
            try:
                self._unread += os.read(self._terminal, 4096).decode()
            except OSError:
                pytest.fail(f"{text!r} was never printed; what was: {self._unread!r}")
        self._unread = self._unread.split(text, 1)[1]

    def wait(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)
