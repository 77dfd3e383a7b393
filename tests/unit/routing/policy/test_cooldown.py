"""Cooldown: when a target is left alone, and how it comes back."""

from __future__ import annotations

import pytest

from routing.policy.cooldown import MAX_RETRY_AFTER, Cooldown, CooldownRule

RULE = CooldownRule(failures=3, within=30, seconds=15)


def failing(*times: float) -> Cooldown:
    cooldown = Cooldown()
    for now in times:
        cooldown.failed(now, RULE)
    return cooldown


def test_it_cools_after_so_many_failures_in_a_row_for_so_long() -> None:
    cooldown = failing(1, 2)
    assert cooldown.admits(2)
    assert not cooldown.is_cooling(2)
    cooldown.failed(3, RULE)
    assert cooldown.until == 18
    assert not cooldown.admits(17.9)
    assert cooldown.is_cooling(17.9)
    assert not cooldown.is_cooling(18)


@pytest.mark.parametrize(("last", "cools"), [(30, True), (30.1, False)])
def test_failures_from_long_ago_do_not_count(last: float, cools: bool) -> None:
    cooldown = failing(0, 10, last)
    assert cooldown.is_cooling(last) is cools


def test_a_request_that_goes_well_ends_the_row() -> None:
    cooldown = failing(1, 2)
    cooldown.went_well(2.5)
    cooldown.failed(3, RULE)
    assert cooldown.admits(3)
    assert cooldown.recent_failures(3, RULE) == 1


def test_one_from_before_the_last_failure_says_nothing_of_now() -> None:
    cooldown = failing(1, 2, 3)
    cooldown.went_well(begun=2.9)
    assert cooldown.is_cooling(4)
    cooldown.went_well(begun=3)
    assert cooldown.admits(4)


def test_some_failures_cool_at_once() -> None:
    cooldown = Cooldown()
    cooldown.failed(1, RULE, at_once=True)
    assert cooldown.until == 16


@pytest.mark.parametrize(("said", "until"), [(4.0, 5.0), (0.0, 1.0), (1e9, 1 + MAX_RETRY_AFTER)])
def test_the_vendor_says_how_long_within_bounds(said: float, until: float) -> None:
    cooldown = Cooldown()
    cooldown.failed(1, RULE, retry_after=said)
    assert cooldown.until == until


def test_a_shorter_time_does_not_end_a_longer_one() -> None:
    cooldown = failing(1, 1, 1)
    cooldown.failed(2, RULE, retry_after=1)
    assert cooldown.until == 16


def test_one_request_probes_when_it_has_cooled() -> None:
    cooldown = failing(1, 1, 1)
    assert not cooldown.begin(15)  # while it cools, whoever goes there all the same is no probe
    assert cooldown.admits(16)
    assert cooldown.begin(16)
    assert not cooldown.admits(16)
    assert not cooldown.begin(16)


def test_the_probe_decides() -> None:
    well, ill, unknown = failing(1, 1, 1), failing(1, 1, 1), failing(1, 1, 1)
    assert well.begin(16)
    assert ill.begin(16)
    assert unknown.begin(16)
    well.answers(probe=True)
    assert well.admits(16)
    assert not well.begin(16)
    ill.failed(17, RULE, probe=True)
    assert ill.until == 32  # one failure is enough
    assert ill.begin(32)
    unknown.release()
    assert unknown.begin(16)


def test_who_answers_without_probing_ends_no_cooling() -> None:
    cooldown = failing(1, 1, 1)
    cooldown.answers()
    assert cooldown.is_cooling(2)
