"""What `remote::fastchat` remembers of the workers that a controller names."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from llama_compat.types import CompletionRequest, SamplingParams, StreamProgress
from providers.base import ProviderModel
from providers.remote import fastchat
from providers.remote.fastchat import FastChatConfig, FastChatProvider
from tests.integration.server_process import free_port
from tests.local_server import Handler, send, serving

REMEMBERED = 3


class Cluster:
    """A controller and its workers, all one server: a worker's path is the name of its model.

    Attributes:
        addresses: what the controller answers first, before the workers of the models.
        asked: the paths of all requests but the controller's.
    """

    def __init__(self) -> None:
        self.url = ""
        self.addresses: list[str] = []
        self.asked: list[str] = []

    def answer(self, handler: Handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        if handler.path == "/get_worker_address":
            address = self.addresses.pop(0) if self.addresses else f"{self.url}/{body['model']}"
            send(handler, 200, json.dumps({"address": address}).encode())
            return
        self.asked.append(handler.path)
        if handler.path == "/dies/worker_generate_stream":
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        replies = {
            "model_details": {"context_length": 100},
            "count_token": {"count": 1, "error_code": 0},
            "worker_generate_stream": {"text": "Hello", "error_code": 0, "finish_reason": "stop"},
        }
        reply = json.dumps(replies[handler.path.rpartition("/")[2]]).encode()
        send(handler, 200, reply + b"\0" * handler.path.endswith("stream"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    with serving(cluster.answer) as cluster.url:
        yield cluster


async def say(provider: FastChatProvider, model: str) -> str:
    request = CompletionRequest(model, "Hi", SamplingParams(max_tokens=5))
    events = [event async for event in provider.completion(request)]
    return "".join(event.delta.text for event in events if isinstance(event, StreamProgress))


async def started(cluster: Cluster) -> FastChatProvider:
    config = FastChatConfig.model_validate({"base_url": cluster.url})
    provider = FastChatProvider("fastchat", config, [ProviderModel("m0")])
    await provider.start()
    return provider


async def test_those_known_longest_are_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastchat, "MAX_WORKERS_REMEMBERED", REMEMBERED)
    provider = await started(cluster)
    try:
        for number in range(10):
            assert await say(provider, f"m{number}") == "Hello"
            assert len(provider._workers) == min(number + 1, REMEMBERED)
        cluster.asked.clear()
        for model in ("m9", "m0"):
            assert await say(provider, model) == "Hello"
        asked_for_details = [path for path in cluster.asked if path.endswith("/model_details")]
        assert asked_for_details == ["/m0/model_details"]
    finally:
        await provider.stop()


async def test_one_that_is_asked_anew_is_known_since_then(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastchat, "MAX_WORKERS_REMEMBERED", REMEMBERED)
    provider = await started(cluster)
    try:
        for model in ("m0", "m1", "m2"):
            await say(provider, model)
        provider._workers[f"{cluster.url}/m0", "m0"]._since = float("-inf")
        for model in ("m0", "m3"):
            await say(provider, model)
        assert [model for _, model in provider._workers] == ["m2", "m0", "m3"]
    finally:
        await provider.stop()


async def test_one_that_is_not_there_is_given_up_and_forgotten(cluster: Cluster) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    cluster.addresses = [gone]
    provider = await started(cluster)
    try:
        assert await say(provider, "m0") == "Hello"
        assert list(provider._workers) == [(f"{cluster.url}/m0", "m0")]
    finally:
        await provider.stop()


async def test_what_one_may_have_begun_is_not_sent_to_another_unseen(cluster: Cluster) -> None:
    """That would be a second attempt which no header, record and budget knows of."""
    cluster.addresses = [f"{cluster.url}/dies"]
    provider = await started(cluster)
    try:
        with pytest.raises(APIError) as failed:
            await say(provider, "m0")
        assert failed.value.error_class is ErrorClass.connection
        assert [path for path in cluster.asked if path.endswith("stream")] == [
            "/dies/worker_generate_stream"
        ]
        assert await say(provider, "m0") == "Hello"
    finally:
        await provider.stop()
