"""Batches, by OpenAI's own client."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.integration.batching import (
    CHAT,
    KEY,
    CountingVendor,
    batch_template,
    counting_vendor,
    jsonl,
    line,
    ordered,
    results,
    said,
    waited_for,
)
from tests.integration.server_process import ServerProcess, running

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def vendor() -> Iterator[tuple[CountingVendor, str]]:
    with counting_vendor() as found:
        yield found


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, vendor: tuple[CountingVendor, str]
) -> Iterator[ServerProcess]:
    path = batch_template(tmp_path_factory.mktemp("batches"), vendor[1], records={})
    with running(path) as process:
        yield process


def client_of(server: ServerProcess, key: str = KEY, prefix: str = "/v1") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + prefix, api_key=key, max_retries=0)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as found:
        yield found


@pytest.mark.parametrize("prefix", ["/v1", "/v1/openai/v1"])
def test_each_line_is_answered(server: ServerProcess, prefix: str) -> None:
    with client_of(server, prefix=prefix) as client:
        batch = ordered(client, [line(f"r{n}") for n in range(200)], metadata={"what": "test"})
        assert batch.id.startswith("batch_")
        assert (batch.object, batch.metadata) == ("batch", {"what": "test"})
        batch = waited_for(client, batch)
        assert (batch.status, batch.model, batch.error_file_id) == ("completed", "echo", None)
        counts = batch.request_counts
        assert counts is not None
        assert (counts.total, counts.completed, counts.failed) == (200, 200, 0)
        found = results(client, batch.output_file_id)
        assert list(found) == [f"r{n}" for n in range(200)]
        assert [said(each) for each in found.values()] == [f"say r{n}" for n in range(200)]
        first = found["r0"]
        assert set(first) == {"id", "custom_id", "response", "error"}
        assert first["response"]["status_code"] == 200
        assert first["id"].startswith("batch_req_")
        file = client.files.retrieve(batch.output_file_id or "")
        assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")
        assert batch.id in [each.id for each in client.batches.list(limit=100)]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/completions", {"prompt": "one two"}),
        ("/v1/responses", {"input": "one two"}),
        ("/v1/embeddings", {"input": "one two"}),
    ],
)
def test_other_endpoints(client: openai.OpenAI, endpoint: str, body: dict[str, Any]) -> None:
    one = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {"model": "echo", **body}}
    batch = waited_for(client, ordered(client, [one], endpoint))
    assert batch.status == "completed"
    told = results(client, batch.output_file_id)["a"]["response"]["body"]
    if endpoint == "/v1/embeddings":
        assert len(told["data"][0]["embedding"]) == 256
    else:
        assert "one two" in str(told)


def test_a_bad_line_fails_alone(client: openai.OpenAI) -> None:
    lines = [
        line("good"),
        line("no such model", model="nonsense"),
        line("no messages", messages=None),
        line("streamed", stream=True),
        line("good as well"),
    ]
    batch = waited_for(client, ordered(client, lines))
    counts = batch.request_counts
    assert counts is not None
    assert (batch.status, counts.completed, counts.failed) == ("completed", 2, 3)
    assert list(results(client, batch.output_file_id)) == ["good", "good as well"]
    failed = results(client, batch.error_file_id)
    assert {name: each["line"] for name, each in failed.items()} == {
        "no such model": 2,
        "no messages": 3,
        "streamed": 4,
    }
    told = {name: each["response"] for name, each in failed.items()}
    assert told["no such model"]["status_code"] == 404
    assert told["no such model"]["body"]["error"]["code"] == "model_not_found"
    refused = told["streamed"]["body"]["error"]
    assert refused["param"] == "stream"
    why = "a line of a batch is answered in one piece"
    assert refused["message"] == f"Unsupported parameter: 'stream': {why}. Leave it out."


def test_a_bad_file_is_refused_whole_with_the_first_ten(client: openai.OpenAI) -> None:
    lines = [line("good"), *[{"custom_id": f"{n}"} for n in range(20)]]
    batch = waited_for(client, ordered(client, lines))
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [each.line for each in batch.errors.data] == list(range(2, 12))
    assert {each.code for each in batch.errors.data} == {"invalid_method"}


def test_what_a_batch_costs_is_its_keys(client: openai.OpenAI, server: ServerProcess) -> None:
    batch = waited_for(client, ordered(client, [line(f"c{n}", "paid") for n in range(10)]))
    assert batch.model_extra is not None
    assert batch.model_extra["cost_usd"] == pytest.approx(10 * 0.002)
    assert batch.model_extra["unpriced_requests"] == 0


def test_a_vendor_that_refuses_for_now_is_asked_again(
    client: openai.OpenAI, vendor: tuple[CountingVendor, str]
) -> None:
    vendor[0].refused, vendor[0].refusals = 0, 20
    lines = [line(f"limited {n}", "paid") for n in range(30)]
    batch = waited_for(client, ordered(client, lines))
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 30
    assert {vendor[0].asked[f"say limited {n}"] for n in range(30)} == {1}


def test_cancel_ends_what_is_on_its_way_and_keeps_what_is_done(client: openai.OpenAI) -> None:
    lines = [line("done"), *[line(f"slow {n}", "slow", "one two") for n in range(100)]]
    batch = ordered(client, lines)
    waited_for(client, batch, lambda now: bool(now.request_counts and now.request_counts.completed))
    begun = time.monotonic()
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status in ("cancelling", "cancelled")
    batch = waited_for(client, batch)
    assert time.monotonic() - begun < 30  # nothing waited for a line of a minute
    assert batch.status == "cancelled"
    assert list(results(client, batch.output_file_id)) == ["done"]
    failed = results(client, batch.error_file_id)
    assert {each["error"]["code"] for each in failed.values()} == {"batch_cancelled"}
    assert len(failed) == 100
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_a_batch_whose_time_is_over_ends(client: openai.OpenAI) -> None:
    lines = [line("done"), line("slow", "slow", "one two")]
    batch = waited_for(client, ordered(client, lines, completion_window="2s"))
    assert batch.status == "expired"
    assert list(results(client, batch.output_file_id)) == ["done"]
    (failed,) = results(client, batch.error_file_id).values()
    assert failed["error"]["code"] == "batch_expired"


def test_others_find_nothing(server: ServerProcess, client: openai.OpenAI) -> None:
    batch = waited_for(client, ordered(client, [line("a")]))
    with client_of(server, "sk-bob-12345678") as bob:
        for attempt in (bob.batches.retrieve, bob.batches.cancel):
            with pytest.raises(openai.NotFoundError) as caught:
                attempt(batch.id)
            assert caught.value.code == "batch_not_found"
        with pytest.raises(openai.NotFoundError):
            bob.files.content(batch.output_file_id or "")
        with pytest.raises(openai.NotFoundError):
            bob.batches.create(
                input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
            )
        assert list(bob.batches.list()) == []


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"endpoint": "/v1/nonsense"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after"),
        ({"input_file_id": None}, "input_file_id"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    client: openai.OpenAI, changes: dict[str, Any], param: str
) -> None:
    file = client.files.create(file=b"x", purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **changes}
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(**asked)
    assert caught.value.param == param


def test_a_file_for_something_else_is_no_input(client: openai.OpenAI) -> None:
    file = client.files.create(file=b"x", purpose="user_data")
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert caught.value.param == "input_file_id"


def test_an_input_that_is_being_read_can_t_be_deleted(client: openai.OpenAI) -> None:
    batch = ordered(client, [line("slow", "slow", "one two")])
    with pytest.raises(openai.ConflictError):
        client.files.delete(batch.input_file_id)
    client.batches.cancel(batch.id)
    waited_for(client, batch)
    assert client.files.delete(batch.input_file_id).deleted


def test_workers_share_a_batch(tmp_path: Path) -> None:
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, batches={"lease_seconds": 5, "concurrency": 4})
        with running(path, options=["--workers", "2"]) as server, client_of(server) as client:
            counting.hold.clear()
            batch = ordered(client, [line(f"r{n}", "paid") for n in range(60)])
            deadline = time.monotonic() + 30
            while counting.most < 8:  # four of each
                assert time.monotonic() < deadline, counting.most
                time.sleep(0.01)
            counting.hold.set()
            batch = waited_for(client, batch)
            assert len(results(client, batch.output_file_id)) == 60
            assert set(counting.asked.values()) == {1}


def test_a_reload_goes_on_with_it(tmp_path: Path) -> None:
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url)
        with running(path) as server, client_of(server) as client:
            counting.hold.clear()
            batch = ordered(client, [line(f"r{n}", "paid") for n in range(30)])
            waited_for(client, batch, lambda _: counting.most > 0)
            path.write_text(path.read_text().replace("delay_ms: 60000", "delay_ms: 1"))
            server.send_signal(signal.SIGHUP)
            server.wait_for_log("reloaded")
            counting.hold.set()
            batch = waited_for(client, batch)
            assert len(results(client, batch.output_file_id)) == 30
            assert set(counting.asked.values()) == {1}


def test_without_batches_a_template_says_how_to_have_them(tmp_path: Path) -> None:
    path = batch_template(tmp_path, batches=None)
    with running(path) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            client.batches.list()
        assert caught.value.code == "batches_disabled"


def test_a_key_s_own_limits_hold_lines_up_and_fail_none(tmp_path: Path) -> None:
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url)
        template = yaml.safe_load(path.read_text())
        template["keys"][0]["limits"] = {"concurrent": 2}
        path.write_text(yaml.safe_dump(template))
        with running(path) as server, client_of(server) as client:
            batch = waited_for(client, ordered(client, [line(f"r{n}", "paid") for n in range(12)]))
            assert batch.request_counts is not None
            assert (batch.request_counts.completed, batch.request_counts.failed) == (12, 0)
            assert counting.most <= 2
            assert set(counting.asked.values()) == {1}


def test_servers_share_the_work_in_postgres(tmp_path: Path, postgres_database: str) -> None:
    with counting_vendor() as (counting, url):
        batches = {"lease_seconds": 5, "concurrency": 4}
        path = batch_template(tmp_path, url, storage=postgres_database, batches=batches)
        with running(path) as first, running(path) as second, client_of(first) as client:
            counting.hold.clear()
            batch = ordered(client, [line(f"r{n}", "paid") for n in range(60)])
            deadline = time.monotonic() + 30
            while counting.most < 8:  # four of each
                assert time.monotonic() < deadline, counting.most
                time.sleep(0.01)
            counting.hold.set()
            with client_of(second) as other:
                batch = waited_for(other, batch)
                assert len(results(other, batch.output_file_id)) == 60
            assert set(counting.asked.values()) == {1}


def test_a_batch_whose_files_can_t_be_read_for_a_while_waits(tmp_path: Path) -> None:
    path = batch_template(tmp_path)
    with running(path) as server, client_of(server) as client:
        content = jsonl([line("a"), line("b")])
        file = client.files.create(file=("lines.jsonl", content), purpose="batch")
        there, away = tmp_path / "files" / file.id, tmp_path / "away"
        there.rename(away)
        batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        server.wait_for_log("could not go on")
        assert client.batches.retrieve(batch.id).status == "validating"
        away.rename(there)
        batch = waited_for(client, batch)
        assert batch.status == "completed"
        assert sorted(results(client, batch.output_file_id)) == ["a", "b"]
