"""Batches of messages, by Anthropic's own client."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types.messages import MessageBatch

from tests.integration.batching import KEY, POLL_SECONDS, WAIT_SECONDS, batch_template
from tests.integration.server_process import ServerProcess, running

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("message-batches")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with running(batch_template(folder, batches={"max_lines": 200})) as process:
        yield process


def client_of(server: ServerProcess, key: str = KEY) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with client_of(server) as found:
        yield found


def asked(custom_id: str, model: str = "echo", text: str = "", **more: Any) -> Any:
    messages = [{"role": "user", "content": text or f"say {custom_id}"}]
    params = {"model": model, "max_tokens": 100, "messages": messages, **more}
    return {"custom_id": custom_id, "params": params}


def waited_for(
    client: anthropic.Anthropic,
    batch: MessageBatch,
    until: Callable[[MessageBatch], bool] = lambda now: now.processing_status == "ended",
) -> MessageBatch:
    deadline = time.monotonic() + WAIT_SECONDS
    while not until(now := client.messages.batches.retrieve(batch.id)):
        assert time.monotonic() < deadline, now
        time.sleep(POLL_SECONDS)
    return now


def results(client: anthropic.Anthropic, batch: MessageBatch) -> dict[str, Any]:
    found = list(client.messages.batches.results(batch.id))
    by_id = {each.custom_id: each.result for each in found}
    assert len(by_id) == len(found)
    return by_id


def test_each_request_is_answered(client: anthropic.Anthropic) -> None:
    requests = [asked(f"r{n}") for n in range(50)]
    requests.append(asked("unknown", model="nonsense"))
    batch = client.messages.batches.create(requests=requests)
    assert batch.id.startswith("msgbatch_")
    assert batch.request_counts.processing == 51
    batch = waited_for(client, batch)
    counts = batch.request_counts
    assert (counts.processing, counts.succeeded, counts.errored) == (0, 50, 1)
    assert (batch.ended_at or batch.created_at) >= batch.created_at
    found = results(client, batch)
    assert list(found) == [each["custom_id"] for each in requests]
    assert found["r7"].type == "succeeded"
    assert found["r7"].message.content[0].text == "say r7"
    assert found["unknown"].type == "errored"
    assert found["unknown"].error.error.type == "not_found_error"


def test_pages_go_both_ways(client: anthropic.Anthropic) -> None:
    made = [client.messages.batches.create(requests=[asked("a")]).id for _ in range(3)]
    listed = [each.id for each in client.messages.batches.list(limit=2)]
    assert listed[:3] == made[::-1]
    page = client.messages.batches.list(limit=1, before_id=made[0])
    assert ([each.id for each in page.data], page.has_more) == ([made[1]], True)
    page = client.messages.batches.list(limit=1, after_id=made[2])
    assert [each.id for each in page.data] == [made[1]]


def test_one_that_is_cancelled_keeps_what_is_done(client: anthropic.Anthropic) -> None:
    requests = [asked("done"), *[asked(f"slow{n}", "slow", "one two") for n in range(20)]]
    batch = client.messages.batches.create(requests=requests)
    waited_for(client, batch, lambda now: now.request_counts.succeeded == 1)
    assert client.messages.batches.retrieve(batch.id).results_url is None
    with pytest.raises(anthropic.BadRequestError):
        client.messages.batches.delete(batch.id)
    batch = waited_for(client, client.messages.batches.cancel(batch.id))
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.canceled) == (1, 0, 20)
    assert batch.cancel_initiated_at is not None
    found = results(client, batch)
    assert {each.type for name, each in found.items() if name != "done"} == {"canceled"}


def test_one_that_is_deleted_is_gone(client: anthropic.Anthropic) -> None:
    batch = waited_for(client, client.messages.batches.create(requests=[asked("a")]))
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


def test_one_whose_requests_have_expired_is_deleted_with_its_results(
    server: ServerProcess, client: anthropic.Anthropic, folder: Path
) -> None:
    batch = waited_for(client, client.messages.batches.create(requests=[asked("a")]))
    database = sqlite3.connect(folder / "operations.sqlite", isolation_level=None)
    with closing(database) as files:
        ((asked_in, said_in),) = files.execute(
            "SELECT input_file, output_file FROM batches WHERE id = ?", (batch.id,)
        )
        files.execute("UPDATE files SET expires = 1 WHERE id = ?", (asked_in,))
        assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
        assert not list(files.execute("SELECT id FROM files WHERE id = ?", (said_in,)))
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


def test_others_find_nothing(server: ServerProcess, client: anthropic.Anthropic) -> None:
    batch = client.messages.batches.create(requests=[asked("a")])
    with client_of(server, "sk-bob-12345678") as bob:
        for attempt in (
            bob.messages.batches.retrieve,
            bob.messages.batches.cancel,
            bob.messages.batches.delete,
        ):
            with pytest.raises(anthropic.NotFoundError):
                attempt(batch.id)
        assert list(bob.messages.batches.list()) == []


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [asked("a"), asked("a")],
        [asked("a b")],
        [{"custom_id": "a"}],
        [{"custom_id": "a", "params": []}],
        [asked(f"r{n}") for n in range(201)],
    ],
)
def test_what_is_wrong_is_said_at_once(client: anthropic.Anthropic, requests: Any) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.batches.create(requests=requests)
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def test_they_are_no_files_nor_batches_of_openai_s(
    server: ServerProcess, client: anthropic.Anthropic
) -> None:
    import openai

    batch = waited_for(client, client.messages.batches.create(requests=[asked("a")]))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as other:
        assert list(other.files.list()) == []
        assert list(other.batches.list()) == []
        with pytest.raises(openai.NotFoundError):
            other.batches.retrieve(batch.id)
