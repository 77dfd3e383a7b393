"""A conversation through a pipe, and with somebody at a terminal."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local_server import Handler, send, serving
from tests.unit.routing.cli.terminals import Terminal
from tests.unit.routing.cli.test_commands import llama_compat, two_models


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
    server.answers = [[{"content": "a\x1b[2J\x07b\u202e\tc\n[bold]d :cat:"}]]
    result = llama_compat("chat", "--base-url", server.url, stdin="Hi\n")
    assert result.stdout == "a[2Jb\tc\n[bold]d :cat:\n"


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


@pytest.mark.program
def test_ctrl_c_stops_the_answer_and_not_the_chat(server: ChatServer) -> None:
    server.answers = [[{"content": "half"}, {"content": "never"}], [{"content": "whole"}]]
    server.hold.clear()
    terminal = Terminal("chat", "--base-url", server.url)
    terminal.read_until("> ")
    terminal.type("one\n")
    terminal.read_until("half")
    terminal.type("\x03")
    assert "[stopped]\r\n" in terminal.read_until("> ")
    assert server.hung_up.wait(30)
    server.hold.set()
    terminal.type("two\n")
    terminal.read_until("whole")
    terminal.read_until("> ")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert server.said(1) == [("user", "one"), ("assistant", "half"), ("user", "two")]


# Commands -----------------------------------------------------------------------------------------


@pytest.fixture
def talk(server: ChatServer, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Begins a conversation in a terminal, with an answer for each of several questions."""
    terminals: list[Terminal] = []

    def begin(*answers: str, term: str = "dumb") -> Terminal:
        server.answers = [[{"content": answer}] for answer in answers]
        state = str(tmp_path / "state")
        terminal = Terminal("chat", "--base-url", server.url, term=term, XDG_STATE_HOME=state)
        terminals.append(terminal)
        terminal.read_until("> ")
        return terminal

    yield begin
    for each in terminals:
        each.end()


def say(terminal: Terminal, line: str, shown: str) -> None:
    """Type a line; what has `shown` in it comes, and then the next may be typed."""
    terminal.type(f"{line}\n")
    terminal.read_until(shown)
    terminal.read_until("> ")


@pytest.mark.program
def test_another_model_answers_and_another_system_message_is_sent(
    server: ChatServer, talk: Callable[..., Terminal]
) -> None:
    terminal = talk("One.", "Two.")
    say(terminal, "/what", "There is no /what. /help says what there is")
    say(terminal, "/help", "/save FILE")
    say(terminal, "/model", "one answers. There are: one, two")
    say(terminal, "/system", "There is no system message.")
    say(terminal, "/system Be a pirate.", "Be a pirate.")
    say(terminal, "Hi", "One.")
    say(terminal, "/model three", "The server lists no model 'three'. There are: one, two")
    say(terminal, "/model two", "two answers from now on.")
    say(terminal, "/system none", "There is no system message.")
    say(terminal, "Again", "Two.")
    assert [each["model"] for each in server.requests] == ["one", "two"]
    assert server.said(0)[0] == ("system", "Be a pirate.")
    assert server.said(1)[0] == ("user", "Hi")


@pytest.mark.program
def test_a_picture_goes_with_what_is_said_next(
    server: ChatServer, talk: Callable[..., Terminal], tmp_path: Path
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG")
    terminal = talk("A cat.", "Yes.")
    say(terminal, f"/image {tmp_path / 'none.png'}", "can't be read: No such file")
    say(terminal, f"/image {tmp_path / 'cat.txt'}", "is no picture")
    say(terminal, f"/image {picture}", "1 picture will go with what you say next.")
    say(terminal, "/image https://example.com/dog.png", "2 pictures will go")
    say(terminal, "What is it?", "A cat.")
    say(terminal, "Sure?", "Yes.")
    asked, answered, again = server.requests[1]["messages"]
    data = base64.b64encode(b"\x89PNG").decode()
    assert asked["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/dog.png"}},
    ]
    assert (answered["content"], again["content"]) == ("A cat.", "Sure?")


@pytest.mark.program
def test_what_is_said_may_have_more_than_one_line_and_is_remembered(
    server: ChatServer, talk: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = talk("A.", "B.", "C.")
    terminal.type('"""one\n')
    terminal.read_until("… ")
    terminal.type("\n")
    terminal.read_until("… ")
    say(terminal, 'two"""', "A.")
    terminal.type("three\\\n")
    terminal.read_until("… ")
    say(terminal, "four", "B.")
    say(terminal, '"""five"""', "C.")
    said = [request["messages"][-1]["content"] for request in server.requests]
    assert said == ["one\n\ntwo", "three\nfour", "five"]
    terminal.type("\x04")
    assert terminal.wait() == 0
    history = tmp_path / "state" / "llama-compat" / "chat_history"
    assert "three\\" in history.read_text().splitlines()
    assert history.stat().st_mode & 0o777 == 0o600


@pytest.mark.program
def test_a_conversation_is_saved_and_no_file_is_written_over(
    talk: Callable[..., Terminal], tmp_path: Path
) -> None:
    text, data = tmp_path / "talk.md", tmp_path / "talk.json"
    terminal = talk("Hello.")
    say(terminal, "Hi", "Hello.")
    say(terminal, "/save", "Say where to")
    say(terminal, f"/save {text}", "is written.")
    say(terminal, f"/save {data}", "is written.")
    say(terminal, f"/save {text}", "is there already.")
    assert text.read_text() == "## user\n\nHi\n\n## assistant\n\nHello.\n"
    assert json.loads(data.read_text()) == {
        "model": "one",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
        ],
    }


@pytest.mark.program
def test_a_terminal_is_shown_markdown(talk: Callable[..., Terminal]) -> None:
    terminal = talk("# Title\n\nSome *text*:\n\n```python\nx = 1\n\ny = 2\n```\n", term="xterm")
    terminal.type("Hi\n")
    shown = ""
    while "y = 2" not in shown:  # the line that was typed may be shown once more before
        shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.read_until("> "))
    assert "Title" in shown
    assert "Some text:" in shown
    assert "```" not in shown.rpartition("Some text:")[2]
