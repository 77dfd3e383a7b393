"""What is taken of each device's memory, by whom."""

from __future__ import annotations

from providers.local.residency.ledger import MemoryLedger


def test_what_is_missing_counts_what_one_has_already() -> None:
    ledger = MemoryLedger({"cpu": 10, "cuda:0": 4})
    ledger.put("a", {"cpu": 6})
    ledger.put("b", {"cpu": 3, "cuda:0": 4})
    assert ledger.used == {"cpu": 9, "cuda:0": 4}
    assert ledger.missing("c", {"cpu": 1}) == {}
    assert ledger.missing("c", {"cpu": 3, "cuda:0": 1}) == {"cpu": 2, "cuda:0": 1}
    assert ledger.missing("a", {"cpu": 7}) == {}
    assert ledger.missing("a", {"cpu": 9}) == {"cpu": 2}


def test_who_gives_all_back_has_nothing() -> None:
    ledger = MemoryLedger({"cpu": 10})
    ledger.put("a", {"cpu": 6})
    ledger.put("a", {"cpu": 0})
    assert ledger.taken_by("a") == {}
    assert ledger.used == {"cpu": 0}


def test_what_is_taken_beyond_a_bound_is_told() -> None:
    ledger = MemoryLedger({"cpu": 10, "cuda:0": 4})
    ledger.put("a", {"cpu": 6, "cuda:0": 4})
    assert ledger.over == {}
    ledger.bounds["cpu"] = 5
    assert ledger.over == {"cpu": 1}


def test_a_device_without_a_bound_has_no_room() -> None:
    ledger = MemoryLedger({"cpu": 10})
    assert ledger.missing("a", {"cuda:1": 3}) == {"cuda:1": 3}
