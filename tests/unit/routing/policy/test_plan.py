"""Plans: every class of error under every policy, and what holds whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.distribution.routing import RoutingSettings
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from llama_compat.exchange import Reply
from routing.policy.attempts import Attempt, Why
from routing.policy.gate import ProviderBusy
from routing.policy.group import Targets
from routing.policy.plan import Plan, Policy, Step
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted
from tests.examples import examples
from tests.unit.routing.policy.models import ERRORS, NOW, error_of, policy, target

C = ErrorClass

STREAM = Wanted(stream=True)


def plan_of(targets: list[LiveTarget], wanted: Wanted = STREAM, **settings: Any) -> Plan:
    return Plan(policy(**settings), Targets(targets), wanted, NOW)


def shown(step: Step | None) -> str:
    return "tell" if step is None else f"{step.why} {step.target.state.provider.id}"


def walk(plan: Plan, *kinds: ErrorClass, now: float = NOW) -> list[str]:
    """What the plan does when its attempts fail in these ways, one after the other."""
    step: Step | None = plan.first(now)
    steps = [shown(step)]
    for kind in kinds:
        assert step is not None
        step = plan.after(step, error_of(kind), now)
        steps.append(shown(step))
    return steps


# A table: class x what there is -------------------------------------------------------------------

EVERYTHING = [kind.value for kind in ERRORS if kind not in (C.bad_request, C.other)]

AFTER_A_FAILURE = [
    # class, an equal beside it, one of a later priority, nobody else, listed nowhere
    (C.rate_limit, "fallback b", "retry a", "retry a", "retry a"),
    (C.overloaded, "fallback b", "retry a", "retry a", "retry a"),
    (C.connection, "fallback b", "retry a", "retry a", "retry a"),
    (C.server_error, "fallback b", "retry a", "retry a", "retry a"),
    (C.timeout, "fallback b", "fallback b", "tell", "tell"),
    (C.authentication, "fallback b", "fallback b", "tell", "tell"),
    (C.quota, "fallback b", "fallback b", "tell", "tell"),
    (C.context_length, "fallback b", "fallback b", "tell", "tell"),
    (C.content_filter, "fallback b", "fallback b", "tell", "tell"),
    (C.not_found, "fallback b", "fallback b", "tell", "tell"),
    (C.bad_request, "tell", "tell", "tell", "tell"),
    (C.other, "tell", "tell", "tell", "tell"),
    (C.unsupported, "fallback b", "fallback b", "tell", "fallback b"),
]


def test_the_table_has_every_class() -> None:
    assert {row[0] for row in AFTER_A_FAILURE} == set(ErrorClass)


@pytest.mark.parametrize("row", AFTER_A_FAILURE, ids=lambda row: row[0].value)
def test_what_follows_a_failure(row: tuple[ErrorClass, str, str, str, str]) -> None:
    kind, equal, later, alone, unlisted = row
    a, b, c = target("a"), target("b"), target("c", priority=1)
    all_listed = {"fall_back_on": EVERYTHING}
    assert walk(plan_of([a, b], **all_listed), kind)[1] == equal
    later_b = target("b", priority=1)
    assert walk(plan_of([a, later_b], **all_listed), kind)[1] == later
    assert walk(plan_of([a], **all_listed), kind)[1] == alone
    assert walk(plan_of([a, b], fall_back_on=[]), kind)[1] == unlisted
    no_retries = {"retries": {"same_target": 0}, "fall_back_on": []}
    expected = "fallback b" if kind is C.unsupported else "tell"
    assert walk(plan_of([a, b], **no_retries), kind)[1] == expected
    assert walk(plan_of([a, b], retries={"attempts": 1, "same_target": 0}), kind)[1] == (
        "fallback b" if kind is C.unsupported else "tell"
    )
    assert c.priority == 1


def test_the_classes_that_fall_back_by_default() -> None:
    default = set(RoutingSettings().fall_back_on)
    assert default == set(EVERYTHING) - {"content_filter", "not_found"}


# Retry --------------------------------------------------------------------------------------------


def test_a_retry_waits_and_a_fallback_does_not() -> None:
    a, b = target("a"), target("b", priority=1)
    plan = plan_of([a, b])
    first = plan.first(NOW)
    retry = plan.after(first, error_of(C.server_error), NOW)
    assert retry == Step(a, Why.retry, 0.125)
    fallback = plan.after(retry, error_of(C.server_error), NOW)
    assert fallback == Step(b, Why.fallback, 0.0)


def test_a_retry_waits_as_long_as_the_vendor_says_if_that_is_not_too_long() -> None:
    for said, wait in (("3", 3.0), ("8", 8.0), ("0", 0.125)):
        plan = plan_of([target("a")])
        step = plan.after(plan.first(NOW), error_of(C.rate_limit, retry_after=said), NOW)
        assert step is not None
        assert step.wait == wait
    plan = plan_of([target("a")])
    assert plan.after(plan.first(NOW), error_of(C.rate_limit, retry_after="8.1"), NOW) is None
    plan = plan_of([target("a")], deadline=3)
    assert plan.after(plan.first(NOW), error_of(C.rate_limit, retry_after="3"), NOW) is None


def test_what_a_class_of_error_does_not_say_is_not_waited_for() -> None:
    """As the cooldown of its target has it: nothing came of a connection, whoever said a time."""
    plan = plan_of([target("a")])
    step = plan.after(plan.first(NOW), error_of(C.connection, retry_after="3"), NOW)
    assert step is not None
    assert (step.why, step.wait) == (Why.retry, 0.125)


def test_retries_are_counted_by_target_and_wait_longer_each_time() -> None:
    plan = plan_of([target("a")], retries={"same_target": 3, "attempts": 9})
    step: Step | None = plan.first(NOW)
    waits = []
    while step is not None:
        waits.append(step.wait)
        step = plan.after(step, error_of(C.overloaded), NOW)
    assert waits == [0, 0.125, 0.25, 0.5]


def test_retries_leave_an_attempt_to_each_target() -> None:
    targets = [target("a"), target("b", priority=1), target("c", priority=2)]
    steps = walk(plan_of(targets, retries={"same_target": 3}), *[C.server_error] * 4)
    assert steps == ["first a", "retry a", "fallback b", "fallback c", "tell"]


def test_a_provider_gets_no_more_retries_than_its_budget() -> None:
    a = target("a")
    followed = []
    for _ in range(30):
        plan = plan_of([a])
        followed.append(shown(plan.after(plan.first(NOW), error_of(C.server_error), NOW)))
    assert followed.count("retry a") == 0.2 * 30
    followed = [walk(plan_of([a], retries={"budget": 0}), C.server_error)[1] for _ in range(3)]
    assert followed == ["tell"] * 3


# Fallback -----------------------------------------------------------------------------------------


def test_priorities_are_gone_through_in_order() -> None:
    targets = [target("c", priority=2), target("b", priority=1), target("a")]
    steps = walk(plan_of(targets), C.timeout, C.authentication, C.timeout)
    assert steps == ["first a", "fallback b", "fallback c", "tell"]


def test_no_target_is_asked_twice_unless_it_is_a_retry() -> None:
    targets = [target(name) for name in "abc"]
    steps = walk(plan_of(targets, retries={"same_target": 0, "attempts": 9}), *[C.overloaded] * 3)
    assert steps == ["first a", "fallback b", "fallback c", "tell"]


def test_nothing_begins_after_the_deadline() -> None:
    plan = plan_of([target("a"), target("b")], deadline=10)
    first = plan.first(NOW)
    assert plan.after(first, error_of(C.timeout), NOW + 10) is None
    assert plan.hedge(NOW + 10) is None
    plan = plan_of([target("a"), target("b")], deadline=10)
    assert plan.after(plan.first(NOW), error_of(C.timeout), NOW + 9.9) is not None


def test_context_length_goes_to_a_target_with_more_room() -> None:
    small, equal, unknown, large = (
        target("small", room=100),
        target("equal", room=100),
        target("unknown", priority=1),
        target("large", room=101, priority=2),
    )
    steps = walk(
        plan_of([small, equal, unknown, large]), C.context_length, C.server_error, C.server_error
    )
    assert steps == ["first small", "fallback unknown", "retry unknown", "fallback large"]
    first = target("first", room=101)
    assert walk(plan_of([first, small]), C.context_length)[1] == "tell"


def test_who_wants_more_tokens_than_a_target_holds_does_not_go_there() -> None:
    small, large = target("small", room=100), target("large", room=200)
    plan = plan_of([small, large], Wanted(max_tokens=101))
    assert walk(plan) == ["first large"]
    with pytest.raises(APIError, match="maximum context length is 200") as told:
        plan_of([small, large], Wanted(max_tokens=201)).first(NOW)
    assert told.value.error_class is C.context_length
    assert walk(plan_of([small, large], Wanted(max_tokens=100))) == ["first small"]


def test_what_means_something_else_elsewhere_stays_with_its_model() -> None:
    a, b = target("a", model="x"), target("b", model="vendor/X")
    c, d = target("c", model="y"), target("d", model="x", priority=1)
    plan = plan_of([c, d, a, b], Wanted(of_one_model="logit_bias"))
    assert walk(plan, C.timeout) == ["first c", "tell"]
    assert plan.passed_over == ["d/x (logit_bias)", "a/x (logit_bias)", "b/vendor/X (logit_bias)"]
    plan = plan_of([a, c, b, d], Wanted(of_one_model="logit_bias"))
    steps = walk(plan, C.timeout, C.timeout, C.timeout)
    assert steps == ["first a", "fallback b", "fallback d", "tell"]
    assert plan.passed_over == ["c/y (logit_bias)"]


def test_a_pinned_request_goes_nowhere_else() -> None:
    targets = [target("a"), target("b")]
    steps = walk(plan_of(targets, Wanted(pinned="b/m")), C.server_error, C.server_error)
    assert steps == ["first b", "retry b", "tell"]


def test_what_a_target_cannot_do_is_no_attempt() -> None:
    targets = [target(name) for name in "abcd"]
    retries = {"attempts": 1, "same_target": 0}
    plan = plan_of(targets, retries=retries)
    assert walk(plan, C.unsupported, C.unsupported, C.timeout)[1:] == [
        "fallback b",
        "fallback c",
        "tell",
    ]
    plan = plan_of(targets[:2], retries=retries)
    walk(plan, C.unsupported, C.unsupported)
    assert plan.told(error_of(C.timeout)).error_class is C.unsupported


def test_the_client_is_told_what_a_target_said_rather_than_that_one_was_not_asked() -> None:
    targets = [target(name) for name in "abc"]
    plan = plan_of(targets)
    walk(plan, C.unsupported, C.overloaded, C.unsupported)
    assert plan.told(error_of(C.timeout)).error_class is C.overloaded
    plan = plan_of(targets)
    walk(plan, C.overloaded, C.timeout)
    assert plan.told(error_of(C.quota)).error_class is C.timeout


# Cooldown -----------------------------------------------------------------------------------------


def cool(cooled: LiveTarget, seconds: float) -> None:
    cooled.state.cooldown.until = NOW + seconds


def test_a_target_that_cools_is_left_out_while_there_is_another() -> None:
    a, b, later = target("a"), target("b"), target("later", priority=1)
    cool(a, 5)
    assert walk(plan_of([a, b, later])) == ["first b"]
    assert walk(plan_of([a, later])) == ["first later"]


def test_if_all_cool_the_one_whose_time_ends_first_is_tried_and_then_the_next() -> None:
    targets = [target("a"), target("b", priority=1), target("c")]
    for each, seconds in zip(targets, (9, 3, 6), strict=True):
        cool(each, seconds)
    steps = walk(plan_of(targets), C.timeout, C.timeout, C.timeout)
    assert steps == ["first b", "fallback c", "fallback a", "tell"]


def test_one_that_has_just_begun_to_cool_is_not_waited_for() -> None:
    a, later = target("a"), target("later", priority=1)
    plan = plan_of([a, later])
    first = plan.first(NOW)
    cool(a, 15)
    assert shown(plan.after(first, error_of(C.server_error), NOW)) == "fallback later"


def test_a_retry_is_better_than_a_target_that_cools() -> None:
    a, b = target("a"), target("b")
    cool(b, 15)
    assert walk(plan_of([a, b]), C.server_error, C.server_error) == [
        "first a",
        "retry a",
        "fallback b",
    ]


# max_concurrent -----------------------------------------------------------------------------------


def test_a_target_with_room_goes_before_one_where_the_request_waits() -> None:
    busy, free = target("busy", max_concurrent=1, max_waiting=5), target("free")
    later = target("later", priority=1)
    gate = busy.state.provider.gate
    assert gate is not None
    assert walk(plan_of([busy, free])) == ["first busy"]
    gate.running = 1
    assert walk(plan_of([busy, free])) == ["first free"]
    assert walk(plan_of([busy, later])) == ["first busy"]  # it waits there


def test_beyond_the_queue_it_is_the_next_target() -> None:
    full, later = target("full", max_concurrent=1), target("later", priority=1)
    cooling = target("cooling", priority=2)
    gate = full.state.provider.gate
    assert gate is not None
    gate.running = 1
    assert walk(plan_of([full, later])) == ["first later"]
    cool(cooling, 5)
    assert walk(plan_of([full, cooling])) == ["first cooling"]
    plan = plan_of([full], retries={"attempts": 3})
    first = plan.first(NOW)
    assert plan.after(first, ProviderBusy("full", 1, 0), NOW) is None
    assert plan.told(error_of(C.timeout)).status == 429


# Hedges -------------------------------------------------------------------------------------------


def test_a_hedge_is_another_target_and_never_a_third() -> None:
    plan = plan_of([target(name) for name in "abc"], hedge_after=1)
    plan.first(NOW)
    assert shown(plan.hedge(NOW)) == "hedge b"
    assert plan.hedge(NOW) is None


@pytest.mark.parametrize("why", ["alone", "cooling", "no room", "no attempts", "no budget"])
def test_where_there_is_no_hedge(why: str) -> None:
    a, b = target("a"), target("b", max_concurrent=1)
    settings: dict[str, Any] = {"hedge_after": 1}
    assert b.state.provider.gate is not None
    match why:
        case "cooling":
            cool(b, 1)
        case "no room":
            b.state.provider.gate.running = 1
        case "no attempts":
            settings["retries"] = {"attempts": 1, "same_target": 0}
    plan = plan_of([a] if why == "alone" else [a, b], **settings)
    if why == "no budget":
        for _ in range(3):
            plan.policy.hedges.retry(NOW)
    plan.first(NOW)
    assert plan.hedge(NOW) is None


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0])
def test_hedges_are_a_share_of_the_models_requests(budget: float) -> None:
    """As it was found: a standby got three of them, whatever the budget, as nobody else asks it."""
    targets = Targets([target("a"), target("b", priority=1)])
    rules = policy(hedge_after=1, retries={"budget": budget})
    hedges = 0
    for _ in range(200):
        plan = Plan(rules, targets, Wanted(), NOW)
        plan.first(NOW)
        hedges += plan.hedge(NOW) is not None
    assert abs(hedges - 200 * budget) <= 1


def test_hedges_do_not_use_up_the_retries_of_whom_they_ask() -> None:
    a, b = target("a"), target("b", priority=1)
    rules = policy(hedge_after=1, retries={"budget": 1})
    for _ in range(50):
        plan = Plan(rules, Targets([a, b]), Wanted(), NOW)
        plan.first(NOW)
        assert shown(plan.hedge(NOW)) == "hedge b"
    plan = plan_of([b], retries={"budget": 0.1})
    assert shown(plan.after(plan.first(NOW), error_of(C.server_error), NOW)) == "retry b"


# Patience -----------------------------------------------------------------------------------------


def test_a_stream_gets_its_share_of_the_time_that_is_left() -> None:
    plan = plan_of([target("a"), target("b"), target("c")], deadline=60)
    first = plan.first(NOW)
    assert plan.patience(NOW) == 20
    second = plan.after(first, error_of(C.timeout), NOW + 20)
    assert second is not None
    assert plan.patience(NOW + 20) == 20
    plan.after(second, error_of(C.timeout), NOW + 30)
    assert plan.patience(NOW + 30) == 30


def test_time_is_left_for_no_more_attempts_than_there_may_be() -> None:
    targets = [target(name) for name in "abcd"]
    plan = plan_of(targets, deadline=60, retries={"attempts": 2})
    plan.first(NOW)
    assert plan.patience(NOW) == 30
    plan = plan_of(targets, deadline=60, fall_back_on=["connection"])
    plan.first(NOW)
    assert plan.patience(NOW) == 60


def test_a_whole_reply_and_one_without_a_deadline_take_their_time() -> None:
    assert plan_of([target("a")], Wanted(stream=False)).patience(NOW) is None
    assert plan_of([target("a")], deadline=None).patience(NOW) is None


@pytest.mark.parametrize("stream", [True, False])
def test_waiting_for_room_gets_its_share_of_the_time_that_is_left(stream: bool) -> None:
    targets = [target("a"), target("b"), target("c", priority=1)]
    plan = plan_of(targets, Wanted(stream=stream), deadline=60)
    first = plan.first(NOW)
    assert plan.patience_at_gate(NOW) == 20
    second = plan.after(first, ProviderBusy("a", 1, 1), NOW + 20)
    assert second is not None
    assert plan.patience_at_gate(NOW + 20) == 20
    plan.after(second, ProviderBusy("b", 1, 1), NOW + 40)
    assert plan.patience_at_gate(NOW + 40) == 20  # nobody else is left
    assert plan.patience_at_gate(NOW + 61) == 0
    assert plan_of([target("a")], deadline=None).patience_at_gate(NOW) is None


def test_who_waits_in_vain_has_made_no_attempt() -> None:
    plan = plan_of([target("a"), target("b")], deadline=60, retries={"attempts": 1})
    plan.first(NOW)
    assert plan.patience(NOW) == 60  # an attempt here is the only one
    assert plan.patience_at_gate(NOW) == 30  # and if it is not made, it is made elsewhere


# Whatever happens ---------------------------------------------------------------------------------

outcomes = st.lists(st.sampled_from([*ErrorClass, None]), min_size=1, max_size=20)


@st.composite
def models(draw: st.DrawFn) -> list[LiveTarget]:
    return [
        target(f"t{place}", priority=draw(st.integers(0, 2)), weight=draw(st.integers(1, 3)))
        for place in range(draw(st.integers(1, 4)))
    ]


@given(
    models(),
    st.sampled_from(["weighted", "least_busy", "fastest", "sticky", "round_robin"]),
    st.integers(1, 6),
    st.integers(0, 3),
    st.lists(outcomes, min_size=1, max_size=12),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(150), deadline=None)
def test_attempts_are_bounded_and_nothing_stays_in_flight(
    targets: list[LiveTarget],
    balance: str,
    attempts: int,
    same_target: int,
    requests: list[list[ErrorClass | None]],
    seed: int,
) -> None:
    rules = policy(
        random.Random(seed).random,
        balance=balance,
        retries={"attempts": attempts, "same_target": same_target},
        fall_back_on=EVERYTHING,
    )
    now = NOW
    for request in requests:
        made = _run(rules, targets, iter(request), now)
        sent = [each for each in made if each.outcome != "skipped"]
        assert len(sent) <= attempts
        by_target = [each.target.id for each in sent]
        assert all(by_target.count(name) <= 1 + same_target for name in by_target)
        answered = [each for each in made if each.outcome == "answered"]
        assert answered == made[-1:] or not answered  # nothing is sent after an answer
        now += 1
    assert all(each.state.in_flight == 0 for each in targets)


def _run(rules: Policy, targets: list[LiveTarget], said: Any, now: float) -> list[Attempt]:
    plan = Plan(rules, Targets(targets), Wanted(stream=True, key="k"), now)
    made: list[Attempt] = []
    step: Step | None = plan.first(now)
    while step is not None:
        now += step.wait
        attempt = Attempt(step.target.state, step.why, rule=rules.rule, clock=stopped_at(now))
        made.append(attempt)
        kind = next(said, None)
        if kind is None:
            attempt.has_content()
            attempt.finish(Reply(b"{}"))
            break
        failure = error_of(kind)
        attempt.fail(failure)
        step = plan.after(step, failure, now)
    return made


def stopped_at(now: float) -> Callable[[], float]:
    return lambda: now


@given(models(), st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_a_request_is_answered_while_any_target_answers(
    targets: list[LiveTarget], seed: int
) -> None:
    """All but one are dead, one request after the other, however they are chosen."""
    well = targets[seed % len(targets)]
    rules = policy(random.Random(seed).random)
    now = NOW
    for _ in range(12):
        plan = Plan(rules, Targets(targets), Wanted(stream=True), now)
        step: Step | None = plan.first(now)
        while True:
            assert step is not None
            now += step.wait
            attempt = Attempt(step.target.state, step.why, rule=rules.rule, clock=stopped_at(now))
            if step.target is well:
                attempt.has_content()
                attempt.finish(Reply(b"{}"))
                break
            failure = error_of(C.connection)
            attempt.fail(failure)
            step = plan.after(step, failure, now)
        now += 0.5


def test_no_target_starves_once_it_has_come_back() -> None:
    """Whatever cooled, sooner or later it gets requests again, under every balance."""
    for balance in ("weighted", "least_busy", "fastest", "sticky", "round_robin"):
        targets = [target("a"), target("b"), target("c")]
        rules = policy(random.Random(5).random, balance=balance)
        cool(targets[0], 15)
        asked = set()
        for number in range(300):
            now = NOW + number
            wanted = Wanted(stream=True, key=f"k{number}")
            step = Plan(rules, Targets(targets), wanted, now).first(now)
            attempt = Attempt(step.target.state, rule=rules.rule, clock=stopped_at(now))
            attempt.has_content()
            attempt.finish(Reply(b"{}"))
            if number < 15:
                assert step.target is not targets[0]
            asked.add(step.target.id)
        assert asked == {"a/m", "b/m", "c/m"}
