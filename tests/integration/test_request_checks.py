"""What is refused before any work is done, each time in OpenAI's shape."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

MAX_BODY_BYTES = 100_000
CONTEXT_LENGTH = 40

CHAT: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "one two three"}]}
TEXT: dict[str, Any] = {"model": "echo", "prompt": "one two three"}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("checks") / "limited.yaml",
        server={"max_body_bytes": MAX_BODY_BYTES},
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "lenient", "type": "local::echo", "config": {"unsupported": "drop"}},
        ],
        models=[
            {"id": "echo", "provider": "echo", "context_length": CONTEXT_LENGTH},
            {"id": "lenient", "provider": "lenient", "provider_model": "echo"},
        ],
    )
    with running(template) as process:
        yield process


def refusal(server: ServerProcess, body: Any, path: str = "/chat/completions") -> dict[str, Any]:
    """The error of a request that has to be refused with 400."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = wire.request("POST", server.base_url + path, raw)
    assert reply.status == 400, reply.body
    error = reply.error()
    assert error["type"] == "invalid_request_error"
    return error


WRONG = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", "10"),
    ("max_tokens", True),
    ("max_completion_tokens", 0),
    ("max_completion_tokens", "ten"),
    ("n", 0),
    ("n", 129),
    ("n", "2"),
    ("n", 1.0),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", [1]),
    ("top_p", -0.1),
    ("top_p", 1.1),
    ("top_p", {}),
    ("stop", ["a"] * 65),
    ("stop", 5),
    ("stop", ["a", 1]),
    ("stop", [""]),
    ("stop", ""),
    ("seed", "one"),
    ("seed", 1.5),
    ("stream", "true"),
    ("stream", 1),
    ("frequency_penalty", 2.5),
    ("presence_penalty", -2.5),
    ("logit_bias", [1]),
    ("logit_bias", {"word": 1}),
]


@pytest.mark.parametrize(
    ("path", "question"), [("/chat/completions", CHAT), ("/completions", TEXT)]
)
@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_parameter_is_named(
    limited: ServerProcess, path: str, question: dict[str, Any], name: str, value: Any
) -> None:
    error = refusal(limited, {**question, name: value}, path)
    assert error["param"] == name
    assert name in error["message"]


@pytest.mark.parametrize("value", [[], "yes", {"include_usage": "yes"}, {"include_usage": 1}])
def test_wrong_stream_options_are_named(limited: ServerProcess, value: Any) -> None:
    error = refusal(limited, {**CHAT, "stream": True, "stream_options": value})
    assert error["param"].startswith("stream_options")


def test_stream_options_need_a_stream(limited: ServerProcess) -> None:
    error = refusal(limited, {**CHAT, "stream_options": {"include_usage": True}})
    assert error["param"] == "stream_options"


@pytest.mark.parametrize(
    ("name", "value"), [("logprobs", 21), ("logprobs", True), ("echo", 1), ("best_of", 0)]
)
def test_a_wrong_parameter_of_text_completions_is_named(
    limited: ServerProcess, name: str, value: Any
) -> None:
    assert refusal(limited, {**TEXT, name: value}, "/completions")["param"] == name


@pytest.mark.parametrize(
    ("name", "value"), [("logprobs", 5), ("top_logprobs", 21), ("top_logprobs", "all")]
)
def test_a_wrong_parameter_of_chats_is_named(limited: ServerProcess, name: str, value: Any) -> None:
    assert refusal(limited, {**CHAT, name: value})["param"] == name


@pytest.mark.parametrize(
    "name", ["max_tokens", "n", "temperature", "top_p", "stop", "seed", "stream", "stream_options"]
)
def test_null_is_the_same_as_not_set(limited: ServerProcess, name: str) -> None:
    for path, question in [("/chat/completions", CHAT), ("/completions", TEXT)]:
        reply = wire.request("POST", limited.base_url + path, {**question, name: None})
        assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        ([{"content": "hello"}], "messages[0].role"),
        ([{"role": "robot", "content": "hello"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "smell"}]}], "messages[0].content[0].type"),
        ([{"role": "tool", "content": "sunny"}], "messages[0].tool_call_id"),
        ([{"role": "user", "content": "a"}, {"role": "assistant"}], "messages[1].content"),
    ],
)
def test_a_malformed_message_is_named_by_its_path(
    limited: ServerProcess, messages: Any, param: str
) -> None:
    assert refusal(limited, {"model": "echo", "messages": messages})["param"] == param


@pytest.mark.parametrize(
    "prompt", [None, 5, [], {}, [1, "a"], [[1], []], [[1], ["a"]], [-1], [1.5]]
)
def test_a_malformed_prompt_is_refused(limited: ServerProcess, prompt: Any) -> None:
    assert (
        refusal(limited, {"model": "echo", "prompt": prompt}, "/completions")["param"] == "prompt"
    )


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_what_is_missing_is_named(limited: ServerProcess, missing: str) -> None:
    question = {name: value for name, value in CHAT.items() if name != missing}
    error = refusal(limited, question)
    assert error["param"] == missing
    assert error["code"] == "missing_required_parameter"


@pytest.mark.parametrize("model", ["", 5, ["echo"], None])
def test_a_model_is_a_string(limited: ServerProcess, model: Any) -> None:
    assert refusal(limited, {**CHAT, "model": model})["param"] == "model"


def test_an_unknown_model_is_404(limited: ServerProcess) -> None:
    for path, question in [("/chat/completions", CHAT), ("/completions", TEXT)]:
        reply = wire.request("POST", limited.base_url + path, {**question, "model": "no/such"})
        assert reply.status == 404
        error = reply.error()
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "no/such" in error["message"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_more_tokens_than_the_context_has_are_refused_with_the_numbers(
    limited: ServerProcess, name: str
) -> None:
    error = refusal(limited, {**CHAT, name: CONTEXT_LENGTH + 1})
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT_LENGTH) in error["message"]


def test_prompt_and_max_tokens_together_must_fit(limited: ServerProcess) -> None:
    error = refusal(limited, {**TEXT, "max_tokens": CONTEXT_LENGTH - 1}, "/completions")
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "max_tokens"
    assert str(CONTEXT_LENGTH) in error["message"]
    assert str(CONTEXT_LENGTH - 1) in error["message"]
    long = "word " * (CONTEXT_LENGTH + 1)
    error = refusal(limited, {**TEXT, "prompt": long, "max_tokens": 1}, "/completions")
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"model": "echo",}',
        b'{"model": "echo", "temperature": NaN}',
        b"[]",
        b'"text"',
        b"null",
        b"12",
        b'{"model": "\xff"}',
        b"[" * 50_000,
    ],
)
def test_a_body_that_is_no_json_object_is_refused(limited: ServerProcess, body: bytes) -> None:
    assert refusal(limited, body)["code"] == "invalid_json"


def test_a_body_that_is_too_large_is_refused(limited: ServerProcess) -> None:
    body = json.dumps({**CHAT, "user": "x" * MAX_BODY_BYTES}).encode()
    reply = wire.request("POST", f"{limited.base_url}/chat/completions", body)
    assert reply.status == 413
    assert str(MAX_BODY_BYTES) in reply.error()["message"]


def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_large(
    limited: ServerProcess,
) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(b"%x\r\n%b\r\n" % (MAX_BODY_BYTES + 1, b"x" * (MAX_BODY_BYTES + 1)))
        # The body has no end yet: the answer must not wait for one.
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [b"-5", b"ten", b"99999999999999999999"])
def test_a_nonsensical_length_harms_nobody(limited: ServerProcess, length: bytes) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\n" % length
        )
        status = connection.recv(100).split(b" ")[1]
        assert status in (b"400", b"413")
    assert limited.health()["status"] == "ok"


def test_a_parameter_that_cannot_be_honoured_is_refused(limited: ServerProcess) -> None:
    error = refusal(limited, {**CHAT, "no_such_parameter": 1})
    assert (error["code"], error["param"]) == ("unsupported_parameter", "no_such_parameter")


def test_where_the_template_says_so_it_is_dropped_and_named(limited: ServerProcess) -> None:
    question = {**CHAT, "model": "lenient", "no_such_parameter": 1, "another": {"a": 1}}
    reply = wire.request("POST", f"{limited.base_url}/chat/completions", question)
    assert reply.status == 200
    dropped = reply.headers["x-llama-compat-dropped"] or ""
    assert set(dropped.split(", ")) == {"no_such_parameter", "another"}


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_dropped_may_have_any_name(limited: ServerProcess, stream: bool) -> None:
    question = {**CHAT, "model": "lenient", "stream": stream, "caf\u00e9\r\nx-evil: 1": 1}
    reply = wire.request("POST", f"{limited.base_url}/chat/completions", question)
    assert reply.status == 200
    assert reply.headers["x-llama-compat-dropped"] == "caf%C3%A9%0D%0Ax-evil: 1"
    assert reply.headers["x-evil"] is None


def test_half_a_character_harms_nobody(limited: ServerProcess) -> None:
    url = f"{limited.base_url}/chat/completions"
    half = json.dumps({**CHAT, "messages": [{"role": "user", "content": "half \ud83d"}]}).encode()
    assert wire.request("POST", url, half).json()["choices"][0]["message"]["content"]
    assert refusal(limited, {**CHAT, "logit_bias": {"\ud83d": 1}})["param"] == "logit_bias"
    reply = wire.request("POST", url, {**CHAT, "model": "\ud83d"})
    assert reply.status == 404
    assert reply.error()["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("abc-123", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("two words", False),
        ("caf\xe9", False),
    ],
)
def test_a_sane_request_id_comes_back(limited: ServerProcess, sent: str, kept: bool) -> None:
    url = f"{limited.base_url}/chat/completions"
    got = wire.request("POST", url, CHAT, {"x-request-id": sent}).headers["x-request-id"]
    assert got
    assert (got == sent) is kept


def test_a_name_forges_no_line_of_the_log(limited: ServerProcess) -> None:
    model = "new\nline\x1b[31m-model"
    wire.request("POST", f"{limited.base_url}/chat/completions", {**CHAT, "model": model})
    assert r"model=new\nline\x1b[31m-model status=404" in limited.wait_for_log("31m-model")


def test_an_error_has_a_request_id_too(limited: ServerProcess) -> None:
    reply = wire.request(
        "POST", f"{limited.base_url}/chat/completions", b"{", {"x-request-id": "mine"}
    )
    assert reply.headers["x-request-id"] == "mine"
    assert "JSON" in limited.wait_for_log("mine")
