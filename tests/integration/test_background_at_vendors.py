"""What a vendor makes in the background is asked for here, under an id of this server's."""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from google import genai
from google.genai import _interactions as errors
from google.genai import types

from tests.integration import wire
from tests.integration.background_vendor import ANSWER, BackgroundVendor
from tests.integration.server_process import ServerProcess, running, write_template

KEYS = ("sk-first-client", "sk-second-client")
AGENT = "deep-research-pro"


@pytest.fixture(scope="module")
def vendor() -> Iterator[BackgroundVendor]:
    with BackgroundVendor() as one:
        yield one


@pytest.fixture(scope="module")
def template(vendor: BackgroundVendor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("background")
    return write_template(
        tmp_path / "template.yaml",
        server={
            "api_keys": list(KEYS),
            "storage": f"sqlite:{tmp_path / 'kept.sqlite'}",
            "responses_store": {},
            "records": {},
        },
        providers=vendor.providers,
        models=[
            {"id": "researcher", "provider": "openai", "provider_model": "o9-deep-research"},
            {"id": "agent", "provider": "google", "provider_model": AGENT},
        ],
    )


class Client:
    """One of the two APIs, by its official client."""

    def __init__(self, api: str, url: str, key: str = KEYS[0]) -> None:
        self.api = api
        if api == "responses":
            self.own: Any = openai.OpenAI(
                base_url=f"{url}/v1", api_key=key, max_retries=0
            ).responses
        else:
            retry = types.HttpRetryOptions(attempts=1)
            options = types.HttpOptions(base_url=url, retry_options=retry)
            # Nobody else holds it, and it is closed when nobody does.
            self._client = genai.Client(api_key=key, http_options=options)
            self.own = self._client.interactions

    def ask(self, **members: Any) -> Any:
        model = {"model": "researcher"} if self.api == "responses" else {"agent": "agent"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.own.create(**model, input="What is it?", background=True, **members)

    def get(self, reply_id: str) -> Any:
        return self.own.retrieve(reply_id) if self.api == "responses" else self.own.get(reply_id)

    def until(self, reply_id: str, status: str) -> Any:
        wire.eventually(lambda: self.get(reply_id).status == status)
        return self.get(reply_id)


NOT_FOUND = (openai.NotFoundError, errors.NotFoundError)


@pytest.fixture(scope="module")
def server(template: Path) -> Iterator[ServerProcess]:
    with running(template) as process:
        yield process


@pytest.fixture(params=["responses", "interactions"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Client:
    return Client(request.param, server.url)


def test_it_is_asked_for_until_it_is_done(
    vendor: BackgroundVendor, template: Path, server: ServerProcess, client: Client
) -> None:
    begun = client.ask()
    there = vendor.last
    assert begun.status in ("queued", "in_progress")
    assert begun.id.startswith("resp_" if client.api == "responses" else "int_")
    with pytest.raises(NOT_FOUND):
        Client(client.api, server.url, KEYS[1]).get(begun.id)
    vendor.away.set()
    wire.eventually(lambda: vendor.looks[there] >= 1)
    vendor.away.clear()
    assert client.get(begun.id).status in ("queued", "in_progress")
    vendor.done.add(there)
    done = client.until(begun.id, "completed")
    assert (done.id, done.output_text) == (begun.id, ANSWER)
    record = _record(template, client.api)
    assert (record["status"], record["attempts"], record["estimated"]) == (200, 1, 0)
    if client.api == "responses":
        assert (done.model, vendor.asked[-1]["model"]) == ("researcher", "o9-deep-research")
        assert (record["input_tokens"], record["output_tokens"]) == (700, 300)
        (item,) = client.own.input_items.list(begun.id).data
        assert item.content[0].text == "What is it?"
    else:
        assert vendor.asked[-1]["agent"] == AGENT
        assert [step.type for step in done.steps] == ["user_input", "model_output"]
        assert (record["input_tokens"], record["output_tokens"]) == (30, 25)

    # What goes on from it goes on from what the vendor has.
    previous = f"previous_{client.api.removesuffix('s')}_id"
    client.ask(**{previous: begun.id})
    assert vendor.asked[-1][previous] == there
    assert vendor.asked[-1]["input"] == "What is it?"


def test_it_is_cancelled_at_the_vendor(vendor: BackgroundVendor, client: Client) -> None:
    begun = client.ask()
    assert client.own.cancel(begun.id).status == "cancelled"
    wire.eventually(lambda: vendor.cancelled[-1:] == [vendor.last])
    assert client.get(begun.id).status == "cancelled"
    second = client.ask()
    client.own.delete(second.id)
    wire.eventually(lambda: vendor.cancelled[-1:] == [vendor.last])
    with pytest.raises(NOT_FOUND):
        client.get(second.id)


def test_what_the_vendor_has_lost_has_failed(vendor: BackgroundVendor, client: Client) -> None:
    begun = client.ask()
    del vendor.looks[vendor.last]
    failed = client.until(begun.id, "failed")
    told = failed.error if client.api == "responses" else failed.errors[0]
    assert "No such thing." in told.message


def test_what_is_not_kept_is_the_vendors_alone(vendor: BackgroundVendor, client: Client) -> None:
    begun = client.ask(store=False)
    assert begun.id == vendor.last
    with pytest.raises(NOT_FOUND):
        client.get(begun.id)


def test_it_outlives_the_process(vendor: BackgroundVendor, template: Path) -> None:
    left: dict[str, list[Any]] = {"responses": [], "interactions": []}
    with running(template) as server:
        for api, asked in left.items():
            for _ in range(2):
                asked.append((Client(api, server.url).ask().id, vendor.last))
    assert not {there for asked in left.values() for _, there in asked} & {*vendor.cancelled}
    # Another process takes for left what nobody has kept alive for a while.
    with sqlite3.connect(template.parent / "kept.sqlite") as database:
        database.execute("UPDATE stored_responses SET alive_until = ?", (time.time() - 1,))
    with running(template) as server:
        for api, ((first, there), (second, cancelled)) in left.items():
            client = Client(api, server.url)
            assert client.get(first).status in ("queued", "in_progress")
            vendor.done.add(there)
            assert client.until(first, "completed").output_text == ANSWER
            assert client.own.cancel(second).status == "cancelled"
            assert vendor.cancelled[-1] == cancelled


_RECORDS = "SELECT * FROM records WHERE operation = ? AND output_tokens > 0"


def _record(template: Path, operation: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        with sqlite3.connect(template.parent / "kept.sqlite") as database:
            database.row_factory = sqlite3.Row
            found[:] = [dict(row) for row in database.execute(_RECORDS, (operation,))]
        return bool(found)

    wire.eventually(is_there)
    return found[0]
