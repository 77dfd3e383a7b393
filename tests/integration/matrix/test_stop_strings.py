"""More stop strings than a vendor takes, by every client's own SDK: replies are cut at the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.interactions_vendor import InteractionsVendor
from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.providers import Everything
from tests.integration.matrix.said import Ask
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor
from tests.integration.test_native_bedrock import BedrockVendor
from tests.integration.test_native_gemini import GeminiVendor

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

MANY = ["<1>", "<2>", "<3>", "<4>", "<5>", "<6>", "END"]

VENDORS: dict[str, tuple[type[Vendor], str, str, dict[str, Any], list[str]]] = {
    "openai": (OpenAIVendor, "remote::openai", "theirs", {}, MANY[:4]),
    "gemini": (GeminiVendor, "remote::gemini-native", "theirs", {}, MANY[:5]),
    "interactions": (
        InteractionsVendor,
        "remote::gemini-native",
        "theirs",
        {"apis": ["interactions"]},
        MANY[:5],
    ),
    "bedrock": (BedrockVendor, "remote::bedrock-converse", "amazon.nova-x", {}, MANY[:4]),
    "anthropic": (AnthropicVendor, "remote::anthropic-messages", "claude", {}, MANY),
}
"""The vendor, the type of its provider, its model, settings, and which of `MANY` it is told."""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(vendor.server_type())
            for name, (vendor, *_) in VENDORS.items()
        }
        template = write_template(
            tmp_path_factory.mktemp("stops") / "stops.yaml",
            server={"log_usage": True},
            providers=[
                {
                    "id": name,
                    "type": kind,
                    "config": {
                        "base_url": servers[name].url + ("/v1" if name == "openai" else ""),
                        "api_key": "sk-x",
                        **config,
                    },
                }
                for name, (_, kind, _, config, _) in VENDORS.items()
            ],
            models=[
                {"id": name, "provider": name, "provider_model": model}
                for name, (_, _, model, *_) in VENDORS.items()
            ],
        )
        process = stack.enter_context(running(template))
        vendors = {
            name: vendor(servers[name], process.base_url) for name, (vendor, *_) in VENDORS.items()
        }
        yield Everything(process, vendors)


@pytest.fixture(params=[name for name in CLIENTS if "stop" in CLIENTS[name].can])
def client(request: pytest.FixtureRequest, behind: Everything) -> Client:
    """Each client API that has stop strings in turn."""
    return CLIENTS[request.param](behind.server.url)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", list(VENDORS))
@STREAMED
def test_the_vendor_is_told_as_many_as_it_takes_and_the_rest_is_cut_here(
    behind: Everything, client: Client, name: str, stream: bool
) -> None:
    told = VENDORS[name][-1]
    behind.will_say(name, Reply(text="One <6 two END three"), as_text=client.name == "completions")
    said = client.ask(Ask(name, stop=MANY), stream=stream)
    sent = behind.vendors[name].server.last.content
    assert json.dumps(told).replace(" ", "").encode() in sent.replace(b" ", b"")
    assert b'"<6>"' not in sent or told == MANY
    assert said.text == ("One <6 two END three" if told == MANY else "One <6 two ")
    assert said.stop == "end"


@STREAMED
def test_a_blank_one_is_not_told_to_claude(
    behind: Everything, client: Client, stream: bool
) -> None:
    behind.will_say("anthropic", Reply(text="One\ntwo"))
    said = client.ask(Ask("anthropic", stop=["\n", "END"]), stream=stream)
    assert b'["END"]' in behind.vendors["anthropic"].server.last.content
    assert (said.text, said.stop) == ("One", "end")


def _chunk(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "choices": [delta]}).encode() + b"\n\n"


def _piece(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def test_the_vendors_stream_is_closed_where_it_is_cut(behind: Everything, client: Client) -> None:
    piece = _piece if client.name == "completions" else _chunk
    answer = Answer(
        [piece("One E"), piece("ND and on")], content_type="text/event-stream", hold=True
    )
    behind.will_answer("openai", answer)
    said = client.ask(Ask("openai", stop=MANY), stream=True)
    assert (said.text, said.stop) == ("One ", "end")
    assert behind.vendors["openai"].server.hung_up.wait(20)


def _events(answer: wire.Reply) -> list[dict[str, Any]]:
    data = [line[6:] for line in answer.body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(each) for each in data if each != b"[DONE]"]


@STREAMED
def test_each_choice_is_cut_by_itself(behind: Everything, stream: bool) -> None:
    behind.will_say("openai", Reply(text="One END two"))
    body = {
        "model": "openai",
        "messages": [{"role": "user", "content": "Hi"}],
        "n": 2,
        "stop": MANY,
        "stream": stream,
    }
    answer = wire.request("POST", f"{behind.server.url}/v1/chat/completions", body)
    assert answer.status == 200
    if stream:
        chunks = _events(answer)
        texts = ["", ""]
        for chunk in chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
    else:
        texts = [each["message"]["content"] for each in json.loads(answer.body)["choices"]]
    assert texts == ["One ", "One "]


@STREAMED
def test_anthropics_clients_are_told_which_one_it_was(behind: Everything, stream: bool) -> None:
    behind.will_say("openai", Reply(text="One END two"))
    body = {
        "model": "openai",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Hi"}],
        "stop_sequences": MANY,
        "stream": stream,
    }
    answer = wire.request("POST", f"{behind.server.url}/v1/messages", body)
    assert answer.status == 200
    end = json.loads(answer.body) if not stream else {}
    if stream:
        deltas = [each for each in _events(answer) if each["type"] == "message_delta"]
        end = deltas[-1]["delta"]
    assert (end["stop_reason"], end["stop_sequence"]) == ("stop_sequence", "END")


def test_a_call_within_the_bound_is_relayed(behind: Everything) -> None:
    behind.will_say("openai", Reply(text="One END two"))
    body = {
        "model": "openai",
        "messages": [{"role": "user", "content": "Hi"}],
        "stop": MANY[3:],
        "own_of_the_vendor": 1,
    }
    url = f"{behind.server.url}/v1/chat/completions"
    assert wire.request("POST", url, body).status == 200
    assert behind.vendors["openai"].server.last.body["own_of_the_vendor"] == 1
    # Beyond it nothing is relayed, so that there is nobody to honour what only the vendor knows.
    refused = wire.request(
        "POST", f"{behind.server.url}/v1/chat/completions", {**body, "stop": MANY}
    )
    assert refused.status == 400
    assert b"own_of_the_vendor" in refused.body
