"""The OpenAI client, a server with `remote::gemini-native`, and Google's Interactions behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests import sdk_interactions as sdk
from tests.integration.interactions_vendor import InteractionsVendor
from tests.integration.native_suite import MESSAGES, MODEL, WEATHER_TOOL, NativeSuite, Reply, Vendor
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import running, write_template


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractionsVendor]:
    with NativeVendor() as server:
        config = {"base_url": server.url, "api_key": "AIza-test", "apis": ["interactions"]}
        template = write_template(
            tmp_path_factory.mktemp("interactions") / "interactions.yaml",
            providers=[{"id": "gemini", "type": "remote::gemini-native", "config": config}],
            models=[{"id": MODEL, "provider": "gemini", "provider_model": "models/gemini-3-pro"}],
        )
        with running(template) as process:
            yield InteractionsVendor(server, process.base_url)


@pytest.fixture(scope="module")
def client(vendor: InteractionsVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestInteractions(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, extra_headers={"x-request-id": "named-by-the-client"})
        asked = vendor.server.last
        assert asked.path == "/v1beta/interactions"
        assert asked.headers["x-goog-api-key"] == "AIza-test"
        assert asked.headers["api-revision"] == "2026-05-20"
        assert asked.headers["x-request-id"] == "named-by-the-client"
        assert asked.body == {
            "model": "gemini-3-pro",
            "system_instruction": "Be brief.",
            "input": [{"type": "user_input", "content": [sdk.text("Weather?")]}],
            "store": False,
        }
        self.stream(client)
        assert vendor.server.last.path == "/v1beta/interactions"
        assert vendor.server.last.body["stream"] is True

    @pytest.mark.parametrize("stream", [False, True])
    def test_takes_the_seal_of_a_thought_back_with_the_call(
        self, vendor: Vendor, client: openai.OpenAI, stream: bool
    ) -> None:
        calls = [("get_weather", {"city": "Bern"})]
        vendor.will_say(Reply(thoughts="Hm.", calls=calls, stop="calls"))
        if stream:
            chunks = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, tools=[WEATHER_TOOL], stream=True
            )
            fragments = [chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices]
            begun, *_, ended = [one for each in fragments if each for one in each]
            extra: Any = ended.model_dump().get("extra_content") or begun.extra_content  # type: ignore[attr-defined]
            call_id = begun.id
        else:
            message: Any = self.chat(client, tools=[WEATHER_TOOL]).choices[0].message
            (call,) = message.tool_calls
            extra, call_id = call.extra_content, call.id
        assert extra == {"google": {"thought_signature": "c2VhbA=="}}
        function = {"name": "get_weather", "arguments": '{"city":"Bern"}'}
        given = {"id": call_id, "type": "function", "function": function, "extra_content": extra}
        history = [
            *MESSAGES,
            {"role": "assistant", "tool_calls": [given]},
            {"role": "tool", "tool_call_id": call_id, "content": "sunny"},
        ]
        self.chat(client, messages=history, tools=[WEATHER_TOOL])
        body = vendor.server.last.body
        vendor.check_request(body)
        assert body["input"][1:] == [
            sdk.thought("Hm.", "c2VhbA=="),
            sdk.function_call(str(call_id), "get_weather", {"city": "Bern"}),
            {
                "type": "function_result",
                "call_id": call_id,
                "name": "get_weather",
                "result": "sunny",
            },
        ]

    def test_says_how_much_to_think(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, reasoning_effort="low", temperature=0.5, max_completion_tokens=9)
        vendor.check_request(vendor.server.last.body)
        assert vendor.server.last.body["generation_config"] == {
            "temperature": 0.5,
            "max_output_tokens": 9,
            "thinking_level": "low",
            "thinking_summaries": "auto",
        }

    @pytest.mark.parametrize("name", ["top_k", "presence_penalty", "frequency_penalty"])
    def test_leaves_wishes_out_that_the_api_has_no_word_for(
        self, vendor: Vendor, client: openai.OpenAI, name: str
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], extra_body={name: 1}
        )
        assert raw.headers["x-llama-compat-dropped"] == name
        assert name not in vendor.server.last.body
        assert name not in vendor.server.last.body.get("generation_config", {})

    def test_refuses_what_the_api_has_no_word_for(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError) as refused:
            self.chat(client, extra_body={"logit_bias": {"5": 1}})
        assert refused.value.param == "logit_bias"
        assert vendor.server.received == []

    def test_says_that_the_model_failed(self, vendor: Vendor, client: openai.OpenAI) -> None:
        whole = sdk.interaction([], "failed", errors=[{"code": "internal", "message": "It broke."}])
        vendor.server.will_answer(
            Answer([sdk.as_json(whole)]),
            streamed=Answer([sdk.stream_bytes(sdk.stream_events(whole))]),
        )
        for stream in (False, True):
            with pytest.raises(openai.APIError, match="ended as failed: It broke"):
                list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream))

    def test_refuses_a_stream_that_ends_too_soon(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        events = sdk.stream_events(sdk.interaction([sdk.output(sdk.text("Hello there"))]))
        vendor.server.will_answer(Answer([sdk.stream_bytes(events[:-1])]))
        with pytest.raises(openai.APIError, match=r"before its interaction\.completed"):
            self.stream(client)
