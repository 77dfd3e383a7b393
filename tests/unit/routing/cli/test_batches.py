"""The commands about batches."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace
from typer.testing import CliRunner

from routing.batches.journal.journal import Journal
from routing.batches.journal.rows import Job
from routing.batches.tables import MIGRATIONS
from routing.cli import app
from routing.cli.batches import SOME_FAILED
from routing.storage.storage import open_storage
from tests.integration.batching import batch_template, counting_vendor, jsonl, line, said


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text().splitlines()]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path, Path]:
    return batch_template(tmp_path), tmp_path / "in.jsonl", tmp_path / "out.jsonl"


def test_a_file_is_worked_through_without_a_server(paths: tuple[Path, Path, Path]) -> None:
    template, source, target = paths
    source.write_bytes(jsonl(line(f"r{n}") for n in range(50)))
    result = run("batch", template, "--in", source, "--out", target)
    assert result.exit_code == 0, result.output
    found = lines_of(target)
    assert [each["custom_id"] for each in found] == [f"r{n}" for n in range(50)]
    assert [said(each) for each in found] == [f"say r{n}" for n in range(50)]
    assert "50 of 50 lines answered" in result.output
    assert not list(target.parent.glob(".*llama-compat"))


def test_it_says_by_its_exit_code_that_lines_failed(paths: tuple[Path, Path, Path]) -> None:
    template, source, target = paths
    source.write_bytes(jsonl([line("good"), line("bad", "nonsense"), line("good too")]))
    result = run("batch", template, "--in", source, "--out", target)
    assert result.exit_code == SOME_FAILED
    statuses = [each["response"]["status_code"] for each in lines_of(target)]
    assert statuses == [200, 404, 200]


def test_anthropic_s_lines_are_taken_too(paths: tuple[Path, Path, Path]) -> None:
    template, source, target = paths
    messages = [{"role": "user", "content": "hello"}]
    params = {"model": "echo", "max_tokens": 9, "messages": messages}
    source.write_bytes(jsonl([{"custom_id": "a", "params": params}]))
    assert run("batch", template, "--in", source, "--out", target).exit_code == 0
    (found,) = lines_of(target)
    assert found["result"]["message"]["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"nonsense", "no JSON object"),
        (b"{}", "'url' of its first line"),
        (jsonl([line("a"), line("a")]), "line 2: The custom_id 'a' is that of an earlier line"),
    ],
)
def test_what_is_no_input_is_refused(
    paths: tuple[Path, Path, Path], content: bytes | None, told: str
) -> None:
    template, source, target = paths
    if content is not None:
        source.write_bytes(content)
    result = run("batch", template, "--in", source, "--out", target)
    assert result.exit_code == 1
    assert told in result.output
    assert not target.exists()


def test_one_that_is_done_is_not_asked_again(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(jsonl([line("a", "paid")]))
    with counting_vendor() as (vendor, url):
        template = batch_template(tmp_path, url)
        for _ in range(2):
            result = run("batch", template, "--in", source, "--out", target)
            assert result.exit_code == 0, result.output
            assert "$0.0020" in result.output
        assert vendor.asked["say a"] == 1
        target.unlink()
        assert run("batch", template, "--in", source, "--out", target).exit_code == 0
        assert vendor.asked["say a"] == 2


@pytest.mark.server
def test_one_that_is_killed_goes_on(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    names = [f"r{n}" for n in range(60)]
    source.write_bytes(jsonl(line(name, "paid") for name in names))
    with counting_vendor() as (vendor, url):
        template = batch_template(tmp_path, url, batches={"lease_seconds": 1, "concurrency": 4})
        command = [sys.executable, "-m", "routing.cli", "batch", str(template)]
        command = [*command, "--in", str(source), "--out", str(target)]
        code = f"import sys; sys.argv = {command[2:]!r}; from routing.cli import main; main()"
        first = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(vendor.asked) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        first.kill()
        first.wait()
        assert not target.exists()
        result = run("batch", template, "--in", source, "--out", target)
        assert result.exit_code in (0, SOME_FAILED), result.output
        found = lines_of(target)
        assert [each["custom_id"] for each in found] == names
        assert max(vendor.asked.values()) == 1
        unknown = [each for each in found if each["error"]]
        assert {each["error"]["code"] for each in unknown} <= {"unknown_outcome"}
        assert len(unknown) <= 4


def kept(address: str, jobs: Sequence[Job]) -> None:
    async def keep() -> None:
        storage = open_storage(address, [MIGRATIONS])
        await storage.start()
        for job in jobs:
            await Journal(storage, 1.0).add(job)
        await storage.stop()

    asyncio.run(keep())


def job(job_id: str, status: str) -> Job:
    return Job(
        job_id,
        "openai",
        "key-a",
        "/v1/embeddings",
        "file-1",
        "24h",
        b"null",
        None,
        1.0,
        9e9,
        status,
    )


def test_batches_are_listed_and_cancelled(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    kept(address, [job("batch_open", "in_progress"), job("batch_done", "completed")])
    listed = run("batches", "list", "--storage", address)
    assert listed.exit_code == 0, listed.output
    assert "batch_open" in listed.output
    assert "key-a" in listed.output
    shown = json.loads(run("batches", "list", "--storage", address, "--json").output)
    assert {each["id"]: each["status"] for each in shown} == {
        "batch_open": "in_progress",
        "batch_done": "completed",
    }
    cancelled = run("batches", "cancel", "batch_open", "--storage", address)
    assert cancelled.exit_code == 0, cancelled.output
    for name, told in (("batch_done", "completed already"), ("nonsense", "no batch")):
        refused = run("batches", "cancel", name, "--storage", address)
        assert refused.exit_code == 1
        assert told in refused.output


def test_lines_that_vendors_have_answered_count(tmp_path: Path) -> None:
    """As they do in the API."""
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    at_vendor = replace(job("batch_open", "in_progress"), total=9, failed=1, elsewhere=4)
    kept(address, [at_vendor])
    listed = run("batches", "list", "--storage", address)
    assert "5/9" in listed.output
    shown = json.loads(run("batches", "list", "--storage", address, "--json").output)
    assert shown[0]["request_counts"] == {"total": 9, "completed": 4, "failed": 1}


def test_where_nothing_is_done_watching_says_so(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    kept(address, [job("batch_done", "completed")])
    watched = run("batches", "watch", "--storage", address)
    assert (watched.exit_code, "No batch" in watched.output) == (0, True)
