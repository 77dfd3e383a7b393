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
    assert cooldown.until <= 2
    cooldown.failed(3, RULE)
    assert cooldown.until == 18
    assert not cooldown.admits(17.9)
    assert cooldown.until > 17.9
    assert cooldown.until <= 18


@pytest.mark.parametrize(("last", "cools"), [(30, True), (30.1, False)])
def test_failures_from_long_ago_do_not_count(last: float, cools: bool) -> None:
    cooldown = failing(0, 10, last)
    assert (last < cooldown.until) is cools


def test_a_request_that_goes_well_ends_the_row() -> None:
    cooldown = failing(1, 2)
    cooldown.went_well(2.5)
    cooldown.failed(3, RULE)
    assert cooldown.admits(3)
    assert cooldown.recent_failures(3, RULE) == 1


def test_one_from_before_the_last_failure_says_nothing_of_now() -> None:
    cooldown = failing(1, 2, 3)
    cooldown.went_well(begun=2.9)
    assert cooldown.until > 4
    cooldown.went_well(begun=3)
    assert cooldown.admits(4)


def test_some_failures_cool_at_once() -> None:
    cooldown = Cooldown()
    cooldown.failed(1, RULE, at_once=True)
    assert cooldown.until == 16


@pytest.mark.parametrize(("said", "until"), [(4.0, 5.0), (0.0, 0.0), (1e9, 1 + MAX_RETRY_AFTER)])
def test_the_vendor_says_how_long_within_bounds(said: float, until: float) -> None:
    cooldown = Cooldown()
    cooldown.failed(1, RULE, retry_after=said)
    assert cooldown.until == until


@pytest.mark.parametrize("said", [None, 0.0])
def test_who_wants_to_be_asked_at_once_cools_by_the_rule(said: float | None) -> None:
    """As it was found: of 100 requests each of which failed with `Retry-After: 0` it was asked 50
    times."""
    cooldown, asked = Cooldown(), 0
    for number in range(100):
        now = 1 + number * 0.01
        if cooldown.admits(now):
            asked += 1
            cooldown.failed(now, RULE, retry_after=said, probe=cooldown.begin(now, RULE))
    assert asked == RULE.failures
    assert cooldown.until == 1.02 + RULE.seconds


def test_a_vendor_whose_word_did_not_hold_cools_by_the_rule() -> None:
    cooldown, asked = Cooldown(), 0
    for number in range(100):
        now = 1 + number * 0.1
        if cooldown.admits(now):
            asked += 1
            cooldown.failed(now, RULE, retry_after=0.05, probe=cooldown.begin(now, RULE))
    assert asked == 2


def test_a_row_of_failures_at_once_is_over_when_the_vendor_says() -> None:
    cooldown = Cooldown()
    for _ in range(10):
        cooldown.failed(1, RULE, retry_after=2)
    assert cooldown.until == 3


def test_a_shorter_time_does_not_end_a_longer_one() -> None:
    cooldown = failing(1, 1, 1)
    cooldown.failed(2, RULE, retry_after=1)
    assert cooldown.until == 16


def test_one_request_probes_when_it_has_cooled() -> None:
    cooldown = failing(1, 1, 1)
    assert not cooldown.begin(15, RULE)  # who goes there while it cools is no probe
    assert cooldown.admits(16)
    assert cooldown.begin(16, RULE)
    assert not cooldown.admits(16)
    assert not cooldown.begin(16, RULE)


def test_the_probe_decides() -> None:
    well, ill, unknown = failing(1, 1, 1), failing(1, 1, 1), failing(1, 1, 1)
    probes = [each.begin(16, RULE) for each in (well, ill, unknown)]
    assert all(probes)
    for cooldown, probe in zip((well, ill, unknown), probes, strict=True):
        assert probe is not None
        if cooldown is well:
            cooldown.answers(probe)
        elif cooldown is ill:
            cooldown.failed(17, RULE, probe=probe)
        cooldown.end(probe)
    assert well.admits(16)
    assert not well.begin(16, RULE)
    assert ill.until == 32  # one failure is enough
    assert ill.begin(32, RULE)
    assert unknown.begin(16, RULE)


def test_a_probe_counts_no_more_once_another_has_shown_how_it_is() -> None:
    cooldown = failing(1, 1, 1)
    late = cooldown.begin(16, RULE)
    assert late is not None
    cooldown.failed(17, RULE, at_once=True)
    cooldown.answers(late)
    assert cooldown.until > 18
    probe = cooldown.begin(32, RULE)
    assert probe is not None
    cooldown.end(late)
    assert not cooldown.admits(33)
    cooldown.failed(34, CooldownRule(failures=9), probe=late)  # one failure like any other
    assert cooldown.until <= 34
    cooldown.answers(probe)
    assert cooldown.admits(34)


def test_a_probe_that_takes_long_lapses() -> None:
    cooldown = failing(1, 1, 1)
    assert cooldown.begin(16, RULE)
    assert not cooldown.admits(30.9)
    assert cooldown.admits(31)
    assert cooldown.begin(31, RULE)
    assert not cooldown.admits(31)


def test_one_that_is_drained_admits_nobody_until_it_is_opened() -> None:
    cooldown = failing(1, 2, 3)
    cooldown.drain()
    cooldown.went_well(begun=4)
    assert cooldown.until == 0
    assert not cooldown.admits(1e9)
    assert cooldown.begin(1e9, RULE) is None
    cooldown.open()
    assert cooldown.admits(5)


def test_to_open_one_that_cools_forgets_that_it_failed() -> None:
    cooldown = failing(1, 2, 3)
    cooldown.open()
    assert cooldown.admits(3)
    cooldown.failed(4, RULE)
    assert cooldown.admits(4)
