"""A hundred times a process is killed while it works on a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.batching import batch_template, counting_vendor, line, said
from tests.integration.test_batches_killed import check_paid, killed

pytestmark = pytest.mark.lengthy

KILLS = 50
"""Of each of the two: a hundred together."""


def test_nothing_is_lost_that_is_free(tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(20_000)]
    good, bad = killed(batch_template(tmp_path), [line(name) for name in names], KILLS)
    assert bad == {}
    assert {name: said(each) for name, each in good.items()} == {n: f"say {n}" for n in names}


def test_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(8000)]
    with counting_vendor() as (counting, url):
        path = batch_template(tmp_path, url, batches={"lease_seconds": 1, "concurrency": 16})
        good, bad = killed(path, [line(name, "paid") for name in names], KILLS)
        check_paid(counting, names, good, bad)
