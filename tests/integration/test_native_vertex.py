"""Clients, a server with `remote::vertex`, and Google Cloud behind it.

The tokens are real: google-auth signs for them with a key that the stand-in has made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import sdk_gemini as sdk
from tests.integration import wire
from tests.integration.google_cloud import GoogleCloud
from tests.integration.native_suite import MESSAGES, MODEL, NativeSuite, Reply, Vendor
from tests.integration.native_vendor import Answer
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_native_gemini import GeminiVendor

PLACE = "/v1/projects/my-project/locations/europe-west4/publishers/google/models"


class VertexVendor(GeminiVendor):
    server_type = GoogleCloud


def provider(cloud: GoogleCloud, account: Path, **config: Any) -> dict[str, Any]:
    given = {
        "base_url": cloud.url,
        "project": "my-project",
        "location": "europe-west4",
        "service_account": str(account),
        **config,
    }
    return {"id": "vertex", "type": "remote::vertex", "config": given}


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[GoogleCloud, ServerProcess]]:
    folder = tmp_path_factory.mktemp("vertex")
    with GoogleCloud() as cloud:
        listed = {"publisherModels": [{"name": "publishers/google/models/gemini-new"}]}
        cloud.will_answer(Answer([json.dumps(listed).encode()]))
        template = write_template(
            folder / "vertex.yaml",
            providers=[provider(cloud, cloud.service_account(folder), models="discover")],
            models=[{"id": MODEL, "provider": "vertex", "provider_model": "gemini-3-pro"}],
        )
        with running(template) as server:
            wire.request("GET", f"{server.base_url}/models")  # waits for the vendor's list
            yield cloud, server


@pytest.fixture(scope="module")
def vendor(process: tuple[GoogleCloud, ServerProcess]) -> VertexVendor:
    return VertexVendor(process[0], process[1].base_url)


@pytest.fixture(scope="module")
def client(vendor: VertexVendor) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=vendor.base_url, api_key="x", max_retries=0, timeout=60) as one:
        yield one


class TestVertex(NativeSuite):
    def test_asks_as_the_api_wants_it(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        self.chat(client)
        asked = vendor.server.last
        assert asked.path == f"{PLACE}/gemini-3-pro:generateContent"
        assert asked.headers["authorization"].startswith("Bearer ya29.token-number-")
        assert "x-goog-api-key" not in asked.headers
        self.stream(client)
        assert vendor.server.last.path == f"{PLACE}/gemini-3-pro:streamGenerateContent?alt=sse"

    def test_one_token_is_enough_for_all(self, vendor: Vendor, client: openai.OpenAI) -> None:
        vendor.will_say(Reply(text="Hi"))
        for _ in range(3):
            self.chat(client)
        assert isinstance(vendor.server, GoogleCloud)
        assert vendor.server.given == 1

    @pytest.mark.parametrize("stream", [False, True])
    def test_geminis_own_clients_are_relayed_to_it(self, vendor: Vendor, stream: bool) -> None:
        vendor.will_say(Reply(text="It is 20 °C. 🌞"))
        url = vendor.base_url.removesuffix("/v1/openai/v1")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        contents: list[Any] = [
            {"parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "Yes?"}]},
            {"parts": [{"text": "So?"}], "role": "user"},
        ]
        body = {"contents": contents, "labels": {"of": "mine"}}
        reply = wire.request("POST", f"{url}/v1beta/models/{MODEL}:{method}", body)
        assert reply.status == 200, reply.body
        assert "20 °C" in reply.body.decode() or stream
        asked = vendor.server.last
        assert asked.path == f"{PLACE}/gemini-3-pro:{method}"
        roles = [each["role"] for each in asked.body["contents"]]
        assert (roles, asked.body["labels"]) == (["user", "model", "user"], {"of": "mine"})

    def test_counts_tokens(self, vendor: Vendor) -> None:
        vendor.server.will_answer(Answer([b'{"totalTokens": 12}']))
        url = vendor.base_url.removesuffix("/v1/openai/v1")
        body: dict[str, Any] = {"contents": [{"parts": [{"text": "Hi"}]}]}
        for asked in (body, {"generateContentRequest": {"model": f"models/{MODEL}", **body}}):
            reply = wire.request("POST", f"{url}/v1beta/models/{MODEL}:countTokens", asked)
            assert reply.json().get("totalTokens") == 12, reply.body
            assert vendor.server.last.path == f"{PLACE}/gemini-3-pro:countTokens"

    def test_has_no_embeddings(self, vendor: Vendor, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="embeddings"):
            client.embeddings.create(model=MODEL, input="a")

    def test_lists_the_vendors_models(self, vendor: Vendor, client: openai.OpenAI) -> None:
        assert "vertex/gemini-new" in [model.id for model in client.models.list()]


def test_tokens_are_renewed_once_for_all_who_wait(tmp_path: Path) -> None:
    """Each is good for ten seconds, of which the last twenty are not used."""
    with GoogleCloud() as cloud:
        cloud.seconds = 10
        body = sdk.stream_bytes([sdk.dump(sdk.response([sdk.text("Hi")]))])[6:].strip()
        cloud.will_answer(Answer([body]))
        template = write_template(
            tmp_path / "vertex.yaml",
            providers=[provider(cloud, cloud.service_account(tmp_path))],
            models=[{"id": MODEL, "provider": "vertex", "provider_model": "gemini-3-pro"}],
        )
        with running(template) as server:
            url = f"{server.base_url}/chat/completions"

            def ask(_: int) -> int:
                return wire.request("POST", url, {"model": MODEL, "messages": MESSAGES}).status

            assert ask(0) == 200
            first = cloud.given
            with ThreadPoolExecutor(8) as pool:
                assert set(pool.map(ask, range(8))) == {200}
            assert first < cloud.given <= first + 8
            cloud.seconds = 3600
            assert ask(0) == 200
            settled = cloud.given
            with ThreadPoolExecutor(8) as pool:
                assert set(pool.map(ask, range(16))) == {200}
            assert cloud.given == settled


def test_a_token_that_is_refused_is_named_to_nobody(tmp_path: Path) -> None:
    with GoogleCloud() as cloud:
        cloud.will_answer(Answer([b"{}"]))
        template = write_template(
            tmp_path / "vertex.yaml",
            providers=[provider(cloud, cloud.service_account(tmp_path))],
            models=[{"id": MODEL, "provider": "vertex", "provider_model": "gemini-3-pro"}],
        )
        with running(template) as server:
            url, body = (
                f"{server.base_url}/chat/completions",
                {"model": MODEL, "messages": MESSAGES},
            )
            wire.request("POST", url, body)
            cloud.withdraw()
            answer = wire.request("POST", url, body)
            assert (answer.status, answer.error()["code"]) == (502, "upstream_authentication")
            assert "Google credentials" in answer.error()["message"]
            assert "ya29" not in answer.body.decode() + server.log


def test_an_account_that_google_does_not_know(tmp_path: Path) -> None:
    with GoogleCloud() as cloud:
        file = cloud.service_account(tmp_path)
        account = json.loads(file.read_text())
        account["client_email"] = "somebody@else"
        file.write_text(json.dumps(account))
        template = write_template(
            tmp_path / "vertex.yaml",
            providers=[provider(cloud, file)],
            models=[{"id": MODEL, "provider": "vertex", "provider_model": "gemini-3-pro"}],
        )
        with running(template) as server:
            body = {"model": MODEL, "messages": MESSAGES}
            answer = wire.request("POST", f"{server.base_url}/chat/completions", body)
            assert (answer.status, answer.error()["code"]) == (502, "upstream_authentication")
            assert "can't be had" in answer.error()["message"]
            server.wait_for_log("invalid_scope")
            assert "PRIVATE KEY" not in server.log
