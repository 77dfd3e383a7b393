"""A process is killed while it works on a batch, at any moment: each line has one result, and
nothing is paid for twice."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.batching import (
    KEY,
    CountingVendor,
    batch_template,
    counting_vendor,
    line,
    ordered,
    results,
    said,
    waited_for,
)
from tests.integration.server_process import ServerProcess, running

pytestmark = pytest.mark.server


def client_of(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)


def begun_again(path: Path, port: int) -> ServerProcess:
    server = ServerProcess(path, port=port)
    server.wait_until_ready()
    return server


def killed(
    path: Path, lines: list[dict[str, Any]], kills: int, seconds: float = 0.4
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The output and the errors of a batch whose process is killed so many times."""
    random.seed(kills)
    server = ServerProcess(path)
    try:
        server.wait_until_ready()
        with client_of(server) as client:
            batch = ordered(client, lines)
        for _ in range(kills):
            time.sleep(random.uniform(0, seconds))  # the moment is to be any
            server.kill()
            server = begun_again(path, server.port)
        with client_of(server) as client:
            batch = waited_for(client, batch)
            assert batch.status == "completed"
            return results(client, batch.output_file_id), results(client, batch.error_file_id)
    finally:
        server.kill()


def check_paid(
    counting: CountingVendor,
    names: list[str],
    good: dict[str, dict[str, Any]],
    bad: dict[str, dict[str, Any]],
) -> None:
    assert sorted([*good, *bad]) == sorted(names)
    assert {name: said(each) for name, each in good.items()} == {n: f"say {n}" for n in good}
    assert {each["error"]["code"] for each in bad.values()} <= {"unknown_outcome"}
    assert max(counting.asked.values()) == 1
    assert all(counting.asked[f"say {name}"] == 1 for name in good)


def test_nothing_is_lost_that_is_free(tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(1500)]
    good, bad = killed(batch_template(tmp_path), [line(name) for name in names], 3)
    assert bad == {}
    assert {name: said(each) for name, each in good.items()} == {n: f"say {n}" for n in names}


def test_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(400)]
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, batches={"lease_seconds": 1, "concurrency": 16})
        good, bad = killed(path, [line(name, "paid") for name in names], 2, 0.3)
        check_paid(counting, names, good, bad)


@pytest.mark.parametrize(
    ("model", "setting"), [("paid", "error"), ("paid", "retry"), ("free", "error")]
)
def test_what_becomes_of_lines_on_their_way(tmp_path: Path, model: str, setting: str) -> None:
    batches = {"lease_seconds": 1, "unknown_outcome": setting}
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, batches=batches)
        counting.hold.clear()
        server = ServerProcess(path)
        try:
            server.wait_until_ready()
            with client_of(server) as client:
                batch = ordered(client, [line(f"r{n}", model) for n in range(3)])
                waited_for(client, batch, lambda _: counting.most == 3)
            server.kill()
            counting.hold.set()
            server = begun_again(path, server.port)
            with client_of(server) as client:
                batch = waited_for(client, batch)
                good = results(client, batch.output_file_id)
                bad = results(client, batch.error_file_id)
        finally:
            server.kill()
        again = setting == "retry" or model == "free"
        assert (len(good), len(bad)) == ((3, 0) if again else (0, 3))
        assert {each["error"]["code"] for each in bad.values()} <= {"unknown_outcome"}
        assert set(counting.asked.values()) == {2 if again else 1}


def test_a_stop_lets_lines_finish_and_loses_none(tmp_path: Path) -> None:
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, shutdown_grace_seconds=20)
        counting.hold.clear()
        with running(path) as server:
            with client_of(server) as client:
                batch = ordered(client, [line(f"r{n}", "paid") for n in range(40)])
                waited_for(client, batch, lambda _: counting.most >= 4)
            server.send_signal(signal.SIGTERM)
            server.wait_for_log("SIGTERM")
            counting.hold.set()
            assert server.wait() == 0
        with running(path) as server, client_of(server) as client:
            batch = waited_for(client, batch)
            assert len(results(client, batch.output_file_id)) == 40
            assert set(counting.asked.values()) == {1}


def test_another_process_goes_on_while_one_is_stopped(tmp_path: Path) -> None:
    """One that does nothing for longer than its lease wakes up, and spoils nothing."""
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, batches={"lease_seconds": 1, "concurrency": 8})
        with running(path) as first, running(path) as second, client_of(second) as client:
            names = [f"r{n}" for n in range(60)]
            counting.hold.clear()
            batch = ordered(client, [line(name, "paid") for name in names])
            waited_for(client, batch, lambda _: counting.most >= 12)
            os.kill(first.process.pid, signal.SIGSTOP)
            try:
                counting.hold.set()
                batch = waited_for(client, batch)
            finally:
                os.kill(first.process.pid, signal.SIGCONT)
            good, bad = results(client, batch.output_file_id), results(client, batch.error_file_id)
            check_paid(counting, names, good, bad)
            assert bad
            again = waited_for(client, ordered(client, [line("later")]))
            assert again.status == "completed"
