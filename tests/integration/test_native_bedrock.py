"""The OpenAI client, a server with `remote::bedrock-converse`, and Bedrock behind it.

Requests are signed, and refused as Bedrock does: see `tests.aws_signatures` and `tests.bedrock`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web

from tests import bedrock
from tests.aws_signatures import Account
from tests.aws_signatures import complaint as signature_complaint
from tests.integration import wire
from tests.integration.native_suite import (
    MESSAGES,
    MODEL,
    TIME_TOOL,
    WEATHER_TOOL,
    NativeSuite,
    Reply,
    Vendor,
)
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import ServerProcess, running, write_template

ACCOUNT = Account("ASIAEXAMPLE12345", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token//+123456")
CLAUDE = "us.anthropic.claude-x-v1:0"
REGION = "eu-central-1"

STOP_REASONS = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "filter": "guardrail_intervened",
}


class BedrockServer(NativeVendor):
    """Refuses what Bedrock refuses, before it answers with what it was given.

    Attributes:
        account: whose signatures it takes; None if it wants the key `sk-x`.
    """

    account: Account | None = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self.account is not None:
            url = f"{request.scheme}://{request.host}{request.raw_path}"
            wrong = signature_complaint(
                self.account, "bedrock", REGION, request.method, url, request.headers, body
            )
            if wrong is not None:
                return _refusal(wrong, f"The security token {self.account.token} is wrong.", 403)
        elif request.headers.get("authorization") != "Bearer sk-x":
            return _refusal("AccessDeniedException", "Authentication failed.", 403)
        operation = request.path.rpartition("/")[2]
        if operation in bedrock.OPERATIONS:
            wrong = bedrock.complaint(operation, json.loads(body))
            if wrong is not None:
                return _refusal("ValidationException", wrong, 400)
        return await super()._answer(request)


class SigningBedrock(BedrockServer):
    account = ACCOUNT


def _refusal(name: str, message: str, status: int) -> web.Response:
    kind = f"{name}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    return web.json_response(
        {"message": message}, status=status, headers={"x-amzn-errortype": kind}
    )


class BedrockVendor(Vendor):
    server_type = BedrockServer
    error_body = b'{"message":"Too many requests, please slow down."}'
    stream_error = bedrock.exception("serviceUnavailableException", "The model is overloaded")

    def reply(self, reply: Reply) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if reply.thoughts:
            thought = {"text": reply.thoughts, "signature": "c2VhbGVk"}
            content.append({"reasoningContent": {"reasoningText": thought}})
        if reply.text:
            content.append({"text": reply.text})
        content += [
            {"toolUse": {"toolUseId": f"tooluse_{index}", "name": name, "input": arguments}}
            for index, (name, arguments) in enumerate(reply.calls)
        ]
        return bedrock.reply(content, STOP_REASONS[reply.stop])

    def whole(self, reply: Reply) -> bytes:
        return json.dumps(self.reply(reply)).encode()

    def stream(self, reply: Reply) -> bytes:
        return bedrock.stream_bytes(bedrock.stream_events(self.reply(reply)))

    def check_request(self, body: dict[str, Any]) -> None:
        """The server has refused what is wrong."""

    def forced_tool(self, body: dict[str, Any]) -> str:
        return str(body["toolConfig"]["toolChoice"]["tool"]["name"])

    def schema(self, body: dict[str, Any]) -> Any:
        wanted = body["outputConfig"]["textFormat"]
        assert wanted["type"] == "json_schema"
        return json.loads(wanted["structure"]["jsonSchema"]["schema"])


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BedrockServer, ServerProcess]]:
    folder = tmp_path_factory.mktemp("bedrock")
    with SigningBedrock() as server:
        listed = {
            "modelSummaries": [{"modelId": "amazon.nova-x"}],
            "inferenceProfileSummaries": [{"inferenceProfileId": "eu.amazon.nova-x"}],
        }
        server.will_answer(Answer([json.dumps(listed).encode()]))
        config = {"base_url": server.url, "region": REGION, "aws": {}}
        guarded = {**config, "guardrail": {"identifier": "abc", "version": "3"}}
        kind = "remote::bedrock-converse"
        template = write_template(
            folder / "bedrock.yaml",
            providers=[
                {"id": "bedrock", "type": kind, "config": {**config, "models": "discover"}},
                {"id": "guarded", "type": kind, "config": {**guarded, "family": "nova"}},
                {
                    "id": "openai",
                    "type": "remote::bedrock",
                    "config": {**config, "base_url": f"{server.url}/openai/v1"},
                },
            ],
            models=[
                {"id": MODEL, "provider": "bedrock", "provider_model": CLAUDE},
                {
                    "id": "marked",
                    "provider": "bedrock",
                    "provider_model": CLAUDE,
                    "prompt_cache": "auto",
                },
                {"id": "llama", "provider": "bedrock", "provider_model": "meta.llama4-x-v1:0"},
                {"id": "gpt-oss", "provider": "openai", "provider_model": "openai.gpt-oss-120b"},
                {"id": "profile", "provider": "guarded", "provider_model": "arn:aws:bedrock:x/y"},
            ],
        )
        nothing = {
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        }
        with running(template, env={**nothing, **ACCOUNT.env}) as process:
            wire.request("GET", f"{process.base_url}/models")  # waits for the vendor's list
            yield server, process


@pytest.fixture(scope="module")
def vendor(process: tuple[BedrockServer, ServerProcess]) -> BedrockVendor:
    return BedrockVendor(process[0], process[1].base_url)


@pytest.fixture(scope="module")
def client(vendor: BedrockVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestBedrock(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, extra_headers={"x-request-id": "named-by-the-client"})
        asked = vendor.server.last
        assert asked.path == "/model/us.anthropic.claude-x-v1%3A0/converse"
        assert asked.headers["authorization"].startswith(
            f"AWS4-HMAC-SHA256 Credential={ACCOUNT.access_key}/"
        )
        assert asked.headers["x-request-id"] == "named-by-the-client"
        assert asked.body == {
            "system": [{"text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"text": "Weather?"}]}],
        }
        self.stream(client)
        assert vendor.server.last.path == "/model/us.anthropic.claude-x-v1%3A0/converse-stream"

    def test_counts_the_same_streaming_or_not(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi", thoughts="Hm"))
        usage = self.chat(client).usage
        assert usage is not None
        assert usage == self.stream(client).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (30, 25)
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 10

    def test_makes_json_objects_by_a_forced_tool(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(calls=[("reply", {"ok": True})], stop="calls"))
        options: dict[str, Any] = {"response_format": {"type": "json_object"}}
        reply = self.chat(client, **options).choices[0]
        assert reply.message.tool_calls is None
        assert json.loads(reply.message.content or "") == {"ok": True}
        assert reply.finish_reason == "stop"
        assert vendor.forced_tool(vendor.server.last.body) == "reply"
        streamed = self.stream(client, **options)
        assert json.loads(streamed.text) == {"ok": True}
        assert streamed.finish_reason == "stop"

    def test_thinks_as_its_model_is_told_to(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, reasoning_effort="low", extra_body={"top_k": 5})
        body = vendor.server.last.body
        assert body["additionalModelRequestFields"] == {
            "thinking": {"type": "adaptive"},
            "top_k": 5,
        }
        assert body["outputConfig"] == {"effort": "low"}
        self.chat(client, model="profile", reasoning_effort="low")
        assert vendor.server.last.body["additionalModelRequestFields"] == {
            "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}
        }
        raw = client.chat.completions.with_raw_response.create(
            model="llama", messages=MESSAGES, reasoning_effort="low"
        )
        assert raw.headers["x-llama-compat-dropped"] == "reasoning_effort"
        assert "additionalModelRequestFields" not in vendor.server.last.body

    def test_gets_back_what_the_client_lost_and_others_are_not_told(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        for stream in (False, True):
            city = f"Bern, {stream}"
            vendor.will_say(Reply("", f"In {city}?", [("get_weather", {"city": city})], "calls"))
            (self.stream if stream else self.chat)(client, tools=[WEATHER_TOOL])
            arguments = json.dumps({"city": city})
            function = {"name": "get_weather", "arguments": arguments}
            call = {"id": "tooluse_1", "type": "function", "function": function}
            history = [
                *MESSAGES,
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "tooluse_1", "content": "sunny"},
            ]
            vendor.will_say(Reply(text="Sunny."))
            self.chat(client, messages=history, tools=[WEATHER_TOOL])
            thought = {"text": f"In {city}?", "signature": "c2VhbGVk"}
            said = vendor.server.last.body["messages"][1]["content"]
            assert said[0] == {"reasoningContent": {"reasoningText": thought}}
            self.chat(client, model="llama", messages=history, tools=[WEATHER_TOOL])
            said = vendor.server.last.body["messages"][1]["content"]
            assert [*said[0]] == ["toolUse"]

    def test_prompts_are_marked_where_the_template_says_so(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, model="marked")
        body = vendor.server.last.body
        assert body["system"][-1] == body["messages"][0]["content"][-1]
        assert body["system"][-1] == {"cachePoint": {"type": "default"}}

    def test_has_its_guardrail(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="No.", stop="filter"))
        reply = self.chat(client, model="profile").choices[0]
        assert (reply.finish_reason, reply.message.content) == ("content_filter", "No.")
        assert vendor.server.last.body["guardrailConfig"] == {
            "guardrailIdentifier": "abc",
            "guardrailVersion": "3",
        }

    def test_offers_the_tools_that_were_called(self, vendor: Vendor, client: openai.OpenAI) -> None:
        """Where there are calls in the conversation, Bedrock wants to have tools."""
        vendor.will_say(Reply(text="Fine."))
        call = {
            "id": "a call/of another vendor" + "x" * 80,
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
        }
        history = [
            *MESSAGES,
            {"role": "assistant", "content": " ", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
        ]
        self.chat(client, messages=history)
        (tool,) = vendor.server.last.body["toolConfig"]["tools"]
        assert tool["toolSpec"]["name"] == "get_weather"
        self.chat(client, messages=history, tools=[WEATHER_TOOL], tool_choice="none")
        body = vendor.server.last.body
        assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
        forbidden: dict[str, Any] = {"tools": [WEATHER_TOOL], "tool_choice": "none"}
        for more in ({}, forbidden):
            raw = client.chat.completions.with_raw_response.create(
                model="llama", messages=history, **more
            )
            assert raw.headers["x-llama-compat-adapted"] == "messages.tool_calls=text"
            body = vendor.server.last.body
            assert "toolConfig" not in body
            assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
            assert "tool" not in json.dumps(body["messages"])
            assert "(get_weather gave:" in json.dumps(body["messages"])
        self.chat(client, tools=[TIME_TOOL], tool_choice="none")
        assert "toolConfig" not in vendor.server.last.body

    @pytest.mark.parametrize(
        ("name", "status", "code"),
        [
            ("throttlingException", 429, "rate_limit_exceeded"),
            ("modelStreamErrorException", 424, None),
            ("validationException", 400, None),
            ("internalServerException", 500, None),
        ],
    )
    def test_an_exception_in_a_stream_keeps_its_status(
        self, vendor: Vendor, client: openai.OpenAI, name: str, status: int, code: str | None
    ) -> None:
        frames = bedrock.stream_bytes([{"messageStart": {"role": "assistant"}}])
        frames += bedrock.exception(name, "It went wrong")
        vendor.server.will_answer(Answer([frames]))
        with pytest.raises(openai.APIStatusError, match="It went wrong") as failed:
            self.stream(client)
        assert failed.value.status_code == status
        assert code is None or failed.value.code == code

    def test_a_damaged_frame_is_no_text(self, vendor: Vendor, client: openai.OpenAI) -> None:
        stream = bytearray(vendor.stream(Reply(text="It is 20 degrees.")))
        at = stream.index(b"It is")
        stream[at] ^= 1
        vendor.server.will_answer(Answer([bytes(stream)]))
        with pytest.raises(openai.APIError, match="damaged"):
            self.stream(client)

    def test_says_that_a_prompt_is_too_long(self, vendor: Vendor, client: openai.OpenAI) -> None:
        error = b'{"message":"Input is too long for requested model."}'
        headers = {"x-amzn-errortype": "ValidationException:http://x/"}
        vendor.server.will_answer(Answer([error], status=400, headers=headers))
        with pytest.raises(openai.BadRequestError) as failed:
            self.chat(client)
        assert failed.value.code == "context_length_exceeded"

    def test_counts_tokens(self, vendor: Vendor) -> None:
        vendor.server.will_answer(Answer([b'{"inputTokens": 12}']))
        url = vendor.base_url.removesuffix("/openai/v1") + "/messages/count_tokens"
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        assert wire.request("POST", url, body).json() == {"input_tokens": 12}
        assert vendor.server.last.path.endswith("/count-tokens")

    def test_lists_the_vendors_models(self, vendor: Vendor, client: openai.OpenAI) -> None:
        listed = [model.id for model in client.models.list()]
        assert {"bedrock/amazon.nova-x", "bedrock/eu.amazon.nova-x"} <= set(listed)
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, model="bedrock/eu.amazon.nova-x")
        assert vendor.server.last.path == "/model/eu.amazon.nova-x/converse"

    def test_its_other_api_is_signed_too(self, vendor: Vendor, client: openai.OpenAI) -> None:
        """The OpenAI-compatible one, which is relayed to."""
        scripted = OpenAIVendor(vendor.server, vendor.base_url)
        scripted.will_say(Reply(text="It is 20 °C. 🌞"))
        assert self.chat(client, model="gpt-oss").choices[0].message.content == "It is 20 °C. 🌞"
        assert vendor.server.last.path == "/openai/v1/chat/completions"
        assert self.stream(client, model="gpt-oss").text == "It is 20 °C. 🌞"

    def _beginning(self, vendor: Vendor, reply: Reply) -> bytes:
        frames = bedrock.stream_events(BedrockVendor.reply(vendor, reply))  # type: ignore[arg-type]
        texts = [at for at, each in enumerate(frames) if "It is" in json.dumps(each)]
        return bedrock.stream_bytes(frames[: texts[0] + 1])


def test_a_wrong_account_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    other = Account("AKIASOMEBODYELSE1", "secret-of-somebody-else-1234567890abcdef")
    with SigningBedrock() as server:
        server.will_answer(Answer([b"{}"]))
        config = {"base_url": server.url, "region": REGION, "aws": {}}
        template = write_template(
            tmp_path / "bedrock.yaml",
            providers=[{"id": "aws", "type": "remote::bedrock-converse", "config": config}],
            models=[{"id": MODEL, "provider": "aws", "provider_model": CLAUDE}],
        )
        with running(template, env={"AWS_EC2_METADATA_DISABLED": "true", **other.env}) as process:
            body = {"model": MODEL, "messages": MESSAGES}
            answer = wire.request("POST", f"{process.base_url}/chat/completions", body)
        assert (answer.status, answer.error()["code"]) == (502, "upstream_authentication")
        assert "AWS credentials" in answer.error()["message"]
        told = answer.body.decode() + process.log
        assert other.access_key not in told
        assert other.secret_key not in told
        assert str(ACCOUNT.token) not in told
