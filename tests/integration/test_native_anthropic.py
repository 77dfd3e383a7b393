"""The OpenAI client, a server with `remote::anthropic-messages`, and Anthropic's API behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from anthropic import types

from tests import sdk_anthropic as sdk
from tests.integration import wire
from tests.integration.native_suite import (
    MODEL,
    WEATHER_TOOL,
    NativeSuite,
    Reply,
    Vendor,
)
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import running, write_template

STOP_REASONS: dict[str, Any] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "filter": "refusal",
}


class AnthropicVendor(Vendor):
    error_body = (
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Please slow down"},'
        b'"request_id":"req_1"}'
    )
    stream_error = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
        b'"message":"We are overloaded"}}\n\n'
    )

    def message(self, reply: Reply) -> Any:
        blocks: list[Any] = []
        if reply.thoughts:
            blocks.append(sdk.thinking(reply.thoughts))
        if reply.text:
            blocks.append(sdk.text(reply.text))
        for index, (name, arguments) in enumerate(reply.calls):
            blocks.append(sdk.tool_use(f"toolu_{index}", name, arguments))
        return sdk.message(blocks, STOP_REASONS[reply.stop])

    def whole(self, reply: Reply) -> bytes:
        return self.message(reply).model_dump_json().encode()

    def stream(self, reply: Reply) -> bytes:
        return sdk.stream_bytes(sdk.stream_events(self.message(reply)))

    def check_request(self, body: dict[str, Any]) -> None:
        sdk.check_request(body)

    def forced_tool(self, body: dict[str, Any]) -> str:
        assert body["tool_choice"]["type"] == "tool"
        return str(body["tool_choice"]["name"])

    def schema(self, body: dict[str, Any]) -> Any:
        return body["output_config"]["format"]["schema"]


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnthropicVendor]:
    with NativeVendor() as server:
        listed = types.ModelInfo.model_construct(id="claude-new", type="model")
        server.will_answer(Answer([b'{"data":[%b]}' % listed.model_dump_json().encode()]))
        config = {
            "base_url": server.url,
            "api_key": "${env.ANTHROPIC_KEY}",
            "betas": ["one-beta", "another-beta"],
            "models": "discover",
        }
        template = write_template(
            tmp_path_factory.mktemp("anthropic") / "anthropic.yaml",
            providers=[{"id": "anthropic", "type": "remote::anthropic-messages", "config": config}],
            models=[{"id": MODEL, "provider": "anthropic", "provider_model": "claude"}],
        )
        with running(template, env={"ANTHROPIC_KEY": "sk-ant-test"}) as process:
            wire.request("GET", f"{process.base_url}/models")  # waits for the vendor's list
            yield AnthropicVendor(server, process.base_url)


@pytest.fixture(scope="module")
def client(vendor: AnthropicVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestAnthropic(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, extra_headers={"x-request-id": "named-by-the-client"})
        asked = vendor.server.last
        assert (asked.method, asked.path) == ("POST", "/v1/messages")
        assert asked.headers["x-api-key"] == "sk-ant-test"
        assert asked.headers["anthropic-version"] == "2023-06-01"
        assert asked.headers["anthropic-beta"] == "one-beta,another-beta"
        assert asked.headers["x-request-id"] == "named-by-the-client"
        assert asked.body == {
            "model": "claude",
            "max_tokens": 4096,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Weather?"}]}],
        }

    def test_makes_json_objects_by_a_forced_tool(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(calls=[("reply", {"ok": True})], stop="calls"))
        options: dict[str, Any] = {"response_format": {"type": "json_object"}}
        reply = self.chat(client, **options).choices[0]
        assert reply.message.tool_calls is None
        assert reply.message.content == '{"ok":true}'
        assert reply.finish_reason == "stop"
        vendor.check_request(vendor.server.last.body)
        streamed = self.stream(client, **options)
        assert streamed.text == '{"ok": true}'
        assert streamed.finish_reason == "stop"

    def test_makes_them_beside_tools(self, vendor: Vendor, client: openai.OpenAI) -> None:
        options: dict[str, Any] = {
            "response_format": {"type": "json_object"},
            "tools": [WEATHER_TOOL],
        }
        vendor.will_say(Reply(calls=[("get_weather", {"city": "Bern"})], stop="calls"))
        reply = self.chat(client, **options).choices[0]
        vendor.check_request(vendor.server.last.body)
        assert vendor.server.last.body["tool_choice"] == {"type": "any"}
        assert reply.finish_reason == "tool_calls"
        assert reply.message.tool_calls is not None
        vendor.will_say(Reply(calls=[("reply", {"ok": True})], stop="calls"))
        reply = self.chat(client, **options).choices[0]
        assert (reply.message.tool_calls, reply.message.content) == (None, '{"ok":true}')
        streamed = self.stream(client, **options)
        assert (streamed.text, streamed.finish_reason) == ('{"ok": true}', "stop")

    @pytest.mark.parametrize(
        ("name", "value", "others"),
        [
            ("logprobs", True, {}),
            ("logit_bias", {"1": 5}, {}),
        ],
    )
    def test_refuses_what_the_api_has_no_form_for(
        self,
        vendor: Vendor,
        client: openai.OpenAI,
        name: str,
        value: Any,
        others: dict[str, Any],
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError) as refused:
            self.chat(client, **{name: value}, **others)
        assert refused.value.param == name
        assert vendor.server.received == []

    @pytest.mark.parametrize(
        ("name", "value"), [("temperature", 1.5), ("seed", 7), ("presence_penalty", 0.5)]
    )
    def test_leaves_wishes_out_that_the_api_has_no_form_for(
        self, vendor: Vendor, client: openai.OpenAI, name: str, value: Any
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], **{name: value}
        )
        assert raw.headers["x-llama-compat-dropped"] == name
        vendor.check_request(vendor.server.last.body)
        assert name not in vendor.server.last.body

    def test_keeps_an_overloaded_vendors_status(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        error = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
        event = b"event: error\ndata: " + error + b"\n\n"
        for answer in (
            Answer([error], status=529),
            Answer([event], content_type="text/event-stream"),
        ):
            vendor.server.will_answer(answer)
            with pytest.raises(openai.InternalServerError, match="Overloaded") as failed:
                self.stream(client)
            assert failed.value.status_code == 529

    def test_does_not_pass_off_the_vendors_401_as_its_own(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        error = (
            b'{"type":"error","error":{"type":"authentication_error",'
            b'"message":"invalid x-api-key sk-ant-test"}}'
        )
        vendor.server.will_answer(Answer([error], status=401))
        with pytest.raises(openai.InternalServerError) as failed:
            self.chat(client)
        assert failed.value.status_code == 502
        assert failed.value.code == "upstream_authentication"
        assert "sk-ant-test" not in failed.value.message

    def test_lists_the_vendors_models(self, vendor: Vendor, client: openai.OpenAI) -> None:
        assert "anthropic/claude-new" in [model.id for model in client.models.list()]
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, model="anthropic/claude-new")
        assert vendor.server.last.body["model"] == "claude-new"
