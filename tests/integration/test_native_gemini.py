"""The OpenAI client, a server with `remote::gemini-native`, and Gemini's API behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from google.genai import types

from tests import sdk_gemini as sdk
from tests.integration import wire
from tests.integration.native_suite import (
    MESSAGES,
    MODEL,
    WEATHER_TOOL,
    NativeSuite,
    Reply,
    Vendor,
)
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import running, write_template

FINISH_REASONS = {
    "end": types.FinishReason.STOP,
    "calls": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "filter": types.FinishReason.SAFETY,
}


class GeminiVendor(Vendor):
    error_body = (
        b'{"error":{"code":429,"message":"Please slow down","status":"RESOURCE_EXHAUSTED"}}'
    )
    stream_error = (
        b'data: {"error":{"code":503,"message":"The model is overloaded",'
        b'"status":"UNAVAILABLE"}}\r\n\r\n'
    )

    def response(self, reply: Reply) -> types.GenerateContentResponse:
        parts: list[types.Part] = []
        if reply.thoughts:
            parts.append(sdk.thought(reply.thoughts))
        if reply.text:
            parts.append(sdk.text(reply.text))
        parts += [
            sdk.function_call(name, arguments, f"call_{index}", b"sealed" if not index else None)
            for index, (name, arguments) in enumerate(reply.calls)
        ]
        return sdk.response(parts, FINISH_REASONS[reply.stop])

    def whole(self, reply: Reply) -> bytes:
        return self.response(reply).model_dump_json(by_alias=True, exclude_none=True).encode()

    def stream(self, reply: Reply) -> bytes:
        return sdk.stream_bytes(sdk.stream_events(self.response(reply))).replace(b"\r", b"")

    def check_request(self, body: dict[str, Any]) -> None:
        sdk.check_request(body)

    def forced_tool(self, body: dict[str, Any]) -> str:
        config = body["toolConfig"]["functionCallingConfig"]
        assert config["mode"] == "ANY"
        (name,) = config["allowedFunctionNames"]
        return str(name)

    def schema(self, body: dict[str, Any]) -> Any:
        config = body["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        return config.get("responseSchema") or config["responseJsonSchema"]


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeminiVendor]:
    with NativeVendor() as server:
        listed = types.Model(name="models/gemini-new").model_dump_json(exclude_none=True)
        server.will_answer(Answer([b'{"models":[%b]}' % listed.encode()]))
        base = {"base_url": server.url, "api_key": "${env.GEMINI_KEY}"}
        near = {**base, "images": {"allow_private_addresses": True}, "models": "discover"}
        kind = "remote::gemini-native"
        template = write_template(
            tmp_path_factory.mktemp("gemini") / "gemini.yaml",
            providers=[
                {"id": "gemini", "type": kind, "config": base},
                {"id": "near", "type": kind, "config": near},
            ],
            models=[
                {"id": MODEL, "provider": "gemini", "provider_model": "gemini-3-pro"},
                {"id": "older", "provider": "gemini", "provider_model": "gemini-2.5-flash"},
                {"id": "near-model", "provider": "near", "provider_model": "gemini-3-pro"},
            ],
        )
        with running(template, env={"GEMINI_KEY": "AIza-test"}) as process:
            wire.request("GET", f"{process.base_url}/models")  # waits for the vendor's list
            yield GeminiVendor(server, process.base_url)


@pytest.fixture(scope="module")
def client(vendor: GeminiVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


PDF = "application/pdf"


class TestGemini(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, extra_headers={"x-request-id": "named-by-the-client"})
        asked = vendor.server.last
        assert asked.path == "/v1beta/models/gemini-3-pro:generateContent"
        assert asked.headers["x-goog-api-key"] == "AIza-test"
        assert asked.headers["x-request-id"] == "named-by-the-client"
        assert asked.body == {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
        }
        self.stream(client)
        path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
        assert vendor.server.last.path == path

    @pytest.mark.parametrize("stream", [False, True])
    def test_gives_signatures_to_clients_and_takes_them_back(
        self, vendor: Vendor, client: openai.OpenAI, stream: bool
    ) -> None:
        vendor.will_say(Reply(calls=[("get_weather", {"city": "Bern"})], stop="calls"))
        if stream:
            chunks = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, tools=[WEATHER_TOOL], stream=True
            )
            fragments = [chunk.choices[0].delta.tool_calls for chunk in chunks]
            call: Any = next(fragment[0] for fragment in fragments if fragment)
        else:
            call = (self.chat(client, tools=[WEATHER_TOOL]).choices[0].message.tool_calls or [])[0]
        assert call.extra_content == {"google": {"thought_signature": "c2VhbGVk"}}
        given = {"type": "function", **call.model_dump(exclude={"index"})}
        answer = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}

        def sent_back(call: dict[str, Any]) -> str:
            history = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}, answer]
            self.chat(client, messages=history, tools=[WEATHER_TOOL])
            body = vendor.server.last.body
            vendor.check_request(body)
            return str(body["contents"][1]["parts"][0]["thoughtSignature"])

        assert sent_back(given) == "c2VhbGVk"
        del given["extra_content"]
        assert sent_back(given) == "c2VhbGVk"  # lost by the client, and put back
        given["id"], given["function"]["arguments"] = "call_of_another", '{"city": "Basel"}'
        answer["tool_call_id"] = "call_of_another"
        assert sent_back(given) == "skip_thought_signature_validator"

    def test_replies_in_json(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="{}"))
        reply = self.chat(client, response_format={"type": "json_object"})
        assert reply.choices[0].message.content == "{}"
        assert vendor.server.last.body["generationConfig"] == {
            "responseMimeType": "application/json"
        }

    def test_says_how_much_to_think(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        configs = {}
        for model in (MODEL, "older"):
            self.chat(client, model=model, reasoning_effort="low")
            vendor.check_request(vendor.server.last.body)
            configs[model] = vendor.server.last.body["generationConfig"]["thinkingConfig"]
        assert configs == {
            MODEL: {"thinkingLevel": "LOW", "includeThoughts": True},
            "older": {"thinkingBudget": 1024, "includeThoughts": True},
        }

    def test_says_how_likely_its_tokens_are(self, vendor: Vendor, client: openai.OpenAI) -> None:
        chosen = [types.LogprobsResultCandidate(token="Hi", log_probability=-0.25)]
        top = types.LogprobsResultTopCandidates(
            candidates=[*chosen, types.LogprobsResultCandidate(token="Yo", log_probability=-2.0)]
        )
        logprobs = types.LogprobsResult(chosen_candidates=chosen, top_candidates=[top])
        body = sdk.dump(sdk.response([sdk.text("Hi")], logprobs_result=logprobs))
        vendor.server.will_answer(
            Answer([b"data: %b\n\n" % sdk.stream_bytes([body])[6:].strip()]),
        )
        chunks = list(
            client.chat.completions.create(
                model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2, stream=True
            )
        )
        assert vendor.server.last.body["generationConfig"] == {
            "responseLogprobs": True,
            "logprobs": 2,
        }
        (told,) = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
        assert told.content is not None
        assert (told.content[0].token, told.content[0].logprob) == ("Hi", -0.25)
        assert [each.token for each in told.content[0].top_logprobs] == ["Hi", "Yo"]

    def test_says_that_the_prompt_was_blocked(self, vendor: Vendor, client: openai.OpenAI) -> None:
        feedback = types.GenerateContentResponsePromptFeedback(
            block_reason=types.BlockedReason.PROHIBITED_CONTENT
        )
        body = sdk.dump(
            types.GenerateContentResponse(prompt_feedback=feedback, usage_metadata=sdk.USAGE)
        )
        vendor.server.will_answer(
            Answer([sdk.stream_bytes([body])[6:].strip()]),
            streamed=Answer([sdk.stream_bytes([body])]),
        )
        reply = self.chat(client).choices[0]
        assert reply.finish_reason == "content_filter"
        assert reply.message.refusal == "The prompt was blocked: PROHIBITED_CONTENT."
        assert self.stream(client).finish_reason == "content_filter"

    def test_says_that_the_model_failed(self, vendor: Vendor, client: openai.OpenAI) -> None:
        body = sdk.dump(
            sdk.response([], types.FinishReason.MALFORMED_FUNCTION_CALL, finish_message="call: f(")
        )
        vendor.server.will_answer(
            Answer([sdk.stream_bytes([body])[6:].strip()]),
            streamed=Answer([sdk.stream_bytes([body])]),
        )
        for stream in (False, True):
            with pytest.raises(openai.APIError, match="MALFORMED_FUNCTION_CALL: call: f"):
                list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream))

    def test_refuses_what_the_api_has_no_form_for(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError) as refused:
            self.chat(client, extra_body={"stop_token_ids": [5]})
        assert refused.value.param == "stop_token_ids"
        assert vendor.server.received == []

    def test_fetches_images_for_the_vendor(self, vendor: Vendor, client: openai.OpenAI) -> None:
        stream = Answer([vendor.stream(Reply(text="A dot."))], content_type="text/event-stream")
        image = Answer([b"dot"], content_type="image/png")
        vendor.server.will_answer(image, streamed=stream)
        part = {"type": "image_url", "image_url": {"url": f"{vendor.server.url}/dot.png"}}
        messages = [{"role": "user", "content": [part]}]
        assert self.stream(client, model="near-model", messages=messages).text == "A dot."
        fetched, asked = vendor.server.received
        assert (fetched.method, fetched.path) == ("GET", "/dot.png")
        assert "x-goog-api-key" not in fetched.headers
        assert asked.body["contents"][0]["parts"] == [
            {"inlineData": {"mimeType": "image/png", "data": "ZG90"}}
        ]

    def test_fetches_documents_for_the_vendor(self, vendor: Vendor, client: openai.OpenAI) -> None:
        stream = Answer([vendor.stream(Reply(text="A report."))], content_type="text/event-stream")
        vendor.server.will_answer(Answer([b"%PDF"], content_type=PDF), streamed=stream)
        file = {"file_id": f"{vendor.server.url}/a.pdf", "filename": "a.pdf"}
        messages = [{"role": "user", "content": [{"type": "file", "file": file}]}]
        assert self.stream(client, model="near-model", messages=messages).text == "A report."
        fetched, asked = vendor.server.received
        assert (fetched.method, fetched.path) == ("GET", "/a.pdf")
        assert asked.body["contents"][0]["parts"] == [
            {"text": "a.pdf\n"},
            {"inlineData": {"mimeType": PDF, "data": "JVBERg=="}},
        ]

    def test_fetches_images_from_the_public_internet_alone(
        self, vendor: Vendor, client: openai.OpenAI
    ) -> None:
        url = f"{vendor.server.url}/pixel.png"
        part = {"type": "image_url", "image_url": {"url": url}}
        messages = [{"role": "user", "content": [part]}]
        vendor.will_say(Reply(text="Hi"))
        with pytest.raises(openai.BadRequestError, match="not on the public internet") as refused:
            self.chat(client, messages=messages)
        assert refused.value.param == "messages[0].content"
        assert vendor.server.received == []

    def test_embeds(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vectors = [types.ContentEmbedding(values=[0.5, -1.0]), types.ContentEmbedding(values=[2.0])]
        body = types.EmbedContentResponse(embeddings=vectors)
        vendor.server.will_answer(
            Answer([body.model_dump_json(by_alias=True, exclude_none=True).encode()])
        )
        reply = client.embeddings.create(model=MODEL, input=["a", "b"], dimensions=2)
        assert [each.embedding for each in reply.data] == [[0.5, -1.0], [2.0]]
        asked = vendor.server.last
        assert asked.path == "/v1beta/models/gemini-3-pro:batchEmbedContents"
        for text, request in zip("ab", asked.body["requests"], strict=True):
            assert request == {
                "model": "models/gemini-3-pro",
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": 2,
            }
            types.Content.model_validate(request["content"])

    def test_lists_the_vendors_models(self, vendor: Vendor, client: openai.OpenAI) -> None:
        assert "near/gemini-new" in [model.id for model in client.models.list()]
        vendor.will_say(Reply(text="Hi"))
        self.chat(client, model="near/gemini-new")
        assert vendor.server.last.path == "/v1beta/models/gemini-new:generateContent"
