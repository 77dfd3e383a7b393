"""The official Ollama client, in front of a vendor that speaks OpenAI, of Ollama, and of echo."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from llama_compat.dialects.ollama.models import API_VERSION
from tests.integration import chat_vendor, wire
from tests.integration.native_suite import PIXEL
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template

HI = [{"role": "user", "content": "Hi"}]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

KEY = "vendor-key-that-nobody-sees"


@pytest.fixture(scope="module")
def vendor() -> Iterator[NativeVendor]:
    with NativeVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(
    vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = {"base_url": vendor.url, "api_key": KEY}
    template = write_template(
        tmp_path_factory.mktemp("ollama") / "clients.yaml",
        providers=[
            {"id": "openai", "type": "remote::passthrough", "config": config},
            {"id": "dropping", "type": "local::echo", "config": {"unsupported": "drop"}},
            {"id": "slow", "type": "local::echo", "config": {"delay_ms": 50}},
            {"id": "ollama", "type": "remote::ollama-native", "config": config},
            {
                "id": "alive",
                "type": "remote::passthrough",
                "config": {**config, "keepalive_seconds": 0.05},
            },
        ],
        models=[
            {"id": "bridged", "provider": "openai", "provider_model": "own"},
            {"id": "echo", "provider": "dropping"},
            {"id": "slow", "provider": "slow"},
            {"id": "org/relayed", "provider": "ollama", "provider_model": "llama3:8b"},
            {
                "id": "long",
                "provider": "ollama",
                "provider_model": "llama3",
                "context_length": 8192,
            },
            {"id": "alive", "provider": "alive", "provider_model": "own"},
        ],
    )
    with running(template) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> ollama.Client:
    return ollama.Client(host=server.url, timeout=60)


# --------------------------------------------------------------------------------------------------
# A vendor that speaks OpenAI
# --------------------------------------------------------------------------------------------------


def test_says_what_the_model_says(vendor: NativeVendor, client: ollama.Client) -> None:
    chat_vendor.will_say(vendor, "It is 20 °C. 🌞", thoughts="Look outside.")
    whole = client.chat("bridged", HI, think=True)
    assert (whole.model, whole.message.role) == ("bridged", "assistant")
    assert (whole.message.content, whole.message.thinking) == ("It is 20 °C. 🌞", "Look outside.")
    assert (whole.done, whole.done_reason) == (True, "stop")
    assert (whole.prompt_eval_count, whole.eval_count) == (30, 20)
    asked = vendor.last.body
    assert (asked["model"], asked["messages"], asked["reasoning_effort"]) == ("own", HI, "medium")
    lines = list(client.chat("bridged", HI, stream=True))
    assert "".join(line.message.content or "" for line in lines) == "It is 20 °C. 🌞"
    assert "".join(line.message.thinking or "" for line in lines) == "Look outside."
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (lines[-1].prompt_eval_count, lines[-1].eval_count) == (30, 20)
    assert (lines[-1].total_duration or 0) > 0


def test_a_stream_is_what_is_meant_unless_it_is_refused(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    chat_vendor.will_say(vendor, "Hello, you")
    url = f"{server.url}/api/chat"
    streamed = wire.request("POST", url, {"model": "bridged", "messages": HI})
    assert streamed.headers["content-type"] == "application/x-ndjson"
    assert len(streamed.body.splitlines()) == 3
    assert vendor.last.body["stream"] is True
    whole = wire.request("POST", url, {"model": "bridged", "messages": HI, "stream": False})
    assert whole.headers["content-type"] == "application/json"
    assert whole.json()["message"]["content"] == "Hello, you"
    assert "stream" not in vendor.last.body


def test_calls_tools_and_takes_their_answers(vendor: NativeVendor, client: ollama.Client) -> None:
    calls = [("get_weather", {"city": "Zürich"}), ("get_weather", {"city": "Bern"})]
    chat_vendor.will_say(vendor, "Let me see.", calls=calls)
    whole = client.chat("bridged", HI, tools=[WEATHER]).message
    assert vendor.last.body["tools"] == [WEATHER]
    made = [(each.function.name, each.function.arguments) for each in whole.tool_calls or ()]
    assert made == calls
    lines = list(client.chat("bridged", HI, tools=[WEATHER], stream=True))
    streamed = [call for line in lines for call in line.message.tool_calls or ()]
    assert [(each.function.name, each.function.arguments) for each in streamed] == calls
    chat_vendor.will_say(vendor, "Sunny, and rain.")
    history: list[Any] = [
        *HI,
        whole,
        {"role": "tool", "tool_name": "get_weather", "content": "sunny"},
        {"role": "tool", "tool_name": "get_weather", "content": "rain"},
    ]
    assert client.chat("bridged", history, tools=[WEATHER]).message.content == "Sunny, and rain."
    _, called, first, second = vendor.last.body["messages"]
    ids = [call["id"] for call in called["tool_calls"]]
    assert len(set(ids)) == 2
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert (first["content"], second["content"]) == ("sunny", "rain")


def test_sends_options_images_and_formats(vendor: NativeVendor, client: ollama.Client) -> None:
    chat_vendor.will_say(vendor, "{}")
    image = base64.b64decode(PIXEL.partition(",")[2])
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    client.chat(
        "bridged",
        [{"role": "user", "content": "Look:", "images": [image]}],
        options={
            "temperature": 0.5,
            "top_k": 4,
            "num_predict": 7,
            "stop": ["END"],
            "seed": 1,
            "repeat_penalty": 1.2,
            "num_ctx": 4096,
            "num_gpu": 1,
        },
        format=schema,
        keep_alive="5m",
    )
    asked = vendor.last.body
    assert asked["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "text", "text": "Look:"},
    ]
    assert asked["response_format"]["json_schema"]["schema"] == schema
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    assert (asked["temperature"], asked["top_k"], limit, asked["stop"]) == (0.5, 4, 7, ["END"])
    assert (asked["seed"], asked["repetition_penalty"]) == (1, 1.2)
    client.chat("bridged", HI, format="json")
    assert vendor.last.body["response_format"] == {"type": "json_object"}
    assert vendor.last.body.keys() == {"model", "messages", "response_format"}


def test_gives_log_probabilities(vendor: NativeVendor, client: ollama.Client) -> None:
    other = {"token": "Yo", "logprob": -2.0, "bytes": [89, 111]}
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [other]}
    chat_vendor.will_say(vendor, "Hi", logprobs={"content": [token], "refusal": None})
    whole = client.chat("bridged", HI, logprobs=True, top_logprobs=1).logprobs or ()
    assert [(each.token, each.logprob) for each in whole] == [("Hi", -0.5)]
    assert [each.token for each in whole[0].top_logprobs or ()] == ["Yo"]
    assert (vendor.last.body["logprobs"], vendor.last.body["top_logprobs"]) == (True, 1)
    lines = client.chat("bridged", HI, logprobs=True, top_logprobs=1, stream=True)
    assert [each for line in lines for each in line.logprobs or ()] == list(whole)


def test_generates(vendor: NativeVendor, client: ollama.Client) -> None:
    chat_vendor.will_say(vendor, "Fine.", thoughts="Hm")
    whole = client.generate("bridged", "How are you?", system="Be brief.")
    assert (whole.response, whole.thinking, whole.eval_count) == ("Fine.", "Hm", 20)
    assert vendor.last.path == "/chat/completions"
    assert vendor.last.body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How are you?"},
    ]
    lines = list(client.generate("bridged", "How are you?", stream=True))
    assert "".join(line.response or "" for line in lines) == "Fine."
    choice = {"index": 0, "text": " upon a time", "logprobs": None, "finish_reason": "length"}
    completion = {"id": "c", "object": "text_completion", "created": 1, "model": "own"}
    vendor.will_answer(Answer([json.dumps({**completion, "choices": [choice]}).encode()]))
    raw = client.generate("bridged", "Once", raw=True, options={"num_predict": 3})
    assert (raw.response, raw.done_reason) == (" upon a time", "length")
    assert vendor.last.path == "/completions"
    assert (vendor.last.body["prompt"], vendor.last.body["max_tokens"]) == ("Once", 3)


def test_embeds(vendor: NativeVendor, client: ollama.Client) -> None:
    data = [
        {"object": "embedding", "index": index, "embedding": [index + 0.5, 2.0]} for index in (0, 1)
    ]
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    reply = {"object": "list", "model": "own", "data": data, "usage": usage}
    vendor.will_answer(Answer([json.dumps(reply).encode()]))
    embedded = client.embed("bridged", ["a", "b"], dimensions=2)
    assert (embedded.embeddings, embedded.model) == ([[0.5, 2.0], [1.5, 2.0]], "bridged")
    assert embedded.prompt_eval_count == 4
    assert (vendor.last.body["input"], vendor.last.body["dimensions"]) == (["a", "b"], 2)
    reply["data"] = data[:1]
    vendor.will_answer(Answer([json.dumps(reply).encode()]))
    assert client.embeddings("bridged", "a").embedding == [0.5, 2.0]


def test_tells_of_the_vendors_errors(vendor: NativeVendor, client: ollama.Client) -> None:
    error = {"error": {"message": "Slow down", "type": "rate_limit_error"}}
    vendor.will_answer(Answer([json.dumps(error).encode()], status=429))
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError) as raised:
            list(client.chat("bridged", HI, stream=stream))  # type: ignore[call-overload]
        assert (raised.value.status_code, raised.value.error) == (429, "Slow down")
    vendor.will_answer(Answer([b'{"error": {"message": "bad key"}}'], status=401))
    with pytest.raises(ollama.ResponseError, match="API key configured for it") as raised:
        client.chat("bridged", HI)
    assert raised.value.status_code == 502


def test_a_stream_that_is_cut_says_so(vendor: NativeVendor, client: ollama.Client) -> None:
    chat_vendor.will_break_off(vendor)
    lines = client.chat("bridged", HI, stream=True)
    assert next(lines).message.content == "It is"
    with pytest.raises(ollama.ResponseError, match="openai"):
        list(lines)


@pytest.mark.parametrize("model", ["bridged", "org/relayed"])
def test_a_client_that_leaves_takes_the_vendor_along(
    vendor: NativeVendor, server: ServerProcess, model: str
) -> None:
    if model == "bridged":
        chat_vendor.will_break_off(vendor, hold=True)
    else:
        vendor.will_answer(Answer([_line("It is")], hold=True))
    body = {"model": model, "messages": HI}
    with wire.open_reply("POST", f"{server.url}/api/chat", body) as reply:
        assert json.loads(reply.readline())["message"]["content"] == "It is"
    assert vendor.hung_up.wait(20)


@pytest.mark.parametrize("status", [200, 429])
def test_a_silent_stream_is_kept_alive(
    vendor: NativeVendor, server: ServerProcess, status: int
) -> None:
    later = threading.Event()
    chat_vendor.will_say(vendor, "Hello", after=later, status=status)
    body = {"model": "alive", "messages": HI}
    with wire.open_reply("POST", f"{server.url}/api/chat", body) as reply:
        assert reply.read(2) == b"  "
        later.set()
        lines = [json.loads(line) for line in reply]
    assert [line.get("error") is None for line in lines] == (
        [True] * 2 if status == 200 else [False]
    )


# --------------------------------------------------------------------------------------------------
# Echo, and what there is without a model
# --------------------------------------------------------------------------------------------------


def test_stops_at_a_stop_string_and_at_the_limit(client: ollama.Client) -> None:
    said = client.chat(
        "echo", [{"role": "user", "content": "a b END c"}], options={"stop": ["END"]}
    )
    assert (said.message.content, said.done_reason) == ("a b ", "stop")
    said = client.chat("echo", [{"role": "user", "content": "a b c"}], options={"num_predict": 2})
    assert (said.message.content, said.done_reason, said.eval_count) == ("a b ", "length", 2)


def test_what_can_t_be_honoured_is_refused_or_dropped_by_its_path(server: ServerProcess) -> None:
    asked = {"messages": HI, "format": "json", "options": {"mirostat": 1}, "stream": False}
    url = f"{server.url}/api/chat"
    refused = wire.request("POST", url, {"model": "slow", **asked})
    assert refused.status == 400
    assert set(refused.json()) == {"error"}
    assert "'format'" in refused.json()["error"]
    dropped = wire.request("POST", url, {"model": "echo", **asked})
    assert dropped.json()["message"]["content"] == "Hi"
    named = {name.strip() for name in dropped.headers["x-llama-compat-dropped"].split(",")}
    assert named == {"format", "options.mirostat"}


def test_models(client: ollama.Client, server: ServerProcess) -> None:
    names = ["bridged", "echo", "slow", "org/relayed", "long", "alive"]
    assert [model.model for model in client.list().models] == names
    assert {"completion", "tools"} <= set(client.show("echo:latest").capabilities or ())
    assert [model.name for model in client.ps().models] == ["echo", "slow"]
    for model in ("echo", "echo:latest"):
        said = client.chat(model, HI)
        assert (said.model, said.message.content) == (model, "Hi")
    version = wire.request("GET", f"{server.url}/api/version").json()
    assert version == {"version": API_VERSION}
    for path in ("/", "/api/version", "/api/tags"):
        assert wire.request("HEAD", server.url + path).status == 200


def test_requests_for_nothing(client: ollama.Client) -> None:
    assert client.chat("echo", []).done_reason == "load"
    assert client.generate("echo", keep_alive=0).done_reason == "unload"
    assert client.generate("echo", "Hi", keep_alive=0).response == "Hi"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/chat", {"model": "none", "messages": HI}, 404),
        ("POST", "/api/show", {"model": "none"}, 404),
        ("POST", "/api/show", {}, 400),
        ("POST", "/api/chat", {"messages": HI}, 400),
        ("POST", "/api/chat", b"{", 400),
        ("POST", "/api/embed", {"model": "echo", "input": "a", "dimensions": 5000}, 400),
        ("GET", "/api/chat", None, 405),
        ("POST", "/api/tags", {}, 405),
        ("GET", "/api/nowhere", None, 404),
        ("POST", "/api/pull", {"model": "llama3"}, 501),
        ("POST", "/api/push", {"model": "llama3"}, 501),
        ("POST", "/api/create", {"model": "llama3"}, 501),
        ("POST", "/api/copy", {"source": "a", "destination": "b"}, 501),
        ("DELETE", "/api/delete", {"model": "llama3"}, 501),
        ("POST", "/api/blobs/sha256:0", b"x", 501),
    ],
)
def test_errors_have_ollamas_shape(
    server: ServerProcess, method: str, path: str, body: Any, status: int
) -> None:
    reply = wire.request(method, server.url + path, body)
    assert reply.status == status
    assert list(reply.json()) == ["error"]
    assert isinstance(reply.json()["error"], str)
    assert reply.headers["x-request-id"]


# --------------------------------------------------------------------------------------------------
# Ollama itself: bytes there and back
# --------------------------------------------------------------------------------------------------


def _line(text: str, **members: Any) -> bytes:
    message = {"role": "assistant", "content": text}
    line = {"model": "llama3:8b", "message": message, "done": False, **members}
    return json.dumps(line).encode() + b"\n"


LAST = _line("", done=True, done_reason="stop", prompt_eval_count=3, eval_count=2, novelty=1.0)


def test_relays_bytes(vendor: NativeVendor, server: ServerProcess) -> None:
    vendor.will_answer(Answer([LAST]), streamed=Answer([_line("Hi"), LAST[:20], LAST[20:]]))
    sent = b'{"novel": 1.0, "model": "org/relayed", "messages": [], "stream": false, "n": 1e2}'
    headers = {"x-request-id": "mine"}
    whole = wire.request("POST", f"{server.url}/api/chat", sent, headers)
    asked = vendor.last
    assert (asked.method, asked.path) == ("POST", "/api/chat")
    assert (asked.headers["authorization"], asked.headers["x-request-id"]) == (
        f"Bearer {KEY}",
        "mine",
    )
    assert asked.content == (
        b'{"novel":1.0,"model":"llama3:8b","messages":[],"stream":false,"n":1e2}'
    )
    relayed = {**json.loads(LAST), "model": "org/relayed"}
    assert whole.json() == relayed
    assert b'"novelty":1.0' in whole.body
    streamed = wire.request("POST", f"{server.url}/api/chat", sent.replace(b"false", b"true"))
    first, last = (json.loads(line) for line in streamed.body.splitlines())
    assert (first["message"]["content"], first["model"]) == ("Hi", "org/relayed")
    assert last == relayed


def test_relays_every_call(vendor: NativeVendor, client: ollama.Client) -> None:
    vendor.will_answer(Answer([b'{"model": "llama3:8b", "response": "Hi", "done": true}']))
    assert client.generate("org/relayed", "x", suffix="y", context=[1]).response == "Hi"
    assert (vendor.last.path, vendor.last.body["suffix"]) == ("/api/generate", "y")
    vendor.will_answer(Answer([b'{"model": "llama3:8b", "embeddings": [[1.0]]}']))
    embedded = client.embed("org/relayed:latest", "a")
    assert (embedded.model, embedded.embeddings) == ("org/relayed:latest", [[1.0]])
    vendor.will_answer(Answer([b'{"embedding": [1.0]}']))
    assert client.embeddings("org/relayed", "a").embedding == [1.0]
    vendor.will_answer(Answer([b'{"model": "llama3:8b", "done": true, "done_reason": "load"}']))
    assert client.generate("org/relayed").done_reason == "load"
    assert vendor.last.path == "/api/generate"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (None, {"num_ctx": 8192}),
        ({"seed": 1}, {"num_ctx": 8192, "seed": 1}),
        ({"num_ctx": 5}, {"num_ctx": 5}),
        ([], []),
    ],
)
def test_the_template_says_with_how_much_context_a_model_is_loaded(
    vendor: NativeVendor, server: ServerProcess, options: Any, sent: Any
) -> None:
    vendor.will_answer(Answer([LAST]))
    body = {"model": "long", "messages": HI, "options": options}
    wire.request("POST", f"{server.url}/api/chat", body)
    assert vendor.last.body["options"] == sent
    wire.request("POST", f"{server.url}/api/embed", {"model": "long", "input": "a"})
    assert "options" not in vendor.last.body


def test_relays_errors_as_they_are(vendor: NativeVendor, server: ServerProcess) -> None:
    body = {"model": "org/relayed", "messages": HI}
    url = f"{server.url}/api/chat"
    for stream in (False, True):
        own = b'{ "error": "model \'llama3:8b\' not found", "novelty": 1.0 }'
        vendor.will_answer(Answer([own], status=404))
        reply = wire.request("POST", url, {**body, "stream": stream})
        assert (reply.status, reply.body) == (404, own)
        vendor.will_answer(Answer([b'{"error": "key %b"}' % KEY.encode()], status=500))
        reply = wire.request("POST", url, {**body, "stream": stream})
        assert (reply.status, reply.body) == (500, b'{"error": "key ***"}')
        vendor.will_answer(Answer([b'{"error": "unauthorized"}'], status=401))
        reply = wire.request("POST", url, {**body, "stream": stream})
        assert reply.status == 502
        assert "API key configured for it" in reply.json()["error"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer([_line("Hi"), b'{"error":"out of memory"}\n']), "out of memory"),
        (Answer([_line("Hi"), b"nonsense\n"]), "makes no sense"),
        (Answer([_line("Hi"), LAST[:20]], break_off=True), "ollama"),
        (Answer([_line("Hi"), LAST[:20]]), "makes no sense"),
        (Answer([_line("Hi")]), "before the reply was complete"),
    ],
)
def test_a_relayed_stream_that_fails_says_so(
    vendor: NativeVendor, client: ollama.Client, answer: Answer, message: str
) -> None:
    vendor.will_answer(answer)
    lines = client.chat("org/relayed", HI, stream=True)
    assert next(lines).message.content == "Hi"
    with pytest.raises(ollama.ResponseError, match=message):
        list(lines)


@pytest.mark.parametrize("body", [b"<html><title>Hello</title>", b"", b"[1]", b"nonsense"])
def test_what_is_no_stream_is_an_error_of_its_own(
    vendor: NativeVendor, server: ServerProcess, body: bytes
) -> None:
    vendor.will_answer(Answer([body] if body else []))
    reply = wire.request("POST", f"{server.url}/api/chat", {"model": "org/relayed"})
    assert reply.status == 502
    assert "ollama" in reply.json()["error"]
