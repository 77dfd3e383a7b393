"""Replies that are relayed in every client's own language, and given again: the same bytes in the
same form, and in another form, or to another API, what was said in them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.interactions_vendor import InteractionsVendor
from tests.integration.native_suite import Reply
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_native_ollama import OllamaVendor

# What vendors say is passed on as it is.
pytestmark = pytest.mark.undocumented

TEXT = "It is 20 °C. 🌞"
_numbers = itertools.count()


def question() -> str:
    """One that nobody has asked yet."""
    return f"How warm is it? ({next(_numbers)})"


# What the vendors say -----------------------------------------------------------------------------


def response(text: str = TEXT, status: str = "completed", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": status}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
        "model": "theirs",
        "output": [{**said, "content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 30, "output_tokens": 25, "total_tokens": 55},
    }


def response_stream(whole: dict[str, Any]) -> bytes:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    item, (part,) = whole["output"][0], whole["output"][0]["content"]
    place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": part["text"]},
        {"type": "response.output_text.done", **place, "text": part["text"]},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{whole['status']}", "response": whole},
    ]
    return b"".join(
        b"event: %b\ndata: %b\n\n"
        % (
            str(each["type"]).encode(),
            json.dumps({**each, "sequence_number": number}).encode(),
        )
        for number, each in enumerate(events)
    )


def text_completion(text: str, reason: str | None) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_790_000_000,
        "model": "theirs",
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}],
    }


def completion_stream(text: str, reason: str) -> bytes:
    chunks = [text_completion(text[:3], None), text_completion(text[3:], reason)]
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks) + (
        b"data: [DONE]\n\n"
    )


def generated(text: str, reason: str | None) -> dict[str, Any]:
    line: dict[str, Any] = {"model": "theirs", "created_at": "2026-11-23T00:00:00Z"}
    line |= {"response": text, "done": reason is not None}
    counts = {"done_reason": reason, "prompt_eval_count": 30, "eval_count": 25}
    return line if reason is None else line | counts


def answers(server: NativeVendor, whole: Any, stream: bytes, kind: str) -> None:
    body = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
    server.will_answer(Answer([body]), streamed=Answer([stream], content_type=kind))


@dataclass
class Wire:
    """One client API that is relayed.

    Attributes:
        path: where it is, below the server's URL.
        asks: the members of a request that asks a question.
        said: the text of a whole reply.
        says: has its vendor say a text, cut or not.
        chats: whether a chat asks for the same.
    """

    path: str
    asks: Callable[[str], dict[str, Any]]
    said: Callable[[dict[str, Any]], str]
    says: Callable[[NativeVendor, str, bool], None]
    chats: bool = True


def _ollama_says(server: NativeVendor, text: str, cut: bool) -> None:
    OllamaVendor(server, "").will_say(Reply(text=text, stop="length" if cut else "end"))


def _ollama_generates(server: NativeVendor, text: str, cut: bool) -> None:
    reason = "length" if cut else "stop"
    lines = [generated(text[:3], None), generated(text[3:], None), generated("", reason)]
    stream = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    answers(server, generated(text, reason), stream, "application/x-ndjson")


def _google_says(server: NativeVendor, text: str, cut: bool) -> None:
    InteractionsVendor(server, "").will_say(Reply(text=text, stop="length" if cut else "end"))


def _openai_responds(server: NativeVendor, text: str, cut: bool) -> None:
    whole = response(text, "incomplete" if cut else "completed")
    answers(server, whole, response_stream(whole), "text/event-stream")


def _openai_completes(server: NativeVendor, text: str, cut: bool) -> None:
    reason = "length" if cut else "stop"
    usage = {"prompt_tokens": 30, "completion_tokens": 25, "total_tokens": 55}
    whole = {**text_completion(text, reason), "usage": usage}
    answers(server, whole, completion_stream(text, reason), "text/event-stream")


WIRES: dict[str, Wire] = {
    "ollama": Wire(
        "/api/chat",
        lambda text: {"model": "ollama", "messages": [{"role": "user", "content": text}]},
        lambda body: body["message"]["content"],
        _ollama_says,
    ),
    "ollama_generate": Wire(
        "/api/generate",
        lambda text: {"model": "ollama", "prompt": text},
        lambda body: body["response"],
        _ollama_generates,
    ),
    "ollama_raw": Wire(
        "/api/generate",
        lambda text: {"model": "ollama", "prompt": text, "raw": True},
        lambda body: body["response"],
        _ollama_generates,
        chats=False,
    ),
    "interactions": Wire(
        "/v1beta/interactions",
        lambda text: {"model": "gemini", "input": text},
        lambda body: body["steps"][-1]["content"][0]["text"],
        _google_says,
    ),
    "responses": Wire(
        "/v1/responses",
        lambda text: {"model": "openai", "input": text},
        lambda body: body["output"][0]["content"][0]["text"],
        _openai_responds,
    ),
    "completions": Wire(
        "/v1/completions",
        lambda text: {"model": "openai", "prompt": text},
        lambda body: body["choices"][0]["text"],
        _openai_completes,
        chats=False,
    ),
}


@dataclass
class Gateway:
    """A server with a cache, and the vendors behind it by the models that they have."""

    server: ServerProcess
    vendors: dict[str, NativeVendor] = field(default_factory=dict)

    def ask(self, name: str, text: str, *, stream: bool, **more: Any) -> wire.Reply:
        asked = WIRES[name]
        body = {**asked.asks(text), "stream": stream, **more}
        return wire.request("POST", f"{self.server.url}{asked.path}", body)

    def behind(self, name: str) -> NativeVendor:
        return self.vendors[WIRES[name].asks("")["model"]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with ExitStack() as stack:
        vendors = {
            name: stack.enter_context(NativeVendor()) for name in ("ollama", "gemini", "openai")
        }
        gemini = {"base_url": vendors["gemini"].url, "api_key": "x", "apis": ["interactions"]}
        openai = {"base_url": f"{vendors['openai'].url}/v1", "api_key": "x"}
        template = write_template(
            Path(tmp_path_factory.mktemp("relayed")) / "relayed.yaml",
            server={"cache": {"exact": {"sampled": True, "tools": True}}},
            providers=[
                {
                    "id": "ollama",
                    "type": "remote::ollama-native",
                    "config": {"base_url": vendors["ollama"].url},
                },
                {"id": "gemini", "type": "remote::gemini-native", "config": gemini},
                {
                    "id": "openai",
                    "type": "remote::openai",
                    "config": {**openai, "wires": ["chat", "completions", "responses"]},
                },
            ],
            models=[{"id": name, "provider": name, "provider_model": "theirs"} for name in vendors],
        )
        yield Gateway(stack.enter_context(running(template)), vendors)


def outcome(reply: wire.Reply) -> str:
    assert reply.status == 200, reply.body
    return str(reply.headers["x-llama-compat-cache"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", WIRES)
def test_the_same_bytes_are_given_again(gateway: Gateway, name: str, stream: bool) -> None:
    vendor, text = gateway.behind(name), question()
    WIRES[name].says(vendor, TEXT, False)
    first, again = (gateway.ask(name, text, stream=stream) for _ in range(2))
    assert [outcome(first), outcome(again)] == ["miss", "hit"]
    assert first.body == again.body
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(vendor.received) == 1


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_is_given_whole(gateway: Gateway, name: str) -> None:
    vendor, text = gateway.behind(name), question()
    WIRES[name].says(vendor, TEXT, False)
    assert outcome(gateway.ask(name, text, stream=True)) == "miss"
    whole = gateway.ask(name, text, stream=False)
    assert (outcome(whole), WIRES[name].said(whole.json())) == ("hit", TEXT)
    assert len(vendor.received) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", [name for name, each in WIRES.items() if each.chats])
def test_a_chat_is_told_what_they_were(gateway: Gateway, name: str, stream: bool) -> None:
    vendor, text = gateway.behind(name), question()
    WIRES[name].says(vendor, TEXT, False)
    assert outcome(gateway.ask(name, text, stream=stream)) == "miss"
    chat = {
        "model": WIRES[name].asks("")["model"],
        "messages": [{"role": "user", "content": text}],
    }
    told = wire.request("POST", f"{gateway.server.base_url}/chat/completions", chat)
    assert outcome(told) == "hit"
    assert told.json()["choices"][0]["message"]["content"] == TEXT
    assert told.json()["usage"]["completion_tokens"] == 25
    assert len(vendor.received) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", WIRES)
def test_what_is_cut_is_asked_again(gateway: Gateway, name: str, stream: bool) -> None:
    WIRES[name].says(gateway.behind(name), TEXT, True)
    text = question()
    assert [outcome(gateway.ask(name, text, stream=stream)) for _ in range(2)] == ["miss"] * 2


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("responses", {"conversation": "conv_1"}),
        ("responses", {"background": True}),
        ("interactions", {"background": True}),
    ],
)
def test_what_does_more_than_ask_is_never_the_same(
    gateway: Gateway, name: str, member: dict[str, Any]
) -> None:
    WIRES[name].says(gateway.behind(name), TEXT, False)
    text = question()
    asked = [gateway.ask(name, text, stream=False, **member) for _ in range(2)]
    assert [outcome(each) for each in asked] == ["bypass"] * 2


def test_a_response_with_more_in_it_is_given_in_its_own_form_alone(gateway: Gateway) -> None:
    vendor, text = gateway.vendors["openai"], question()
    cited = {"type": "url_citation", "url": "https://x.test", "start_index": 0, "end_index": 2}
    whole = response(annotations=[{**cited, "title": "X"}])
    answers(vendor, whole, response_stream(whole), "text/event-stream")
    assert [outcome(gateway.ask("responses", text, stream=True)) for _ in range(2)] == [
        "miss",
        "hit",
    ]
    assert outcome(gateway.ask("responses", text, stream=False)) == "miss"
    assert len(vendor.received) == 2
