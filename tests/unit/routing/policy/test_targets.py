"""What is known of targets, and what stays of it when a distribution is replaced by another."""

from __future__ import annotations

from llama_compat.distribution import ProviderSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Reply
from llama_compat.types import Usage
from routing.policy.attempts import Attempt, Attempts, Outcome, Why
from routing.policy.cooldown import CooldownRule
from routing.policy.targets import States, TargetSnapshot, header_text
from tests.unit.routing.policy.models import NOW, target

RULE = CooldownRule(failures=2, within=30, seconds=15)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def settings(name: str, **members: object) -> ProviderSettings:
    return ProviderSettings.model_validate({"id": name, "type": "local::test", **members})


def test_a_provider_that_stays_as_it_is_keeps_its_counters() -> None:
    before = States([settings("same"), settings("changed"), settings("gone")])
    for name in ("same", "changed", "gone"):
        Attempt(before.provider(name).target("m"))
    after = States(
        [settings("same"), settings("changed", config={"base_url": "x"}), settings("new")], before
    )
    assert after.provider("same") is before.provider("same")
    assert [(each.id, each.in_flight) for each in after.snapshots(NOW)] == [("same/m", 1)]
    assert after.provider("changed").target("m").in_flight == 0
    assert [each.id for each in after] == ["same/m", "changed/m"]


def test_a_limit_belongs_to_the_settings_too() -> None:
    before = States([settings("p", max_concurrent=2)])
    same = States([settings("p", max_concurrent=2)], before)
    other = States([settings("p", max_concurrent=3)], before)
    assert same.provider("p").gate is before.provider("p").gate is not None
    assert other.provider("p").gate is not before.provider("p").gate
    assert States([settings("p")], before).provider("p").gate is None


def test_a_snapshot_says_how_a_target_is() -> None:
    state, clock = target("a").state, Clock()
    attempt = Attempt(state, stream=True, rule=RULE, clock=clock)
    clock.now += 2
    attempt.has_content()
    whole = Attempt(state, rule=RULE, clock=clock)
    clock.now += 3
    whole.has_content()
    for _ in range(2):
        Attempt(state, rule=RULE, clock=clock).fail(APIError(500, "no"))
    assert state.snapshot(clock.now + 5) == TargetSnapshot(
        id="a/m",
        provider="a",
        model="m",
        in_flight=2,
        in_flight_elsewhere=0,
        attempts=4,
        errors=2,
        recent_failures=2,
        last_error=APIError(500, "").error_class,
        cooling_seconds=10,
        first_content_seconds=2,
        whole_reply_seconds=3,
        waiting=0,
    )
    assert state.snapshot(clock.now + 50).cooling_seconds == 0


def test_an_attempt_is_over_once() -> None:
    state, clock = target("a").state, Clock()
    attempt = Attempt(state, Why.hedge, clock=clock)
    assert (attempt.why, attempt.outcome, attempt.begun) == ("hedge", Outcome.running, NOW)
    clock.now += 1
    attempt.fail(APIError(504, "too slow"))
    clock.now += 1
    attempt.cancel()
    attempt.fail(APIError(500, "again"))
    attempt.finish(Reply(b"x"))
    attempt.lose(Reply(b"x"))
    assert (attempt.outcome, attempt.ended, attempt.error) == (Outcome.failed, NOW + 1, "too slow")
    assert attempt.error_class == "timeout"
    assert (state.in_flight, state.attempts, state.errors) == (0, 1, 1)


def test_only_what_is_a_targets_fault_is_held_against_it() -> None:
    state = target("a").state
    for error in (APIError(400, "bad"), APIError(404, "none"), APIError(418, "tea")):
        Attempt(state, rule=RULE).fail(error)
    assert (state.in_flight, state.errors, state.cooldown.until) == (0, 0, 0)
    Attempt(state, rule=RULE).fail(APIError(502, "no", code="upstream_authentication"))
    assert state.cooldown.until > 0


def test_the_vendor_says_how_long_it_cools() -> None:
    state, clock = target("a").state, Clock()
    failure = APIError(429, "slow", headers={"retry-after": "7"})
    Attempt(state, rule=RULE, clock=clock).fail(failure)
    assert state.cooldown.until == NOW + 7
    other = target("b").state
    Attempt(other, rule=RULE, clock=clock).fail(APIError(504, "slow", headers={"retry-after": "7"}))
    assert other.cooldown.until == 0  # a proxy's timeout says nothing of when to come back


def test_one_probe_at_a_time_shows_how_a_target_is() -> None:
    state, clock = target("a").state, Clock()
    for _ in range(2):
        Attempt(state, rule=RULE, clock=clock).fail(APIError(500, "no"))
    clock.now += 15
    probe = Attempt(state, rule=RULE, clock=clock)
    assert not state.cooldown.admits(clock.now)
    probe.cancel()
    assert state.cooldown.admits(clock.now)
    probe = Attempt(state, rule=RULE, clock=clock)
    probe.has_content()
    assert state.cooldown.admits(clock.now)
    probe.finish(Reply(b"x"))
    assert state.cooldown.until == 0
    assert state.failures_in_a_row == 0


def test_what_they_cost_together() -> None:
    attempts = Attempts()
    assert attempts.usage is None
    assert attempts.last is None
    assert list(attempts.answer_headers()) == []
    for used in (None, Usage(1, 2), Usage(10, 20, 3)):
        attempt = Attempt(target("a").state)
        attempt.finish(Reply(b"x", read_usage=lambda used=used: used))  # type: ignore[misc]
        attempts.made.append(attempt)
    assert attempts.usage == Usage(11, 22, 3)


def test_names_fit_into_a_header() -> None:
    assert header_text("größe 100%\n") == "gr%C3%B6%C3%9Fe 100%25%0A"
    assert header_text("meta-llama/Llama-3.2") == "meta-llama/Llama-3.2"
    state = target("a", model="ü").state
    assert state.headers[1] == (b"x-llama-compat-target", b"a/%C3%BC")
