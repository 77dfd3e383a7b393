"""The OpenAI client, a server with `remote::ollama-native`, and Ollama's API behind it.

Requests are checked against, and replies made by, the types of Ollama's own client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import ollama
import openai
import pytest
from ollama._types import ChatRequest, EmbedRequest, GenerateRequest, Logprob, Options

from tests.integration import wire
from tests.integration.native_suite import (
    JSON_SCHEMA,
    MESSAGES,
    MODEL,
    SCHEMA,
    TIME_TOOL,
    WEATHER_TOOL,
    NativeSuite,
    Reply,
    Vendor,
)
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import running, write_template

REQUESTS: dict[str, Any] = {
    "/api/chat": ChatRequest,
    "/api/generate": GenerateRequest,
    "/api/embed": EmbedRequest,
}

ONLY_IN_THE_SERVER = {"truncate", "shift"}
"""Members that Ollama's server takes and its client has no argument for."""

DONE_REASONS = {"end": "stop", "calls": "stop", "length": "length"}


class OllamaVendor(Vendor):
    error_body = b'{"error":"Please slow down"}'
    stream_error = b'{"error":"the server is overloaded"}\n'

    def whole(self, reply: Reply) -> bytes:
        return _line(reply.text, reply.thoughts, reply.calls, stop=reply.stop)

    def stream(self, reply: Reply) -> bytes:
        lines = [_line(thoughts=piece) for piece in _pieces(reply.thoughts)]
        lines += [_line(piece) for piece in _pieces(reply.text)]
        lines += [_line(calls=[call]) for call in reply.calls]
        return b"".join(line + b"\n" for line in [*lines, _line(stop=reply.stop)])

    def check_request(self, body: dict[str, Any]) -> None:
        request = REQUESTS[self.server.last.path]
        request.model_validate(body)
        assert set(body) - set(request.model_fields) <= ONLY_IN_THE_SERVER
        assert set(body.get("options", {})) <= set(Options.model_fields)
        Options.model_validate(body.get("options", {}))
        assert None not in body.values()

    def forced_tool(self, body: dict[str, Any]) -> str:
        raise AssertionError("Ollama forces no tool")

    def schema(self, body: dict[str, Any]) -> Any:
        return body["format"]


def _pieces(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _line(
    text: str = "",
    thoughts: str = "",
    calls: Sequence[tuple[str, dict[str, Any]]] = (),
    *,
    stop: str | None = None,
    logprobs: Sequence[Logprob] | None = None,
) -> bytes:
    message = ollama.Message(
        role="assistant",
        content=text,
        thinking=thoughts or None,
        tool_calls=[
            ollama.Message.ToolCall(
                function=ollama.Message.ToolCall.Function(name=name, arguments=arguments)
            )
            for name, arguments in calls
        ]
        or None,
    )
    response = ollama.ChatResponse(message=message, logprobs=logprobs, **_end(stop))
    return response.model_dump_json(exclude_none=True).encode()


def _text_line(text: str = "", *, stop: str | None = None) -> bytes:
    response = ollama.GenerateResponse(response=text, **_end(stop))
    return response.model_dump_json(exclude_none=True).encode()


def _end(stop: str | None) -> dict[str, Any]:
    if stop is None:
        return {"model": "llama3", "done": False}
    return {
        "model": "llama3",
        "done": True,
        "done_reason": DONE_REASONS[stop],
        "total_duration": 5,
        "prompt_eval_count": 30,
        "eval_count": 25,
    }


def _tags(name: str) -> bytes:
    tags = ollama.ListResponse(models=[ollama.ListResponse.Model(model=name)])
    listed = json.loads(tags.model_dump_json(exclude_none=True))
    for model in listed["models"]:
        model["name"] = model["model"]
    return json.dumps(listed).encode()


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaVendor]:
    with NativeVendor() as server:
        server.will_answer(Answer([_tags("new:latest")]))
        config = {
            "base_url": server.url,
            "api_key": "${env.OLLAMA_KEY}",
            "models": "discover",
        }
        template = write_template(
            tmp_path_factory.mktemp("ollama") / "ollama.yaml",
            providers=[{"id": "ollama", "type": "remote::ollama-native", "config": config}],
            models=[
                {"id": MODEL, "provider": "ollama", "provider_model": "llama3"},
                {
                    "id": "long",
                    "provider": "ollama",
                    "provider_model": "llama3-long",
                    "context_length": 8192,
                },
            ],
        )
        with running(template, env={"OLLAMA_KEY": "ollama-secret"}) as process:
            wire.request("GET", f"{process.base_url}/models")  # waits for the vendor's list
            assert server.last.path == "/api/tags"
            yield OllamaVendor(server, process.base_url)


@pytest.fixture(scope="module")
def client(vendor: OllamaVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestOllama(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, extra_headers={"x-request-id": "named-by-the-client"})
        asked = vendor.server.last
        assert (asked.method, asked.path) == ("POST", "/api/chat")
        assert asked.headers["authorization"] == "Bearer ollama-secret"
        assert asked.headers["x-request-id"] == "named-by-the-client"
        assert asked.body == {
            "model": "llama3",
            "stream": False,
            "messages": MESSAGES,
            "truncate": False,
            "shift": False,
        }
        self.stream(client)
        assert vendor.server.last.body["stream"] is True

    def test_sends_the_options(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(
            client,
            model="long",
            temperature=0.5,
            top_p=0.9,
            max_tokens=7,
            seed=1,
            stop=["END"],
            frequency_penalty=0.1,
            presence_penalty=0.2,
            reasoning_effort="low",
            extra_body={"top_k": 4, "repetition_penalty": 1.5},
        )
        body = vendor.server.last.body
        vendor.check_request(body)
        assert body["think"] == "low"
        assert body["options"] == {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 4,
            "num_predict": 7,
            "num_ctx": 8192,
            "seed": 1,
            "stop": ["END"],
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "repeat_penalty": 1.5,
        }

    def test_counts_the_same_streaming_or_not(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi", thoughts="Hm"))
        usage = self.chat(client).usage
        assert usage is not None
        assert usage == self.stream(client).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (30, 25)

    def test_forces_a_tool(self, vendor: Vendor, client: openai.OpenAI) -> None:
        """It can't, and says so."""
        vendor.will_say(Reply(text="Hi"))
        forced: Any
        for forced in ("required", {"type": "function", "function": {"name": "get_time"}}):
            with pytest.raises(openai.BadRequestError) as refused:
                self.chat(client, tools=[WEATHER_TOOL, TIME_TOOL], tool_choice=forced)
            assert refused.value.param == "tool_choice"
        assert vendor.server.received == []

    def test_leaves_the_tools_to_the_model_or_out(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, tools=[TIME_TOOL], tool_choice="auto", parallel_tool_calls=True)
        assert [tool["function"]["name"] for tool in vendor.server.last.body["tools"]] == [
            "get_time"
        ]
        self.chat(client, tools=[TIME_TOOL], tool_choice="none")
        assert "tools" not in vendor.server.last.body

    def test_names_the_tool_that_answers(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Fine."))
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
        }
        history = [
            *MESSAGES,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ]
        self.chat(client, messages=history)
        called, answered = vendor.server.last.body["messages"][-2:]
        assert called["tool_calls"][0]["function"] == {
            "name": "get_weather",
            "arguments": {"city": "Bern"},
        }
        assert (answered["role"], answered["tool_name"]) == ("tool", "get_weather")
        vendor.check_request(vendor.server.last.body)

    def test_replies_in_json(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text='{"city": "Basel"}'))
        self.chat(client, response_format=JSON_SCHEMA)
        assert vendor.server.last.body["format"] == SCHEMA
        self.chat(client, response_format={"type": "json_object"})
        assert vendor.server.last.body["format"] == "json"
        vendor.check_request(vendor.server.last.body)

    @pytest.mark.parametrize(("stop", "finish_reason"), [("end", "stop"), ("length", "length")])
    def test_says_why_it_stops(
        self, vendor: Vendor, client: openai.OpenAI, stop: str, finish_reason: str
    ) -> None:
        super().test_says_why_it_stops(vendor, client, stop, finish_reason)

    def test_gives_log_probabilities(self, vendor: Vendor, client: openai.OpenAI) -> None:
        other = {"token": "Yo", "logprob": -2.0}
        tokens = [Logprob(token="Hi", logprob=-0.5, top_logprobs=[other])]
        lines = [_line("Hi", logprobs=tokens), _line(stop="end")]
        vendor.server.will_answer(
            Answer([_line("Hi", stop="end", logprobs=tokens)]),
            streamed=Answer([b"\n".join(lines)], content_type="application/x-ndjson"),
        )
        options: dict[str, Any] = {"logprobs": True, "top_logprobs": 1}
        whole = self.chat(client, **options).choices[0].logprobs
        assert whole is not None
        assert whole.content is not None
        assert (whole.content[0].token, whole.content[0].logprob) == ("Hi", -0.5)
        assert [one.token for one in whole.content[0].top_logprobs] == ["Yo"]
        body = vendor.server.last.body
        vendor.check_request(body)
        assert (body["logprobs"], body["top_logprobs"]) == (True, 1)
        chunks = self.stream(client, **options).chunks
        streamed = [
            token
            for chunk in chunks
            if chunk.choices and chunk.choices[0].logprobs
            for token in chunk.choices[0].logprobs.content or ()
        ]
        assert streamed == whole.content

    def test_answers_text_completions(self, vendor: Vendor, client: openai.OpenAI) -> None:
        lines = [_text_line(" upon"), _text_line(" a time"), _text_line(stop="length")]
        vendor.server.will_answer(
            Answer([_text_line(" upon a time", stop="length")]),
            streamed=Answer([line + b"\n" for line in lines]),
        )
        reply = client.completions.create(model=MODEL, prompt="Once", max_tokens=9)
        assert reply.choices[0].text == " upon a time"
        assert reply.choices[0].finish_reason == "length"
        asked = vendor.server.last
        assert (asked.path, asked.body["prompt"], asked.body["raw"]) == (
            "/api/generate",
            "Once",
            True,
        )
        assert asked.body["options"] == {"num_predict": 9}
        vendor.check_request(asked.body)
        chunks = client.completions.create(model=MODEL, prompt="Once", stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == " upon a time"

    def test_says_when_nothing_was_generated(self, vendor: Vendor, client: openai.OpenAI) -> None:
        loaded = {"model": "llama3", "done": True, "done_reason": "load"}
        vendor.server.will_answer(Answer([json.dumps({**loaded, "response": ""}).encode()]))
        with pytest.raises(openai.InternalServerError, match="nothing was generated"):
            self.chat(client)

    def test_says_that_a_model_is_missing(self, vendor: Vendor, client: openai.OpenAI) -> None:
        error = b'{"error":"model \'llama3\' not found"}'
        vendor.server.will_answer(Answer([error], status=404))
        with pytest.raises(openai.NotFoundError, match="'llama3' not found"):
            self.chat(client)

    def test_embeds(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vectors = [[0.5, -1.0], [0.25, 3.0]]
        reply = ollama.EmbedResponse(model="llama3", embeddings=vectors, prompt_eval_count=4)
        vendor.server.will_answer(Answer([reply.model_dump_json(exclude_none=True).encode()]))
        for encoding in ("float", "base64", openai.omit):
            embedded = client.embeddings.create(
                model=MODEL, input=["one", "two"], dimensions=2, encoding_format=encoding
            )
            assert [each.index for each in embedded.data] == [0, 1]
            assert embedded.usage.prompt_tokens == 4
        assert [each.embedding for each in embedded.data] == vectors
        asked = vendor.server.last
        assert asked.path == "/api/embed"
        assert asked.body == {
            "model": "llama3",
            "input": ["one", "two"],
            "truncate": False,
            "dimensions": 2,
        }
        vendor.check_request(asked.body)

    def test_refuses_what_can_t_be_embedded(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        for wrong in ([1, 2], "", [], ["a", ""]):
            with pytest.raises(openai.BadRequestError) as refused:
                client.embeddings.create(model=MODEL, input=wrong)
            assert refused.value.param == "input"
        assert vendor.server.received == []

    def test_says_when_vectors_are_missing(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.server.will_answer(Answer([b'{"embeddings": [[1.0]]}']))
        with pytest.raises(openai.InternalServerError, match="1 vectors for 2 texts"):
            client.embeddings.create(model=MODEL, input=["one", "two"])

    def test_lists_the_vendors_models(self, vendor: Vendor, client: openai.OpenAI) -> None:
        assert "ollama/new:latest" in [model.id for model in client.models.list()]
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, model="ollama/new:latest")
        assert vendor.server.last.body["model"] == "new:latest"

    def _beginning(self, vendor: Vendor, reply: Reply) -> bytes:
        lines = vendor.stream(reply).splitlines(keepends=True)
        first = next(at for at, line in enumerate(lines) if b"It is" in line)
        return b"".join(lines[: first + 1])
