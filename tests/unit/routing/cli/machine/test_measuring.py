"""What is made of when requests were sent, and of when their tokens came."""

from __future__ import annotations

import pytest

from routing.cli.machine.measuring import Served, metrics


def test_what_two_requests_come_to() -> None:
    found = metrics([Served(10.0, [10.5, 10.6, 10.7]), Served(10.0, [11.0, 11.5, 12.0])])
    assert found["request_throughput"] == 1.0
    assert found["output_throughput"] == 3.0
    assert (found["mean_ttft_ms"], found["p99_ttft_ms"]) == (750.0, 1000.0)
    assert found["median_tpot_ms"] == pytest.approx(300.0)
    assert found["median_itl_ms"] == pytest.approx(300.0)
    assert found["p99_itl_ms"] == pytest.approx(500.0)


def test_what_was_cut_off_counts_until_then() -> None:
    found = metrics([Served(10.0, [10.5, 10.6]), Served(11.0, [11.5])], 14.0)
    assert found["output_throughput"] == 0.75
    assert found["median_tpot_ms"] == pytest.approx(100.0)


def test_a_single_token_has_no_pace() -> None:
    found = metrics([Served(1.0, [2.0])])
    assert (found["median_tpot_ms"], found["median_itl_ms"]) == (0.0, 0.0)
    assert found["median_ttft_ms"] == 1000.0
