"""Batches that are handed to vendors' own batch APIs, by OpenAI's and Anthropic's own clients."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import yaml

from tests.integration.batch_vendors import KEY as VENDOR_KEY
from tests.integration.batch_vendors import BatchVendor
from tests.integration.batching import KEY, jsonl, line, ordered, results, said, waited_for
from tests.integration.server_process import COMMAND, ServerProcess, running, write_template
from tests.integration.test_message_batches import asked
from tests.integration.test_message_batches import results as message_results
from tests.integration.test_message_batches import waited_for as ended

pytestmark = pytest.mark.server

TYPES = {
    "openai": ("remote::openai", "/v1"),
    "azure": ("remote::azure", ""),
    "groq": ("remote::groq", "/openai/v1"),
    "mistral": ("remote::mistral", "/v1"),
    "together": ("remote::together", "/v1"),
    "anthropic": ("remote::anthropic-messages", ""),
    "gemini": ("remote::gemini-native", "/v1beta"),
}
"""By kind, the provider's type and where its base URL ends."""

PRICE = {"input": 1, "output": 1}
LINE_COST = 0.002 * 0.5
"""Of a line in a batch, in dollars."""


def vendor_template(folder: Path, vendor: BatchVendor, **sections: Any) -> Path:
    """A template with `cheap`, whose batches the vendor works on, and `dear`, whose it does not."""
    kind, root = TYPES[vendor.kind]
    server = {
        "storage": f"sqlite:{folder / 'operations.sqlite'}",
        "files": {"path": str(folder / "files")},
        "batches": {"lease_seconds": 1, "poll_seconds": 0.05},
        "records": {},
        "shutdown_grace_seconds": 2,
        **sections.pop("server", {}),
    }
    provider = {
        "id": "vendor",
        "type": kind,
        "config": {"base_url": vendor.url + root, "api_key": VENDOR_KEY},
        "batches": {"via": "vendor"},
    }
    cheap = {"id": "cheap", "provider": "vendor", "provider_model": "gpt", "price": PRICE}
    dear = {**cheap, "id": "dear", "batches": {"via": "requests"}}
    sections.setdefault("keys", [{"name": "ann", "key": KEY}])
    sections.setdefault("models", [cheap, dear])
    return write_template(folder / "template.yaml", server=server, providers=[provider], **sections)


def client_of(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def vendor(request: pytest.FixtureRequest) -> Iterator[BatchVendor]:
    with BatchVendor(getattr(request, "param", "openai")) as found:
        yield found
        found.release.set()


@pytest.fixture
def server(tmp_path: Path, vendor: BatchVendor) -> Iterator[ServerProcess]:
    with running(vendor_template(tmp_path, vendor)) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as found:
        yield found


each_vendor = pytest.mark.parametrize("vendor", list(TYPES), indirect=True)


def told(client: openai.OpenAI, batch: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """What was said to each line, and why others have no answer."""
    good = results(client, batch.output_file_id)
    bad = results(client, batch.error_file_id)
    errors = {
        name: (each["error"] or each["response"]["body"]["error"])["code"]
        for name, each in bad.items()
    }
    return {name: said(each) for name, each in good.items()}, errors


@each_vendor
def test_a_batch_is_the_vendors_at_its_price(vendor: BatchVendor, client: openai.OpenAI) -> None:
    names = [f"r{n}" for n in range(150)]
    batch = waited_for(client, ordered(client, [line(name, "cheap") for name in names]))
    assert batch.status == "completed"
    answers, errors = told(client, batch)
    assert answers == {name: f"say {name}" for name in names}
    assert list(answers) == names  # in the order of the input
    assert errors == {}
    assert len(vendor.jobs) == 1
    assert set(vendor.paid.values()) == {1}
    assert not vendor.single
    assert batch.model_extra is not None
    assert batch.model_extra["cost_usd"] == pytest.approx(150 * LINE_COST)
    assert batch.model_extra["unpriced_requests"] == 0
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (150, 150, 0)


@each_vendor
def test_anthropic_s_batches_too(vendor: BatchVendor, server: ServerProcess) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as claude:
        requests = [asked(f"a{n}", "cheap") for n in range(5)]
        batch = ended(claude, claude.messages.batches.create(requests=requests))
        found = message_results(claude, batch)
    assert {each.type for each in found.values()} == {"succeeded"}
    assert {name: each.message.content[0].text for name, each in found.items()} == {
        f"a{n}": f"say a{n}" for n in range(5)
    }
    assert found["a0"].message.model == "cheap"
    assert found["a0"].message.usage.input_tokens == 1000
    assert len(vendor.jobs) == 1
    assert not vendor.single


def test_the_vendor_keeps_no_files(vendor: BatchVendor, client: openai.OpenAI) -> None:
    waited_for(client, ordered(client, [line("a", "cheap")]))
    assert len(vendor.deleted) == 2


def test_each_line_has_a_record(tmp_path: Path, vendor: BatchVendor, client: openai.OpenAI) -> None:
    waited_for(client, ordered(client, [line(f"r{n}", "cheap") for n in range(3)]))
    rows: list[Any] = []
    deadline = time.monotonic() + 20
    while len(rows) < 3 and time.monotonic() < deadline:
        with closing(sqlite3.connect(tmp_path / "operations.sqlite")) as storage:
            rows = storage.execute(
                "SELECT provider, served, status, input_tokens, cost FROM records"
            ).fetchall()
    assert rows == [("vendor", "gpt", 200, 1000, 1_000_000)] * 3


def test_models_that_are_asked_by_requests_are(vendor: BatchVendor, client: openai.OpenAI) -> None:
    lines = [line("one", "cheap"), line("two", "dear"), line("three", "nonsense")]
    batch = waited_for(client, ordered(client, lines))
    answers, errors = told(client, batch)
    assert answers == {"one": "say one", "two": "say two"}
    assert errors == {"three": "model_not_found"}
    assert (vendor.paid["say one"], vendor.single["say two"]) == (1, 1)
    assert batch.model_extra is not None
    assert batch.model_extra["cost_usd"] == pytest.approx(LINE_COST * 3)


@each_vendor
def test_a_bad_line_fails_alone_and_one_that_met_a_fault_is_asked_again(
    vendor: BatchVendor, client: openai.OpenAI
) -> None:
    # Cloudflare's, where the words for it are not the API's own.
    behind = 429 if vendor.kind in ("anthropic", "gemini") else 524
    statuses = {"say bad": (400, 400), "say unlucky": (500, 200), "say behind": (behind, 200)}
    vendor.answers = lambda text, in_batch: statuses.get(text, (200, 200))[not in_batch]
    lines = [line(name, "cheap") for name in ("good", "bad", "unlucky", "behind")]
    batch = waited_for(client, ordered(client, lines))
    answers, _ = told(client, batch)
    assert answers == {name: f"say {name}" for name in ("good", "unlucky", "behind")}
    failed = results(client, batch.error_file_id)["bad"]
    assert failed["line"] == 2
    assert failed["response"]["status_code"] == 400
    assert "it can't be answered" in str(failed["response"]["body"])
    paid = vendor.paid["say good"], vendor.single["say unlucky"], vendor.single["say behind"]
    assert paid == (1, 1, 1)
    assert vendor.single["say bad"] == 0


def test_what_no_batch_can_is_asked_by_requests(tmp_path: Path) -> None:
    """Two replies to a line of a vendor that gives one at a time."""
    with (
        BatchVendor("anthropic") as vendor,
        running(vendor_template(tmp_path, vendor)) as server,
        client_of(server) as client,
    ):
        lines = [line("one", "cheap"), line("two", "cheap", n=2)]
        batch = waited_for(client, ordered(client, lines))
        answers, errors = told(client, batch)
        assert (answers, errors) == ({"one": "say one", "two": "say two"}, {})
        assert (vendor.paid["say one"], vendor.single["say two"]) == (1, 2)


def test_guardrails_hold_in_batches(tmp_path: Path, vendor: BatchVendor) -> None:
    guardrails = [
        {"name": "refuse", "scan": "input", "patterns": ["cards"]},
        {
            "name": "hide",
            "scan": "input",
            "patterns": ["emails"],
            "mode": "redact",
            "restore": True,
        },
        {
            "name": "cut",
            "scan": "output",
            "expressions": {"SECRET": "classified"},
            "mode": "redact",
        },
    ]
    path = vendor_template(tmp_path, vendor, guardrails=guardrails)
    with running(path) as server, client_of(server) as client:
        lines = [
            line("blocked", "cheap", "It is 4111 1111 1111 1111"),
            line("hidden", "cheap", "write to alice@example.com"),
            line("cut", "cheap", "classified things"),
        ]
        batch = waited_for(client, ordered(client, lines))
        answers, errors = told(client, batch)
    assert errors == {"blocked": "content_filter"}
    assert sorted(vendor.paid) == ["classified things", "write to <EMAIL_1>"]
    assert answers["hidden"] == "write to alice@example.com"
    assert answers["cut"].startswith("<SECRET")
    assert not vendor.single


@each_vendor
def test_cancel_ends_it_there_and_keeps_what_is_done(
    vendor: BatchVendor, client: openai.OpenAI
) -> None:
    vendor.go.clear()
    vendor.answered = 2
    batch = ordered(client, [line(f"r{n}", "cheap") for n in range(5)])
    waited_for(client, batch, lambda _: vendor.looks > 1)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = waited_for(client, batch)
    assert batch.status == "cancelled"
    answers, errors = told(client, batch)
    assert answers == {"r0": "say r0", "r1": "say r1"}
    assert errors == dict.fromkeys(("r2", "r3", "r4"), "batch_cancelled")
    assert not vendor.single
    assert len(vendor.jobs) == 1


def test_its_time_is_over(vendor: BatchVendor, client: openai.OpenAI) -> None:
    vendor.go.clear()
    vendor.answered = 1
    lines = [line(f"r{n}", "cheap") for n in range(3)]
    batch = waited_for(client, ordered(client, lines, completion_window="2s"))
    assert batch.status == "expired"
    answers, errors = told(client, batch)
    assert answers == {"r0": "say r0"}
    assert errors == dict.fromkeys(("r1", "r2"), "batch_expired")


@each_vendor
def test_what_the_vendor_had_no_time_for_is_handed_over_again(
    vendor: BatchVendor, client: openai.OpenAI
) -> None:
    vendor.ends_as, vendor.answered = "expired", 2
    names = [f"r{n}" for n in range(5)]
    batch = waited_for(client, ordered(client, [line(name, "cheap") for name in names]))
    answers, errors = told(client, batch)
    assert (answers, errors) == ({name: f"say {name}" for name in names}, {})
    assert [len(job.lines) for job in vendor.jobs] == [5, 3, 1]
    assert set(vendor.paid.values()) == {1}


def test_a_batch_that_the_vendor_refuses_for_some_lines(
    vendor: BatchVendor, client: openai.OpenAI
) -> None:
    problem = {"code": "invalid_json_line", "message": "bad line", "param": None, "line": 2}
    vendor.fails = [[problem]]
    names = ["a", "b", "c"]
    batch = waited_for(client, ordered(client, [line(name, "cheap") for name in names]))
    answers, errors = told(client, batch)
    assert answers == {"a": "say a", "c": "say c"}
    assert errors == {"b": "invalid_json_line"}
    assert [len(job.lines) for job in vendor.jobs] == [3, 2]


@each_vendor
def test_a_batch_that_the_vendor_refuses(vendor: BatchVendor, client: openai.OpenAI) -> None:
    vendor.refuse = [(429, "slow_down"), (400, "model_not_for_batches")]
    batch = waited_for(client, ordered(client, [line(name, "cheap") for name in "ab"]))
    answers, errors = told(client, batch)
    assert answers == {}
    assert errors.keys() == {"a", "b"}
    failed = results(client, batch.error_file_id)["a"]
    assert "not now" in failed["error"]["message"]
    assert (vendor.jobs, vendor.refuse, dict(vendor.single)) == ([], [], {})


def test_another_target_answers_where_the_vendor_does_not(
    tmp_path: Path, vendor: BatchVendor
) -> None:
    targets = [
        {"provider": "vendor", "model": "gpt"},
        {"provider": "echo", "model": "echo"},
    ]
    path = vendor_template(tmp_path, vendor, models=[{"id": "cheap", "targets": targets}])
    template = yaml.safe_load(path.read_text())
    template["providers"].append({"id": "echo", "type": "local::echo"})
    template["providers"][0]["config"]["api_key"] = "sk-wrong"
    path.write_text(yaml.safe_dump(template))
    with running(path) as server, client_of(server) as client:
        batch = waited_for(client, ordered(client, [line(name, "cheap") for name in "ab"]))
        answers, errors = told(client, batch)
        assert (answers, errors) == ({"a": "say a", "b": "say b"}, {})
        assert not vendor.jobs


def test_many_at_once_wait_for_each_other(vendor: BatchVendor, client: openai.OpenAI) -> None:
    limit = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
    vendor.fails = [[limit]]
    batch = ordered(client, [line("a", "cheap")])
    answers, errors = told(client, waited_for(client, batch))
    assert (answers, errors) == ({"a": "say a"}, {})
    assert len(vendor.jobs) == 2


def test_progress_is_seen(vendor: BatchVendor, client: openai.OpenAI) -> None:
    vendor.go.clear()
    batch = ordered(client, [line(f"r{n}", "cheap") for n in range(4)])
    waited_for(client, batch, lambda _: bool(vendor.looks))
    vendor.jobs[0].results[True] = [{}] * 3
    now = waited_for(
        client, batch, lambda now: bool(now.request_counts and now.request_counts.completed == 3)
    )
    assert now.status == "in_progress"
    vendor.jobs[0].results[True] = []
    vendor.go.set()
    assert waited_for(client, batch).status == "completed"


def budget_template(folder: Path, vendor: BatchVendor, **key: Any) -> Path:
    return vendor_template(folder, vendor, keys=[{"name": "ann", "key": KEY, **key}])


def test_a_budget_is_reserved_and_used(tmp_path: Path, vendor: BatchVendor) -> None:
    """What is handed over is held, so that nobody else can spend it meanwhile."""
    path = budget_template(tmp_path, vendor, budget={"amount": 0.0031, "period": "ever"})
    with running(path) as server, client_of(server) as client:
        vendor.go.clear()
        # Each may cost some (512 + some) / 1e6 * 0.5 dollars, and comes to 0.001.
        lines = [line(f"r{n}", "cheap", max_tokens=2000) for n in range(3)]
        batch = ordered(client, lines)
        waited_for(client, batch, lambda _: bool(vendor.jobs))
        messages: Any = [{"role": "user", "content": "hello"}]
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="dear", messages=messages, max_tokens=2000)
        vendor.go.set()
        batch = waited_for(client, batch)
        answers, _ = told(client, batch)
        assert len(answers) == 3
        with pytest.raises(openai.RateLimitError):  # it is used up but for a ten-thousandth
            client.chat.completions.create(model="dear", messages=messages, max_tokens=200)


def test_a_budget_is_held_again_by_the_next_process(tmp_path: Path, vendor: BatchVendor) -> None:
    path = budget_template(tmp_path, vendor, budget={"amount": 0.0031, "period": "ever"})
    vendor.go.clear()
    messages: Any = [{"role": "user", "content": "hello"}]
    with running(path) as server, client_of(server) as client:
        lines = [line(f"r{n}", "cheap", max_tokens=2000) for n in range(3)]
        batch = ordered(client, lines)
        waited_for(client, batch, lambda _: vendor.looks > 1)
        server.kill()
    with running(path) as server, client_of(server) as client:
        looks = vendor.looks
        waited_for(client, batch, lambda _: vendor.looks > looks + 1)
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="dear", messages=messages, max_tokens=2000)
        vendor.go.set()
        answers, _ = told(client, waited_for(client, batch))
        assert len(answers) == 3
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="dear", messages=messages, max_tokens=200)
        client.chat.completions.create(model="dear", messages=messages, max_tokens=20)


def test_a_key_that_is_gone_ends_it_and_keeps_what_is_done(
    tmp_path: Path, vendor: BatchVendor
) -> None:
    keys = [{"name": "ann", "key": KEY}, {"name": "bob", "key": "sk-bob-12345678"}]
    path = vendor_template(tmp_path, vendor, keys=keys)
    vendor.go.clear()
    vendor.answered = 2
    with running(path) as server:
        with client_of(server) as client:
            batch = ordered(client, [line(f"r{n}", "cheap") for n in range(5)])
            waited_for(client, batch, lambda _: vendor.looks > 1)
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "keys": keys[1:]}))
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("reloaded")
        row, deadline = ("", 0), time.monotonic() + 30
        while row[0] != "failed" and time.monotonic() < deadline:
            with closing(sqlite3.connect(tmp_path / "operations.sqlite")) as storage:
                (row,) = storage.execute("SELECT status, completed FROM batches").fetchall()
    assert row == ("failed", 2)
    assert vendor.jobs[0].status == "cancelled"


def test_lines_that_a_budget_has_no_room_for_fail(tmp_path: Path, vendor: BatchVendor) -> None:
    path = budget_template(tmp_path, vendor, budget={"amount": 0.0021, "period": "ever"})
    with running(path) as server, client_of(server) as client:
        lines = [line(f"r{n}", "cheap", max_tokens=2000) for n in range(4)]
        batch = waited_for(client, ordered(client, lines, completion_window="30s"))
        answers, errors = told(client, batch)
        assert len(answers) == 2
        assert len(errors) == 2
        assert sum(vendor.paid.values()) == 2
        assert not vendor.single


def test_limits_of_a_minute_hold_lines_up(tmp_path: Path, vendor: BatchVendor) -> None:
    path = budget_template(tmp_path, vendor, limits={"requests_per_minute": 120})
    with running(path) as server, client_of(server) as client:
        names = [f"r{n}" for n in range(124)]
        batch = waited_for(client, ordered(client, [line(name, "cheap") for name in names]))
        answers, errors = told(client, batch)
        assert len(answers) == 124
        assert errors == {}
        assert len(vendor.jobs) > 1
        assert set(vendor.paid.values()) == {1}


def test_the_betas_of_anthropic_s_clients_reach_it(tmp_path: Path) -> None:
    with (
        BatchVendor("anthropic") as vendor,
        running(vendor_template(tmp_path, vendor)) as server,
        anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as claude,
    ):
        batch = claude.messages.batches.create(requests=[asked("a", "cheap")])
        ended(claude, batch)
        assert vendor.headers[0]["anthropic-version"] == "2023-06-01"


def test_a_provider_without_such_an_api_is_no_start(tmp_path: Path, vendor: BatchVendor) -> None:
    path = vendor_template(tmp_path, vendor)
    path.write_text(path.read_text().replace("remote::openai", "remote::vllm"))
    server = ServerProcess(path)
    try:
        assert server.wait() != 0
        assert "has no batch API" in server.log
        assert "Traceback" not in server.log
    finally:
        server.kill()


def test_a_reload_goes_on_with_it(tmp_path: Path, vendor: BatchVendor) -> None:
    """The provider's connections are others then."""
    path = vendor_template(tmp_path, vendor)
    vendor.go.clear()
    with running(path) as server, client_of(server) as client:
        batch = ordered(client, [line(f"r{n}", "cheap") for n in range(3)])
        waited_for(client, batch, lambda _: vendor.looks > 1)
        template = yaml.safe_load(path.read_text())
        template["providers"][0]["config"]["max_connections"] = 7
        path.write_text(yaml.safe_dump(template))
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("reloaded")
        looks = vendor.looks
        waited_for(client, batch, lambda _: vendor.looks > looks + 2)
        vendor.go.set()
        answers, errors = told(client, waited_for(client, batch))
        assert (len(answers), errors) == (3, {})
        assert len(vendor.jobs) == 1
        assert "Traceback" not in server.log


def test_a_stop_leaves_it_to_the_next(tmp_path: Path, vendor: BatchVendor) -> None:
    path = vendor_template(tmp_path, vendor)
    vendor.go.clear()
    with running(path) as server:
        with client_of(server) as client:
            batch = ordered(client, [line(f"r{n}", "cheap") for n in range(3)])
            waited_for(client, batch, lambda _: vendor.looks > 1)
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.log
    vendor.go.set()
    with running(path) as server, client_of(server) as client:
        answers, _ = told(client, waited_for(client, batch))
        assert len(answers) == 3
        assert len(vendor.jobs) == 1


def test_a_command_hands_them_over_too(tmp_path: Path, vendor: BatchVendor) -> None:
    path = vendor_template(tmp_path, vendor)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(jsonl([line(f"r{n}", "cheap") for n in range(3)]))
    command = [COMMAND, "batch", str(path), "--in", str(source), "--out", str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    found = [json.loads(each) for each in target.read_text().splitlines()]
    assert [each["custom_id"] for each in found] == ["r0", "r1", "r2"]
    assert [said(each) for each in found] == ["say r0", "say r1", "say r2"]
    assert len(vendor.jobs) == 1


def test_servers_share_the_work_in_postgres(
    tmp_path: Path, vendor: BatchVendor, postgres_database: str
) -> None:
    vendor.go.clear()
    vendor.ends_as, vendor.answered = "expired", 20
    path = vendor_template(tmp_path, vendor, server={"storage": postgres_database})
    with running(path) as first, running(path) as second:
        with client_of(first) as client:
            batch = ordered(client, [line(f"r{n}", "cheap") for n in range(30)])
            waited_for(client, batch, _until(lambda: vendor.looks > 2))
        first.kill()
        vendor.go.set()
        with client_of(second) as client:
            answers, errors = told(client, waited_for(client, batch))
    assert (len(answers), errors) == (30, {})
    assert [len(job.lines) for job in vendor.jobs] == [30, 10]
    assert set(vendor.paid.values()) == {1}


def _until(condition: Callable[[], bool]) -> Callable[[Any], bool]:
    return lambda _: condition()


def test_servers_share_one(tmp_path: Path, vendor: BatchVendor) -> None:
    path = vendor_template(tmp_path, vendor)
    vendor.go.clear()
    with running(path) as first, running(path) as second:
        with client_of(first) as client:
            batch = ordered(client, [line(f"r{n}", "cheap") for n in range(30)])
            waited_for(client, batch, _until(lambda: vendor.looks > 2))
        first.kill()
        vendor.go.set()
        with client_of(second) as client:
            batch = waited_for(client, batch)
            answers, errors = told(client, batch)
    assert (len(answers), errors) == (30, {})
    assert len(vendor.jobs) == 1
    assert set(vendor.paid.values()) == {1}
