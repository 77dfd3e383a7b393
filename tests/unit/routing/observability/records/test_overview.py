"""What records tell over time, and of what went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from routing.observability.records.overview import (
    MOST,
    MOST_GROUPS,
    last_errors,
    last_verdicts,
    overview,
)
from routing.observability.records.recorder import DAY_SECONDS
from tests.unit.routing.observability.records.records import NOON, record
from tests.unit.routing.observability.records.test_reports import filled

MINUTE = 60
RECORDS = (
    record(time=NOON - 3600 + 1, duration=9.0, cost=None),
    record(time=NOON - 120, duration=0.1, first_content=0.01),
    *(record(time=NOON - 60 + each, duration=1.0 + each, first_content=each) for each in range(20)),
    record(time=NOON - 30, error="timeout", status=504, duration=99.0, cost=None),
    record(time=NOON - 3700, duration=9.0),
    record(time=NOON - DAY_SECONDS, key="old", duration=2.0),
)


async def test_an_hour_has_its_minutes(address: str) -> None:
    storage = await filled(address, RECORDS)
    found = await overview(storage, "1h", NOON)
    await storage.stop()
    assert (found["step"], found["from"], found["to"]) == (60, NOON - 3600, NOON)
    first, second, third = found["points"]
    assert [point["time"] for point in (first, second, third)] == [
        NOON - 3600,
        NOON - 120,
        NOON - 60,
    ]
    assert (first["requests"], first["cost"], first["first_content"]) == (1, None, None)
    assert (second["median"], second["p95"], second["mean"]) == (0.1, 0.1, 0.1)
    assert second["cost"] == pytest.approx(1000e-9)
    assert (third["requests"], third["errors"]) == (21, 1)
    assert (third["input_tokens"], third["output_tokens"]) == (2100, 210)
    assert third["cost"] == pytest.approx(20_000e-9)
    # Of those that went well: 1 to 20 seconds.
    assert (third["median"], third["p95"], third["first_content"]) == (10.0, 19.0, 9.0)
    assert third["mean"] == pytest.approx((sum(range(1, 21)) + 99) / 21)
    [model] = found["by"]["model"]
    assert (model["name"], model["requests"], model["errors"]) == ("m", 23, 1)
    assert [each["name"] for each in found["by"]["key"]] == ["key-1"]


async def test_days_have_their_sums(address: str) -> None:
    storage = await filled(address, RECORDS)
    found = await overview(storage, "7d", NOON)
    await storage.stop()
    midnight = NOON - DAY_SECONDS // 2
    assert found["from"] == midnight - 6 * DAY_SECONDS
    yesterday, today = found["points"]
    assert (yesterday["time"], today["time"]) == (midnight - DAY_SECONDS, midnight)
    assert (yesterday["requests"], yesterday["mean"], yesterday["p95"]) == (1, 2.0, None)
    assert (today["requests"], today["errors"]) == (24, 1)
    assert {each["name"]: each["requests"] for each in found["by"]["key"]} == {
        "key-1": 24,
        "old": 1,
    }


async def test_a_day_goes_back_a_day(address: str) -> None:
    storage = await filled(address, RECORDS)
    found = await overview(storage, "24h", NOON)
    await storage.stop()
    assert sum(point["requests"] for point in found["points"]) == len(RECORDS)
    assert found["points"][0]["time"] == NOON - DAY_SECONDS


async def test_nothing_is_nothing(address: str) -> None:
    storage = await filled(address, ())
    for span in ("1h", "30d"):
        found = await overview(storage, span, NOON)
        assert found["points"] == []
        assert found["by"] == {"model": [], "team": [], "key": [], "provider": []}
        assert (found["before"], found["errors"]) == (None, [])
    assert await last_errors(storage) == []
    await storage.stop()


async def test_the_period_before_ends_as_long_ago(address: str) -> None:
    hour = 3600
    then = [
        record(time=NOON - 2 * hour + 1, duration=3.0),
        record(time=NOON - hour - 1, duration=1.0, error="timeout", status=504),
        record(time=NOON - 2 * hour - 1),
        # Of a week ago what is after this time of day is not of the period before.
        record(time=NOON - 7 * DAY_SECONDS - 60),
        record(time=NOON - 7 * DAY_SECONDS + 60),
        record(time=NOON - 9 * DAY_SECONDS),
        record(time=NOON - 30 * DAY_SECONDS),
    ]
    storage = await filled(address, [*RECORDS[:2], *then])
    hourly = await overview(storage, "1h", NOON)
    weekly = await overview(storage, "7d", NOON)
    quarterly = await overview(storage, "90d", NOON)
    await storage.stop()
    before = hourly["before"]
    assert (before["from"], before["to"]) == (NOON - 2 * hour, NOON - hour)
    assert (before["requests"], before["errors"], before["mean"]) == (2, 1, 2.0)
    assert weekly["before"]["requests"] == 2
    # Nobody recorded anything then, which is not the same as that nobody asked.
    assert quarterly["before"] is None


async def test_teams_are_their_keys(address: str) -> None:
    some = [record(key=f"key-{each}") for each in range(3)]
    storage = await filled(address, some)
    team_of = {"key-0": "a", "key-1": "a"}
    found = await overview(storage, "1h", NOON, lambda key: team_of.get(key, ""))
    await storage.stop()
    assert {each["name"]: each["requests"] for each in found["by"]["team"]} == {"a": 2, "": 1}


async def test_what_went_wrong_most_comes_first(address: str) -> None:
    def failed(each: int, error: str) -> Any:
        message = f"{error} {each}"
        return record(
            time=NOON - 60 + each, request_id=f"r{each}", error=error, status=504, message=message
        )

    wrong = [failed(0, "rare"), *(failed(each, "often") for each in range(1, 4))]
    storage = await filled(address, [*wrong, record(time=NOON), failed(-DAY_SECONDS, "old")])
    often, rare = (await overview(storage, "1h", NOON))["errors"]
    await storage.stop()
    assert (often["error"], often["requests"], often["status"]) == ("often", 3, 504)
    assert (often["message"], often["request_id"], often["last"]) == ("often 3", "r3", NOON - 57)
    assert (rare["error"], rare["requests"], rare["model"]) == ("rare", 1, "m")


async def test_groups_have_an_end(address: str) -> None:
    many = [record(key=f"key-{each}", cost=each) for each in range(MOST_GROUPS + 5)]
    storage = await filled(address, many)
    found = (await overview(storage, "1h", NOON))["by"]["key"]
    await storage.stop()
    assert [each["name"] for each in found][:2] == ["key-54", "key-53"]
    assert len(found) == MOST_GROUPS


async def test_the_last_errors_come_first(address: str) -> None:
    failed = [
        record(time=NOON + each, request_id=f"req-{each}", error="timeout", status=504)
        for each in range(MOST + 2)
    ]
    left = record(time=NOON + 100, cancelled=1, status=499)
    storage = await filled(address, [*failed, left, record(time=NOON + 101)])
    found = await last_errors(storage)
    await storage.stop()
    assert [each["request_id"] for each in found] == [
        f"req-{each}" for each in range(MOST + 1, 1, -1)
    ]
    assert (found[0]["status"], found[0]["error"], found[0]["key"]) == (504, "timeout", "key-1")


async def test_the_last_verdicts_come_first(address: str) -> None:
    found = [
        record(time=NOON + each, request_id=f"req-{each}", guardrails="pii:redact ours:monitor")
        for each in range(2)
    ]
    storage = await filled(address, [*found, record(time=NOON + 9)])
    told = await last_verdicts(storage)
    await storage.stop()
    assert [each["request_id"] for each in told] == ["req-1", "req-0"]
    assert (told[0]["guardrails"], told[0]["key"]) == ("pii:redact ours:monitor", "key-1")


async def test_a_series_begins_with_a_whole_step(address: str) -> None:
    storage = await filled(address, ())
    found = await overview(storage, "1h", NOON + 7)
    await storage.stop()
    assert (found["from"], found["to"]) == (NOON - 3600, NOON + 7)


async def test_what_used_nothing_cost_nothing(address: str) -> None:
    refused = record(
        error="invalid_request", status=400, cost=None, input_tokens=None, output_tokens=None
    )
    storage = await filled(address, [refused])
    [point] = (await overview(storage, "1h", NOON))["points"]
    await storage.stop()
    assert (point["cost"], point["input_tokens"]) == (0, 0)
