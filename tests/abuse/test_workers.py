"""Workers end with their parent, and not with one another."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration.test_workers import (
    assert_all_gone,
    wait_for,
    wait_until_serving,
    worker_pids,
    workers,
)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_until_serving(server, 2)
        server.process.kill()
        server.process.wait()
        assert_all_gone(server)
        with workers(tmp_path, count=1, port=server.port) as next_one:
            next_one.wait_until_ready()


def test_a_worker_killed_as_it_starts_ends_no_other(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_for(server, "two workers", lambda: len(worker_pids(server)) == 2)
        healthy, killed = worker_pids(server)
        os.kill(killed, signal.SIGKILL)
        wait_until_serving(server, 2)
        assert healthy in worker_pids(server)
        assert server.health()["status"] == "ok"
        assert server.stop() == 0
        assert_all_gone(server)
