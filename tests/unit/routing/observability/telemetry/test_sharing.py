"""The folder in which workers count together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from routing.observability.telemetry.sharing import FOLDER, forget_process, shared_metrics

pytest.importorskip("prometheus_client")


def test_it_is_there_while_workers_are_and_gone_afterwards() -> None:
    with shared_metrics():
        folder = Path(os.environ[FOLDER])
        assert folder.is_dir()
        (folder / "counter_7.db").write_bytes(b"")
    assert FOLDER not in os.environ
    assert not folder.exists()


def test_what_an_ended_worker_had_running_is_forgotten_and_what_it_counted_is_not() -> None:
    with shared_metrics():
        folder = Path(os.environ[FOLDER])
        for name in ("gauge_livesum_7.db", "gauge_livesum_8.db", "counter_7.db"):
            (folder / name).write_bytes(b"")
        forget_process(7)
        assert sorted(each.name for each in folder.iterdir()) == [
            "counter_7.db",
            "gauge_livesum_8.db",
        ]


def test_nothing_is_forgotten_where_nobody_counts() -> None:
    forget_process(7)
