"""The official Anthropic client, and behind the server Anthropic, an OpenAI vendor, and echo."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic import types

from tests import sdk_anthropic as sdk
from tests.integration import wire
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template

KEY = "key-of-this-server"
HI: list[Any] = [{"role": "user", "content": "Hello over there"}]
WEATHER: Any = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@dataclass
class Setting:
    """The server and the vendors behind it."""

    server: ServerProcess
    anthropic: NativeVendor
    openai: NativeVendor


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with NativeVendor() as native, NativeVendor() as chatting:
        template = messages_template(
            tmp_path_factory.mktemp("messages") / "messages.yaml", native.url, chatting.url
        )
        with running(template, env={"ANTHROPIC_KEY": "sk-ant-test-key"}) as process:
            yield Setting(process, native, chatting)


def messages_template(path: Path, native: str, chatting: str) -> Path:
    key = {"api_key": "${env.ANTHROPIC_KEY}"}
    configs: dict[str, Any] = {
        "anthropic": {"base_url": native, **key, "betas": ["from-the-template"]},
        "compatible": {"base_url": f"{native}/v9", **key, "wires": ["chat", "messages"]},
        "alive": {"base_url": f"{native}/v9", "wires": ["messages"], "keepalive_seconds": 0.05},
        "chat": {"base_url": f"{chatting}/v1", **key},
        "thoughtless": {
            "base_url": f"{chatting}/v1",
            **key,
            "unsupported_parameters": ["reasoning_effort"],
        },
        "refusing": {
            "base_url": f"{chatting}/v1",
            **key,
            "unsupported_parameters": ["reasoning_effort"],
            "unsupported": "refuse",
        },
        "dropping": {"base_url": f"{chatting}/v1", **key, "unsupported": "drop"},
    }
    kinds = {"anthropic": "remote::anthropic-messages", "alive": "remote::vllm"}
    return write_template(
        path,
        server={"api_keys": [KEY], "max_body_bytes": 1_000_000},
        providers=[
            {"id": "echo", "type": "local::echo"},
            *(
                {"id": name, "type": kinds.get(name, "remote::passthrough"), "config": config}
                for name, config in configs.items()
            ),
        ],
        models=[
            {"id": "echo", "provider": "echo", "context_length": 200},
            *({"id": f"my/{name}", "provider": name, "provider_model": "own"} for name in configs),
        ],
    )


@pytest.fixture(scope="module")
def client(setting: Setting) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=setting.server.url, api_key=KEY, max_retries=0, timeout=60
    ) as one:
        yield one


@pytest.fixture
async def async_client(setting: Setting) -> AsyncIterator[anthropic.AsyncAnthropic]:
    # This one sends its key as `Authorization: Bearer`.
    async with anthropic.AsyncAnthropic(
        base_url=setting.server.url, auth_token=KEY, api_key=None, max_retries=0, timeout=60
    ) as one:
        yield one


def create(client: anthropic.Anthropic, model: str, **options: Any) -> types.Message:
    asked: dict[str, Any] = {"max_tokens": 100, "messages": HI, **options}
    return client.messages.create(model=model, **asked)


def stream(client: anthropic.Anthropic, model: str, **options: Any) -> types.Message:
    """The message that the client puts together from a stream."""
    asked: dict[str, Any] = {"max_tokens": 100, "messages": HI, **options}
    with client.messages.stream(model=model, **asked) as events:
        return events.get_final_message()


def post(setting: Setting, model: str, **members: Any) -> wire.Reply:
    """The answer to a request that no SDK has looked at."""
    body = {"model": model, "max_tokens": 100, "messages": HI, **members}
    return wire.request("POST", f"{setting.server.url}/v1/messages", body, {"x-api-key": KEY})


def dump(message: Any) -> dict[str, Any]:
    dumped = message.model_dump(exclude_none=True, exclude={"id"})
    assert isinstance(dumped, dict)
    return dumped


# --------------------------------------------------------------------------------------------------
# Relayed
# --------------------------------------------------------------------------------------------------

SAID = sdk.message(
    [sdk.thinking("Hm."), sdk.text("It is 20 °C. 🌞"), sdk.tool_use("t1", "get_weather", {"a": 1})],
    "tool_use",
)
VENDOR_HEADERS = {
    "request-id": "req_of_the_vendor",
    "anthropic-ratelimit-tokens-remaining": "9",
    "retry-after": "7",
}


def vendor_says(
    vendor: NativeVendor, message: types.Message = SAID, piece_size: int = 1 << 20, **options: Any
) -> None:
    whole = sdk.stream_bytes(sdk.stream_events(message))
    pieces = [whole[at : at + piece_size] for at in range(0, len(whole), piece_size)]
    vendor.will_answer(
        Answer([message.model_dump_json().encode()], headers=VENDOR_HEADERS),
        streamed=Answer(
            pieces, content_type="text/event-stream", headers=VENDOR_HEADERS, **options
        ),
    )


def test_a_message_is_relayed_as_it_came(setting: Setting, client: anthropic.Anthropic) -> None:
    vendor_says(setting.anthropic)
    beta = {"anthropic-beta": "brand-new-2026-11-01,other", "anthropic-version": "2023-06-01"}
    raw = client.messages.with_raw_response.create(
        model="my/anthropic",
        max_tokens=100,
        messages=HI,
        extra_headers=beta,
        extra_body={"brand_new": {"n": 1.0}},
        extra_query={"beta": "true"},
    )
    message = raw.parse()
    assert message.model == "my/anthropic"
    assert dump(message) == {**dump(SAID), "model": "my/anthropic"}
    for name, value in VENDOR_HEADERS.items():
        assert raw.headers[name] == value
    asked = setting.anthropic.last
    assert (asked.method, asked.path) == ("POST", "/v1/messages")
    assert asked.headers["x-api-key"] == "sk-ant-test-key"
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert asked.headers["anthropic-beta"] == "brand-new-2026-11-01,other,from-the-template"
    assert "authorization" not in asked.headers
    assert asked.body == {
        "model": "own",
        "max_tokens": 100,
        "messages": HI,
        "brand_new": {"n": 1.0},
    }


@pytest.mark.parametrize("piece_size", [1, 7, 1 << 20])
def test_a_stream_is_relayed(
    setting: Setting, client: anthropic.Anthropic, piece_size: int
) -> None:
    vendor_says(setting.anthropic, piece_size=piece_size)
    assert dump(stream(client, "my/anthropic")) == {**dump(SAID), "model": "my/anthropic"}


def test_a_vendor_with_the_wire_gets_its_key_both_ways(
    setting: Setting, client: anthropic.Anthropic
) -> None:
    vendor_says(setting.anthropic)
    assert create(client, "my/compatible").model == "my/compatible"
    asked = setting.anthropic.last
    assert asked.path == "/v9/messages"
    assert asked.headers["x-api-key"] == "sk-ant-test-key"
    assert asked.headers["authorization"] == "Bearer sk-ant-test-key"


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("my/anthropic", "/v1/messages/count_tokens"),
        ("my/compatible", "/v9/messages/count_tokens"),
    ],
)
def test_the_vendors_own_count(
    setting: Setting, client: anthropic.Anthropic, model: str, path: str
) -> None:
    setting.anthropic.will_answer(Answer([b'{"input_tokens": 1234}']))
    assert client.messages.count_tokens(model=model, messages=HI).input_tokens == 1234
    assert setting.anthropic.last.path == path
    assert setting.anthropic.last.body == {"model": "own", "messages": HI}


def test_the_vendors_count_for_clients_of_other_apis(setting: Setting) -> None:
    setting.anthropic.will_answer(Answer([b'{"input_tokens": 1234}']))
    asked = {"model": "my/anthropic", "instructions": "Be brief.", "input": "Hi", "temperature": 0}
    url = f"{setting.server.url}/v1/responses/input_tokens"
    reply = wire.request("POST", url, asked, {"x-api-key": KEY})
    assert reply.json()["input_tokens"] == 1234
    assert setting.anthropic.last.path == "/v1/messages/count_tokens"
    assert setting.anthropic.last.body == {
        "model": "own",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


ERROR = (
    b'{"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down", "x": 1.0},'
    b' "request_id": "req_of_the_vendor"}'
)


@pytest.mark.parametrize("ask", [create, stream])
def test_the_vendors_errors_keep_their_words(
    setting: Setting, client: anthropic.Anthropic, ask: Any
) -> None:
    setting.anthropic.will_answer(Answer([ERROR], status=429, headers=VENDOR_HEADERS))
    with pytest.raises(anthropic.RateLimitError) as failed:
        ask(client, "my/anthropic")
    assert failed.value.response.content == ERROR
    assert failed.value.request_id == "req_of_the_vendor"
    assert failed.value.response.headers["retry-after"] == "7"


def test_no_vendors_error_tells_the_key(setting: Setting, client: anthropic.Anthropic) -> None:
    told = ERROR.replace(b"Slow down", b"invalid x-api-key sk-ant-test-key")
    setting.anthropic.will_answer(Answer([told], status=400))
    with pytest.raises(anthropic.BadRequestError) as failed:
        create(client, "my/anthropic")
    assert "sk-ant-test-key" not in failed.value.response.text
    assert "***" in failed.value.response.text
    setting.anthropic.will_answer(Answer([told], status=401))
    with pytest.raises(anthropic.InternalServerError) as refused:
        create(client, "my/anthropic")
    assert refused.value.status_code == 502
    body: Any = refused.value.body
    assert body["error"]["type"] == "api_error"
    assert "sk-ant-test-key" not in refused.value.response.text


def begun_stream() -> bytes:
    whole = sdk.stream_bytes(sdk.stream_events(SAID))
    return whole[: whole.index(b"event: content_block_stop")]


def test_an_error_inside_a_stream_is_raised(setting: Setting, client: anthropic.Anthropic) -> None:
    event = b"event: error\ndata: " + ERROR.replace(b"rate_limit_error", b"overloaded_error")
    setting.anthropic.will_answer(
        Answer([begun_stream(), event + b"\n\n"], content_type="text/event-stream")
    )
    with pytest.raises(anthropic.APIStatusError) as failed:
        stream(client, "my/anthropic")
    assert failed.value.type == "overloaded_error"
    assert failed.value.body == json.loads(event.partition(b"data: ")[2])


@pytest.mark.parametrize("break_off", [False, True])
def test_a_stream_that_is_cut_is_raised(
    setting: Setting, client: anthropic.Anthropic, break_off: bool
) -> None:
    setting.anthropic.will_answer(
        Answer([begun_stream()], content_type="text/event-stream", break_off=break_off)
    )
    with pytest.raises(anthropic.APIStatusError) as failed:
        stream(client, "my/anthropic")
    assert failed.value.type == "api_error"


def test_the_vendor_is_hung_up_on_when_the_client_leaves(
    setting: Setting, client: anthropic.Anthropic
) -> None:
    setting.anthropic.will_answer(
        Answer([begun_stream()], content_type="text/event-stream", hold=True)
    )
    with client.messages.stream(model="my/anthropic", max_tokens=100, messages=HI) as events:
        next(iter(events))
    assert setting.anthropic.hung_up.wait(20)


@pytest.mark.parametrize("begun", [b"", begun_stream()], ids=["before the start", "inside"])
def test_a_silent_stream_is_kept_alive(setting: Setting, begun: bytes) -> None:
    held = Answer([begun] if begun else [], content_type="text/event-stream", hold=True)
    setting.anthropic.will_answer(held)
    asked = {"model": "my/alive", "max_tokens": 9, "messages": HI, "stream": True}
    with wire.open_reply(
        "POST", f"{setting.server.url}/v1/messages", asked, {"x-api-key": KEY}
    ) as reply:
        assert reply.status == 200
        read = b""
        while read.count(b'event: ping\ndata: {"type":"ping"}\n\n') < 2:
            read += reply.read1(100)
    assert (b"content_block_delta" in read) == bool(begun)


def test_thoughts_go_back_to_the_family_that_sealed_them_alone(
    setting: Setting, client: anthropic.Anthropic
) -> None:
    ours = {"type": "thinking", "thinking": "Hm", "signature": "llama_compat::"}
    theirs = {"type": "thinking", "thinking": "Aha", "signature": "c2VhbA=="}
    text = {"type": "text", "text": "Hello"}
    history: Any = [*HI, {"role": "assistant", "content": [ours, theirs, text]}, *HI]
    vendor_says(setting.anthropic)
    create(client, "my/anthropic", messages=history)
    assert setting.anthropic.last.body["messages"][1]["content"] == [theirs, text]
    chat_says(setting.openai, {"content": "Hi"})
    create(client, "my/chat", messages=history)
    assert setting.openai.last.body["messages"][1] == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "Hm",
    }


# --------------------------------------------------------------------------------------------------
# Translated to a vendor's chat completions
# --------------------------------------------------------------------------------------------------

USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 25,
    "total_tokens": 55,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chat_says(
    vendor: NativeVendor, message: dict[str, Any], reason: str = "stop", **options: Any
) -> None:
    """Have a vendor say `message`, streamed in deltas of one member each."""
    frame = {"id": "c", "created": 1, "model": "own"}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    whole = {**frame, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for name, value in message.items():
        if name == "tool_calls":
            deltas += [{name: [fragment]} for call in value for fragment in fragments(call)]
        else:
            deltas += [{name: value[:3]}, {name: value[3:]}]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": reason}])
    chunks = [{**frame, "object": "chat.completion.chunk", "choices": each} for each in choices]
    chunks.append({**frame, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
    lines = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    streamed = Answer([*lines, b"data: [DONE]\n\n"], content_type="text/event-stream", **options)
    vendor.will_answer(Answer([json.dumps(whole).encode()]), streamed=streamed)


def fragments(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index, function = int(call["id"]), call["function"]
    begun = {**call, "index": index, "function": {**function, "arguments": ""}}
    yield begun
    for piece in (function["arguments"][:4], function["arguments"][4:]):
        yield {"index": index, "function": {"arguments": piece}}


def call_of(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


@pytest.mark.parametrize("ask", [create, stream])
def test_text_and_thoughts(setting: Setting, client: anthropic.Anthropic, ask: Any) -> None:
    chat_says(setting.openai, {"reasoning_content": "Think.", "content": "It is 20 °C. 🌞"})
    message = ask(
        client,
        "my/chat",
        system="Be brief.",
        stop_sequences=["END"],
        extra_body={"temperature": 0.5},
        metadata={"user_id": "me"},
    )
    assert dump(message) == {
        "type": "message",
        "role": "assistant",
        "model": "my/chat",
        "content": [
            {"type": "thinking", "thinking": "Think.", "signature": "llama_compat::"},
            {"type": "text", "text": "It is 20 °C. 🌞"},
        ],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 20,
            "cache_read_input_tokens": 10,
            "output_tokens": 25,
            "output_tokens_details": {"thinking_tokens": 5},
        },
    }
    assert message.id.startswith("msg_")
    asked = setting.openai.last
    assert asked.path == "/v1/chat/completions"
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    assert asked.body == {
        "model": "own",
        "messages": [{"role": "system", "content": "Be brief."}, *HI],
        "max_completion_tokens": 100,
        "temperature": 0.5,
        "stop": ["END"],
        "user": "me",
        **(streaming if ask is stream else {}),
    }


@pytest.mark.parametrize("ask", [create, stream])
def test_several_calls_and_their_answers(
    setting: Setting, client: anthropic.Anthropic, ask: Any
) -> None:
    calls = [call_of("0", "get_weather", '{"city": "Zürich"}'), call_of("1", "get_time", "{}")]
    chat_says(setting.openai, {"content": "Let me see.", "tool_calls": calls}, "tool_calls")
    time_tool = {"name": "get_time", "input_schema": {"type": "object"}}
    message = ask(client, "my/chat", tools=[WEATHER, time_tool], tool_choice={"type": "any"})
    assert message.stop_reason == "tool_use"
    assert [block.to_dict() for block in message.content] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "0", "name": "get_weather", "input": {"city": "Zürich"}},
        {"type": "tool_use", "id": "1", "name": "get_time", "input": {}},
    ]
    asked = setting.openai.last.body
    assert asked["tool_choice"] == "required"
    assert asked["tools"][0]["function"] == {
        "name": "get_weather",
        "parameters": WEATHER["input_schema"],
    }

    chat_says(setting.openai, {"content": "Sunny."})
    results: Any = [
        {"type": "tool_result", "tool_use_id": "0", "content": [{"type": "text", "text": "Sun"}]},
        {"type": "tool_result", "tool_use_id": "1", "content": "No clock", "is_error": True},
        {"type": "text", "text": "So?"},
    ]
    said: Any = [block.to_dict() for block in message.content]
    history = [
        *HI,
        {"role": "assistant", "content": said},
        {"role": "user", "content": results},
    ]
    assert ask(client, "my/chat", messages=history, tools=[WEATHER]).content[0].text == "Sunny."
    assistant, *answers = setting.openai.last.body["messages"][1:]
    assert assistant["content"] == "Let me see."
    assert [json.loads(each["function"]["arguments"]) for each in assistant["tool_calls"]] == [
        {"city": "Zürich"},
        {},
    ]
    assert answers == [
        {"role": "tool", "tool_call_id": "0", "content": "Sun"},
        {"role": "tool", "tool_call_id": "1", "content": "Error: No clock"},
        {"role": "user", "content": "So?"},
    ]


def test_the_shape_of_the_text(setting: Setting, client: anthropic.Anthropic) -> None:
    chat_says(setting.openai, {"content": '{"a": 1}'})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    create(
        client,
        "my/chat",
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        thinking={"type": "adaptive"},
    )
    asked = setting.openai.last.body
    assert asked["response_format"]["json_schema"]["schema"] == schema
    assert asked["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("model", "members", "sent", "dropped"),
    [
        ("my/chat", {"output_config": {"effort": "high"}}, "high", None),
        ("my/chat", {"thinking": {"type": "adaptive"}}, None, None),
        ("my/chat", {"thinking": {"type": "disabled"}}, None, "thinking"),
        ("my/thoughtless", {"output_config": {"effort": "high"}}, None, "output_config.effort"),
        ("my/thoughtless", {"thinking": {"type": "disabled"}}, None, "thinking"),
        ("echo", {"output_config": {"effort": "high"}}, None, "output_config.effort"),
    ],
)
def test_what_clients_always_say_is_passed_on_or_named_and_never_refused(
    setting: Setting, model: str, members: Any, sent: str | None, dropped: str | None
) -> None:
    chat_says(setting.openai, {"content": "Hi"})
    reply = post(setting, model, **members)
    assert reply.status == 200, reply.body
    assert reply.headers.get("x-llama-compat-dropped") == dropped
    if model != "echo":
        assert setting.openai.last.body.get("reasoning_effort") == sent


@pytest.mark.parametrize("model", ["my/thoughtless", "echo"])
@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
    ],
)
def test_what_is_asked_for_besides_is_left_out_where_there_is_no_thinking(
    setting: Setting, model: str, members: Any, path: str
) -> None:
    chat_says(setting.openai, {"content": "Hi"})
    reply = post(setting, model, **members)
    assert reply.status == 200
    assert reply.headers["x-llama-compat-dropped"] == path


@pytest.mark.parametrize("path", ["output_config.effort", "thinking"])
def test_or_refused_where_the_template_says_so(setting: Setting, path: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    asked = {"thinking": thinking} if path == "thinking" else {"output_config": {"effort": "low"}}
    reply = post(setting, "my/refusing", **asked)
    assert reply.status == 400
    assert path in reply.json()["error"]["message"]


def test_a_relayed_parameter_that_the_models_lack_is_refused(setting: Setting) -> None:
    body = {"model": "my/thoughtless", "messages": HI, "reasoning_effort": "low"}
    key = {"authorization": f"Bearer {KEY}"}
    reply = wire.request("POST", f"{setting.server.base_url}/chat/completions", body, key)
    assert (reply.status, reply.json()["error"]["param"]) == (400, "reasoning_effort")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("stop", "end_turn")],
)
def test_why_it_stopped(
    setting: Setting, client: anthropic.Anthropic, reason: str, expected: str
) -> None:
    chat_says(setting.openai, {"content": "Well"}, reason)
    assert create(client, "my/chat").stop_reason == expected
    assert stream(client, "my/chat").stop_reason == expected


@pytest.mark.parametrize(
    ("status", "error", "raised", "kind"),
    [
        (429, {"message": "Slow"}, anthropic.RateLimitError, "rate_limit_error"),
        (
            429,
            {"message": "Pay", "code": "insufficient_quota"},
            anthropic.PaymentRequiredError,
            "billing_error",
        ),
        (
            400,
            {"message": "Too much", "code": "context_length_exceeded"},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
        (503, {"message": "Busy"}, anthropic.OverloadedError, "overloaded_error"),
        (401, {"message": "Key"}, anthropic.InternalServerError, "api_error"),
    ],
)
def test_other_vendors_errors_are_anthropics(
    setting: Setting,
    client: anthropic.Anthropic,
    status: int,
    error: dict[str, str],
    raised: type[anthropic.APIStatusError],
    kind: str,
) -> None:
    setting.openai.will_answer(Answer([json.dumps({"error": error}).encode()], status=status))
    for ask in (create, stream):
        with pytest.raises(raised) as failed:
            ask(client, "my/chat")
        assert failed.value.type == kind
        body: Any = failed.value.body
        assert body["request_id"] == failed.value.request_id
        if "code" in error and status == 400:
            assert body["error"]["message"].startswith("prompt is too long")


def test_a_translated_stream_that_is_cut_is_raised(
    setting: Setting, client: anthropic.Anthropic
) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "It is"}, "finish_reason": None}]}
    begun = b"data: %b\n\n" % json.dumps(chunk).encode()
    setting.openai.will_answer(Answer([begun], content_type="text/event-stream"))
    with pytest.raises(anthropic.APIStatusError) as failed:
        stream(client, "my/chat")
    assert failed.value.type == "api_error"


def test_nobody_here_counts_for_a_chat_vendor(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.count_tokens(model="my/chat", messages=HI)
    assert missing.value.type == "not_found_error"


def test_what_only_anthropic_has_is_refused_or_dropped_by_name(
    setting: Setting, client: anthropic.Anthropic
) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    chat_says(setting.openai, {"content": "Hi"})
    for options in ({"tools": [search]}, {"extra_body": {"mcp_servers": [{"url": "x"}]}}):
        with pytest.raises(anthropic.BadRequestError) as refused:
            create(client, "my/chat", **options)
        name = "tools.web_search_20250305" if "tools" in options else "mcp_servers"
        assert f"'{name}'" in refused.value.response.text
    assert setting.openai.received == []
    raw = client.messages.with_raw_response.create(
        model="my/dropping", max_tokens=9, messages=HI, tools=[search, WEATHER]
    )
    assert raw.headers["x-llama-compat-dropped"] == "tools.web_search_20250305"
    tools = setting.openai.last.body["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["get_weather"]


# --------------------------------------------------------------------------------------------------
# Translated for a model of this process
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [create, stream])
def test_echo(client: anthropic.Anthropic, ask: Any) -> None:
    message = ask(client, "echo", stop_sequences=["there"])
    assert message.content[0].text == "Hello over "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "there")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 3)
    forced = ask(
        client, "echo", tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"}
    )
    assert forced.stop_reason == "tool_use"
    assert forced.content[0].input == {"city": "Hello over there"}


async def test_asynchronously(async_client: anthropic.AsyncAnthropic) -> None:
    message = await async_client.messages.create(model="echo", max_tokens=2, messages=HI)
    assert message.content[0].to_dict() == {"type": "text", "text": "Hello over "}
    assert message.stop_reason == "max_tokens"
    async with async_client.messages.stream(model="echo", max_tokens=9, messages=HI) as events:
        assert [text async for text in events.text_stream] == ["Hello ", "over ", "there"]
        assert (await events.get_final_message()).stop_reason == "end_turn"
    counted = await async_client.messages.count_tokens(model="echo", system="One", messages=HI)
    assert counted.input_tokens == 4


@pytest.mark.parametrize(
    ("options", "raised"),
    [
        ({"model": "nobody"}, anthropic.NotFoundError),
        ({"max_tokens": -1}, anthropic.BadRequestError),
        ({"max_tokens": 201}, anthropic.BadRequestError),
        ({"messages": []}, anthropic.BadRequestError),
        ({"extra_body": {"mcp_servers": [{"url": "x"}]}}, anthropic.BadRequestError),
        (
            {"messages": [{"role": "user", "content": "x" * 1_000_000}]},
            anthropic.RequestTooLargeError,
        ),
    ],
)
def test_errors_are_the_clients_own(
    client: anthropic.Anthropic, options: dict[str, Any], raised: type[anthropic.APIStatusError]
) -> None:
    for ask in (create, stream):
        with pytest.raises(raised) as failed:
            ask(client, **{"model": "echo", **options})
        body: Any = failed.value.body
        assert body["type"] == "error"
        assert body["request_id"] == failed.value.request_id
        assert failed.value.response.headers["x-request-id"] == failed.value.request_id


# --------------------------------------------------------------------------------------------------
# Around it
# --------------------------------------------------------------------------------------------------


def test_models_in_anthropics_shape(client: anthropic.Anthropic) -> None:
    page = client.models.list(limit=2)
    assert [model.id for model in page.data] == ["echo", "my/anthropic"]
    assert (page.has_more, page.first_id, page.last_id) == (True, "echo", "my/anthropic")
    assert len({model.id for model in page}) == 8  # the client asks for the other pages
    model = client.models.retrieve("my/anthropic")
    assert (model.id, model.type) == ("my/anthropic", "model")
    assert client.models.retrieve("echo").max_input_tokens == 200
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("my/nobody")
    with pytest.raises(anthropic.BadRequestError):
        client.models.list(limit=0)


def test_models_in_openais_shape_for_everybody_else(setting: Setting) -> None:
    with openai.OpenAI(base_url=f"{setting.server.url}/v1", api_key=KEY) as other:
        assert {model.object for model in other.models.list()} == {"model"}
    reply = wire.request("GET", f"{setting.server.base_url}/models", headers={"x-api-key": KEY})
    assert reply.json()["object"] == "list"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind"),
    [
        ("POST", "/v1/messages", {}, 401, "authentication_error"),
        ("GET", "/v1/models", {"anthropic-version": "2023-06-01"}, 401, "authentication_error"),
        ("GET", "/v1/messages", {"x-api-key": KEY}, 405, "invalid_request_error"),
        ("GET", "/v1/messages/batches", {"x-api-key": KEY}, 404, "not_found_error"),
        ("POST", "/v1/messages/batches/b/cancel", {"x-api-key": KEY}, 404, "not_found_error"),
    ],
)
def test_what_is_not_there_is_told_in_anthropics_shape(
    setting: Setting, method: str, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    reply = wire.request(method, setting.server.url + path, headers=headers)
    assert reply.status == status
    assert reply.json()["error"]["type"] == kind
    assert reply.json()["request_id"] == reply.headers["request-id"]


def test_paths_below_openais_prefix_are_openais(setting: Setting) -> None:
    sent = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    reply = wire.request("GET", f"{setting.server.url}/v1/openai/v1/messages", headers=sent)
    assert reply.status == 404
    assert "type" not in reply.json()
