"""What is read of a vendor's results, of which it may send any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from providers.remote.batches.base import LineAnswer
from routing.batches.vendors.results import Results


def test_of_two_results_of_a_line_the_first_counts() -> None:
    """Of two in one piece it was the last, and of those in different ones the first."""
    api: Any = SimpleNamespace(
        answer=lambda line: LineAnswer(line.partition(b" ")[0].decode(), 200, line)
    )
    order: Any = SimpleNamespace(id="order_1", number={"a": 1, "b": 2}.get)
    run: Any = SimpleNamespace()
    said = Results(run, order, api=api)._said([b"a one", b"b two", b"x", b"a three"])
    assert {number: answer.body for number, answer in said.items()} == {1: b"a one", 2: b"b two"}
