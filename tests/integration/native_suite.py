"""What every provider with a dialect of its own has to do, as the real OpenAI client sees it.

A vendor's test module inherits `NativeSuite` and gives a `Vendor`: how that vendor says a reply,
and what the official SDK thinks of the requests that it gets.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.integration.native_vendor import Answer, NativeVendor

MODEL = "chat-model"

MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
]

WEATHER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TIME_TOOL: Any = {"type": "function", "function": {"name": "get_time"}}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
JSON_SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True},
}

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True)
class Reply:
    """What the vendor's model says: thoughts, text and calls (name, arguments), and why it stops.

    `stop` is one of `end`, `calls`, `length` and `filter`.
    """

    text: str = ""
    thoughts: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    stop: str = "end"


class Vendor(ABC):
    """One vendor's side of the suite.

    Class attributes: `server_type`, the server that it is on; `error_body`, what it answers with
    beside status 429; `stream_error`, the bytes with which a stream says that it failed.
    """

    server_type: type[NativeVendor] = NativeVendor
    error_body: bytes
    stream_error: bytes

    def __init__(self, server: NativeVendor, base_url: str) -> None:
        self.server = server
        self.base_url = base_url

    @abstractmethod
    def whole(self, reply: Reply) -> bytes:
        """`reply` as the body of an answer, made by the SDK's own types."""

    @abstractmethod
    def stream(self, reply: Reply) -> bytes:
        """`reply` as the bytes of a stream, made by the SDK's own types."""

    @abstractmethod
    def check_request(self, body: dict[str, Any]) -> None:
        """Assert that the SDK's types take the request `body`, with nothing left over."""

    @abstractmethod
    def forced_tool(self, body: dict[str, Any]) -> str:
        """The tool that the request `body` forces."""

    @abstractmethod
    def schema(self, body: dict[str, Any]) -> Any:
        """The schema that the request `body` wants the text to have."""

    def will_say(self, reply: Reply, *, piece_size: int = 1 << 20) -> None:
        """Answer any request with `reply`, a stream in pieces of `piece_size` bytes."""
        stream = self.stream(reply)
        pieces = [stream[at : at + piece_size] for at in range(0, len(stream), piece_size)]
        self.server.will_answer(
            Answer([self.whole(reply)]),
            streamed=Answer(pieces, content_type="text/event-stream"),
        )


class Streams:
    """Chunks put together again."""

    def __init__(self, chunks: Sequence[ChatCompletionChunk]) -> None:
        self.chunks = chunks
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
        self.text = "".join(choice.delta.content or "" for choice in choices)
        self.thoughts = "".join(
            getattr(choice.delta, "reasoning_content", None) or "" for choice in choices
        )
        reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
        assert len(reasons) == 1
        self.finish_reason = reasons[0]
        self.calls: dict[int, dict[str, str]] = {}
        for choice in choices:
            for fragment in choice.delta.tool_calls or ():
                call = self.calls.setdefault(fragment.index, {"arguments": ""})
                assert fragment.function is not None
                if fragment.id:
                    assert "id" not in call
                    call["id"] = fragment.id
                    call["name"] = fragment.function.name or ""
                call["arguments"] += fragment.function.arguments or ""
        self.usage = chunks[-1].usage


class NativeSuite:
    """The tests; `vendor` and `client` are the module's fixtures."""

    def chat(self, client: openai.OpenAI, **options: Any) -> ChatCompletion:
        reply = client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **options})
        assert isinstance(reply, ChatCompletion)
        return reply

    def stream(self, client: openai.OpenAI, **options: Any) -> Streams:
        chunks = client.chat.completions.create(
            **{
                "model": MODEL,
                "messages": MESSAGES,
                "stream": True,
                "stream_options": {"include_usage": True},
                **options,
            }
        )
        return Streams(list(chunks))

    def test_says_what_the_model_says(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="It is 20 °C. 🌞", thoughts="Look outside."))
        reply = self.chat(client)
        assert reply.model == MODEL
        assert reply.choices[0].message.content == "It is 20 °C. 🌞"
        assert reply.choices[0].message.reasoning_content == "Look outside."  # type: ignore[attr-defined]
        assert reply.choices[0].finish_reason == "stop"
        vendor.check_request(vendor.server.last.body)

    @pytest.mark.parametrize("piece_size", [1, 7, 1 << 20])
    def test_streams_what_the_model_says(
        self, vendor: Vendor, client: openai.OpenAI, piece_size: int
    ) -> None:
        vendor.will_say(Reply(text="It is 20 °C. 🌞", thoughts="Look!"), piece_size=piece_size)
        reply = self.stream(client)
        assert reply.text == "It is 20 °C. 🌞"
        assert reply.thoughts == "Look!"
        assert reply.finish_reason == "stop"
        vendor.check_request(vendor.server.last.body)

    def test_counts_the_same_streaming_or_not(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi", thoughts="Hm"))
        usage = self.chat(client).usage
        assert usage is not None
        assert usage == self.stream(client).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (30, 25)
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 10
        assert usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.reasoning_tokens == 5

    def test_calls_tools(self, vendor: Vendor, client: openai.OpenAI) -> None:
        calls = [("get_weather", {"city": "Zürich"}), ("get_time", {})]
        vendor.will_say(Reply(text="Let me see.", calls=calls, stop="calls"))
        options: dict[str, Any] = {"tools": [WEATHER_TOOL, TIME_TOOL]}
        reply = self.chat(client, **options).choices[0]
        assert reply.finish_reason == "tool_calls"
        assert reply.message.content == "Let me see."
        whole = [
            (call.function.name, json.loads(call.function.arguments))  # type: ignore[union-attr]
            for call in reply.message.tool_calls or ()
        ]
        assert whole == calls
        vendor.check_request(vendor.server.last.body)

        streamed = self.stream(client, **options)
        assert streamed.finish_reason == "tool_calls"
        assert streamed.text == "Let me see."
        assert sorted(streamed.calls) == [0, 1]
        assert [
            (call["name"], json.loads(call["arguments"])) for call in streamed.calls.values()
        ] == calls
        assert all(call["id"] for call in streamed.calls.values())

    def test_gives_one_call_where_no_more_are_wanted(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        calls = [("get_weather", {"city": "Bern"}), ("get_time", {})]
        vendor.will_say(Reply(text="Let me see.", calls=calls, stop="calls"))
        options: dict[str, Any] = {"tools": [WEATHER_TOOL, TIME_TOOL], "parallel_tool_calls": False}
        reply = self.chat(client, **options).choices[0]
        assert reply.finish_reason == "tool_calls"
        assert [call.function.name for call in reply.message.tool_calls or ()] == [  # type: ignore[union-attr]
            "get_weather"
        ]
        vendor.check_request(vendor.server.last.body)

        streamed = self.stream(client, **options)
        assert streamed.finish_reason == "tool_calls"
        assert streamed.text == "Let me see."
        assert [call["name"] for call in streamed.calls.values()] == ["get_weather"]
        assert json.loads(streamed.calls[0]["arguments"]) == {"city": "Bern"}

    def test_sends_calls_and_their_answers_back(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(
            Reply(calls=[("get_weather", {"city": "Bern"}), ("get_time", {})], stop="calls")
        )
        options: dict[str, Any] = {"tools": [WEATHER_TOOL, TIME_TOOL]}
        message = self.chat(client, **options).choices[0].message
        calls = message.tool_calls or ()
        vendor.will_say(Reply(text="Sunny at noon."))
        history = [
            *MESSAGES,
            message.model_dump(exclude_none=True),
            *({"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in calls),
            {"role": "user", "content": "So?"},
        ]
        assert self.chat(client, messages=history, **options).choices[0].message.content
        vendor.check_request(vendor.server.last.body)

    def test_forces_a_tool(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(calls=[("get_time", {})], stop="calls"))
        forced: Any = {"type": "function", "function": {"name": "get_time"}}
        reply = self.chat(client, tools=[WEATHER_TOOL, TIME_TOOL], tool_choice=forced)
        assert reply.choices[0].finish_reason == "tool_calls"
        body = vendor.server.last.body
        vendor.check_request(body)
        assert vendor.forced_tool(body) == "get_time"

    def test_replies_in_the_shape_of_a_schema(self, vendor: Vendor, client: openai.OpenAI) -> None:
        text = '{"city": "Basel", "degrees": 20}'
        vendor.will_say(Reply(text=text))
        assert self.chat(client, response_format=JSON_SCHEMA).choices[0].message.content == text
        body = vendor.server.last.body
        vendor.check_request(body)
        assert set(vendor.schema(body)["properties"]) == {"city", "degrees"}

    @pytest.mark.parametrize(
        ("stop", "finish_reason"),
        [("end", "stop"), ("length", "length"), ("filter", "content_filter")],
    )
    def test_says_why_it_stops(
        self, vendor: Vendor, client: openai.OpenAI, stop: str, finish_reason: str
    ) -> None:
        vendor.will_say(Reply(text="Well", stop=stop))
        assert self.chat(client).choices[0].finish_reason == finish_reason
        assert self.stream(client).finish_reason == finish_reason

    def test_takes_images(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="A pixel."))
        content = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        self.chat(client, messages=[{"role": "user", "content": content}])
        body = vendor.server.last.body
        vendor.check_request(body)
        assert PIXEL.split(",")[1] in json.dumps(body)

    def test_makes_several_choices(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        reply = self.chat(client, n=3)
        assert [choice.message.content for choice in reply.choices] == ["Hi"] * 3
        assert reply.usage is not None
        # The vendor was asked three times, and wants to be paid for three prompts.
        assert reply.usage.prompt_tokens == 90
        assert reply.usage.completion_tokens == 75
        assert len(vendor.server.received) == 3

    def test_answers_text_completions(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text=" upon a time"))
        reply = client.completions.create(model=MODEL, prompt="Once", max_tokens=9)
        assert reply.choices[0].text == " upon a time"
        vendor.check_request(vendor.server.last.body)
        chunks = client.completions.create(model=MODEL, prompt="Once", stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == " upon a time"

    @pytest.mark.parametrize(
        ("name", "value"),
        [("prompt", [1, 2]), ("echo", True), ("suffix", "the end"), ("best_of", 3)],
    )
    def test_refuses_what_only_a_continuation_has(
        self, vendor: Vendor, client: openai.OpenAI, name: str, value: Any
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(**{"model": MODEL, "prompt": "Once", name: value})
        assert refused.value.param == name
        assert vendor.server.received == []

    def test_refuses_an_unknown_parameter(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError) as refused:
            self.chat(client, logit_bias={"5": 1})
        assert refused.value.param == "logit_bias"
        assert vendor.server.received == []

    @pytest.mark.parametrize("stream", [False, True])
    def test_passes_the_vendors_errors_on(
        self, vendor: Vendor, client: openai.OpenAI, stream: bool
    ) -> None:
        headers = {"retry-after": "7"}
        vendor.server.will_answer(Answer([vendor.error_body], status=429, headers=headers))
        with pytest.raises(openai.RateLimitError) as failed:
            client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)
        assert "slow down" in failed.value.message
        assert failed.value.response.headers["retry-after"] == "7"

    def test_says_when_a_stream_fails(self, vendor: Vendor, client: openai.OpenAI) -> None:
        begun = self._beginning(vendor, Reply(text="It is 20 degrees."))
        vendor.server.will_answer(
            Answer([begun, vendor.stream_error], content_type="text/event-stream")
        )
        with pytest.raises(openai.APIError, match="overloaded"):
            self.stream(client)

    def test_says_when_a_stream_is_cut(self, vendor: Vendor, client: openai.OpenAI) -> None:
        begun = self._beginning(vendor, Reply(text="It is 20 degrees."))
        for break_off in (False, True):
            vendor.server.will_answer(
                Answer([begun], content_type="text/event-stream", break_off=break_off)
            )
            with pytest.raises(openai.APIError, match="broke"):
                self.stream(client)

    def test_makes_no_sense_of_nonsense(self, vendor: Vendor, client: openai.OpenAI) -> None:
        for nonsense in (b"", b"<html>", b"[]", b'{"a": 1}'):
            for stream in (False, True):
                content = b"data: " + nonsense + b"\n\n" if stream else nonsense
                vendor.server.will_answer(Answer([content]))
                with pytest.raises(openai.InternalServerError) as failed:
                    client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)
                assert failed.value.status_code == 502

    def test_hangs_up_when_the_client_does(self, vendor: Vendor, client: openai.OpenAI) -> None:
        begun = self._beginning(vendor, Reply(text="It is 20 degrees."))
        vendor.server.will_answer(Answer([begun], content_type="text/event-stream", hold=True))
        with client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True) as chunks:
            next(iter(chunks))
        assert vendor.server.hung_up.wait(20)

    def _beginning(self, vendor: Vendor, reply: Reply) -> bytes:
        """A stream up to its first piece of text."""
        events = vendor.stream(reply).split(b"\n\n")
        first = next(at for at, event in enumerate(events) if b"It is" in event)
        return b"\n\n".join(events[: first + 1]) + b"\n\n"
