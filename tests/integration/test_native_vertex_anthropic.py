"""Clients, a server with `remote::vertex-anthropic`, and Claude on Google Cloud behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from llama_compat.dialects.anthropic_messages.versions import THINKING_BINDING
from tests.integration import wire
from tests.integration.google_cloud import GoogleCloud
from tests.integration.native_suite import (
    MESSAGES,
    MODEL,
    WEATHER_TOOL,
    NativeSuite,
    Reply,
    Vendor,
)
from tests.integration.native_vendor import Answer
from tests.integration.server_process import running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor

PLACE = "/v1/projects/my-project/locations/eu/publishers/anthropic/models"
CLAUDE = "claude-x@20260101"
BOUND = "claude-haiku-5-5@20261001"


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnthropicVendor]:
    folder = tmp_path_factory.mktemp("vertex")
    with GoogleCloud() as cloud:
        config = {
            "base_url": cloud.url,
            "project": "my-project",
            "location": "eu",
            "service_account": str(cloud.service_account(folder)),
            "betas": ["one-beta"],
        }
        template = write_template(
            folder / "vertex.yaml",
            providers=[{"id": "claude", "type": "remote::vertex-anthropic", "config": config}],
            models=[
                {"id": MODEL, "provider": "claude", "provider_model": CLAUDE},
                {"id": "bound", "provider": "claude", "provider_model": BOUND},
            ],
        )
        with running(template) as process:
            yield VertexAnthropicVendor(cloud, process.base_url)


class VertexAnthropicVendor(AnthropicVendor):
    def check_request(self, body: dict[str, Any]) -> None:
        assert body.pop("anthropic_version") == "vertex-2023-10-16"
        super().check_request({"model": CLAUDE, **body})


@pytest.fixture(scope="module")
def client(vendor: AnthropicVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestVertexAnthropic(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client)
        asked = vendor.server.last
        assert asked.path == f"{PLACE}/{CLAUDE}:rawPredict"
        assert asked.headers["authorization"].startswith("Bearer ya29.")
        assert asked.headers["anthropic-beta"] == "one-beta"
        assert "anthropic-version" not in asked.headers
        assert "x-api-key" not in asked.headers
        self.stream(client)
        assert vendor.server.last.path == f"{PLACE}/{CLAUDE}:streamRawPredict"

    @pytest.mark.parametrize("stream", [False, True])
    def test_anthropics_own_clients_are_relayed_to_it(self, vendor: Vendor, stream: bool) -> None:
        vendor.will_say(Reply(text="It is 20 degrees."))
        url = vendor.base_url.removesuffix("/openai/v1") + "/messages"
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "theirs"}
        body = {
            "model": MODEL,
            "max_tokens": 9,
            "stream": stream,
            "messages": [{"role": "user", "content": "Hi"}],
            "new_member": {"x": 1},
        }
        reply = wire.request("POST", url, body, headers)
        assert reply.status == 200, reply.body
        assert MODEL.encode() in reply.body
        asked = vendor.server.last
        method = "streamRawPredict" if stream else "rawPredict"
        assert asked.path == f"{PLACE}/{CLAUDE}:{method}"
        assert asked.headers["anthropic-beta"] == "theirs,one-beta"
        assert asked.body["new_member"] == {"x": 1}
        assert "model" not in asked.body

    @pytest.mark.parametrize("stream", [False, True])
    def test_thoughts_that_are_bound_go_back_as_at_anthropic(
        self, vendor: Vendor, client: openai.OpenAI, stream: bool
    ) -> None:
        arguments = {"city": f"Bern, {stream}"}
        vendor.will_say(Reply("", "Which?", [("get_weather", arguments)], "calls"))
        options: dict[str, Any] = {"model": "bound", "tools": [WEATHER_TOOL]}
        if stream:
            call_id = self.stream(client, **options).calls[0]["id"]
        else:
            (call,) = self.chat(client, **options).choices[0].message.tool_calls or ()
            call_id = call.id
        function = {"name": "get_weather", "arguments": json.dumps(arguments)}
        called = {"id": call_id, "type": "function", "function": function}
        history = [
            *MESSAGES,
            {"role": "assistant", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": call_id, "content": "sunny"},
        ]
        vendor.will_say(Reply(text="Sunny."))
        self.chat(client, messages=history, **options)
        asked = vendor.server.last
        assert asked.path == f"{PLACE}/{BOUND}:rawPredict"
        assert asked.body["messages"][1]["content"][0]["thinking"] == "Which?"
        assert asked.body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
        assert asked.headers["anthropic-beta"] == f"{THINKING_BINDING},one-beta"

    def test_counts_tokens(self, vendor: Vendor) -> None:
        vendor.server.will_answer(Answer([b'{"input_tokens": 12}']))
        url = vendor.base_url.removesuffix("/openai/v1") + "/messages/count_tokens"
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        assert wire.request("POST", url, body).json() == {"input_tokens": 12}
        assert vendor.server.last.path == f"{PLACE}/count-tokens:rawPredict"
        assert vendor.server.last.body["model"] == CLAUDE
