"""Attempts as they are really made: one after the other, side by side, cancelled and counted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.errors import APIError, StaleConnection, UnsupportedHere
from llama_compat.exchange import Reply, Target
from llama_compat.types import Usage
from providers.base import Provider
from routing.policy.attempts import Attempts, Outcome
from routing.policy.dispatch import dispatch
from routing.policy.group import Targets
from tests.examples import examples
from tests.unit.calls import call_of
from tests.unit.routing.policy.models import policy, target

USAGE = Usage(3, 4)


async def answers(name: str) -> Reply:
    return Reply(name.encode(), read_usage=lambda: USAGE)


async def streams(name: str) -> Reply:
    async def body() -> AsyncGenerator[bytes, None]:
        yield b"more"

    return Reply(body(), name.encode(), read_usage=lambda: USAGE)


async def is_down(name: str) -> Reply:
    raise APIError(502, f"{name} is down", code="upstream_connection_failed")


async def is_overloaded(name: str) -> Reply:
    raise APIError(529, f"{name} has too much to do")


async def refuses(name: str) -> Reply:
    raise APIError(400, "no such thing", param="x")


async def cannot(name: str) -> Reply:
    raise UnsupportedHere(400, "can't", param="seed", code="unsupported_parameter")


async def hangs(name: str) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def has_a_bug(name: str) -> Reply:
    raise ZeroDivisionError


Behaviour = Callable[[str], Awaitable[Reply]]


class Model:
    """A model whose targets behave as they are told to; they are asked in the order of the names.

    Attributes:
        asked: the targets, in the order in which they were asked.
        attempts: of the last request.
    """

    def __init__(self, *behaviours: Behaviour, **settings: Any) -> None:
        self.behaviours = dict(zip("abcdefgh", behaviours, strict=False))
        self.targets = Targets(
            target(name, priority=place) for place, name in enumerate(self.behaviours)
        )
        settings = {"retries": {"same_target": 0}, **settings}
        self.policy = policy(**settings)
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.attempts = Attempts()
        self._was_asked = asyncio.Condition()

    async def wait_until_asked(self, times: int) -> None:
        async with self._was_asked:
            await self._was_asked.wait_for(lambda: len(self.asked) >= times)

    async def _ask(self, provider: Provider, target: Target) -> Reply:
        async with self._was_asked:
            self.asked.append(provider.id)
            self._was_asked.notify_all()
        try:
            return await self.behaviours[provider.id](provider.id)
        except asyncio.CancelledError:
            self.cancelled.append(provider.id)
            raise

    async def reply(self, *, stream: bool = False, headers: Any = (), **body: Any) -> Reply:
        self.attempts = Attempts(headers)
        call = call_of({"messages": [], "stream": stream, **body}, CHAT)
        return await dispatch(self.targets, self.policy, call, self._ask, self.attempts)

    @property
    def in_flight(self) -> int:
        return sum(each.state.in_flight for each in self.targets)

    @property
    def outcomes(self) -> list[str]:
        return [each.outcome.value for each in self.attempts.made]

    def headers(self) -> dict[str, str]:
        return {
            name.decode().removeprefix("x-llama-compat-"): value.decode()
            for name, value in self.attempts.answer_headers()
        }


async def test_the_next_answers_for_one_that_failed_and_the_client_sees_who() -> None:
    model = Model(is_down, is_overloaded, answers)
    reply = await model.reply()
    assert reply.body == b"c"
    assert model.asked == ["a", "b", "c"]
    assert model.headers() == {"provider": "c", "target": "c/m", "attempts": "3"}
    assert model.in_flight == 1
    await reply.aclose()
    assert model.outcomes == ["failed", "failed", "answered"]
    assert model.in_flight == 0
    assert model.attempts.in_words() == "a/m (connection), b/m (overloaded), c/m"
    assert model.attempts.usage == USAGE


async def test_the_last_failure_is_told() -> None:
    model = Model(is_down, is_overloaded)
    with pytest.raises(APIError, match="b has too much to do"):
        await model.reply()
    assert model.headers()["attempts"] == "2"
    assert model.headers()["target"] == "b/m"
    assert model.in_flight == 0


async def test_a_clients_mistake_is_asked_of_nobody_else() -> None:
    model = Model(refuses, answers)
    with pytest.raises(APIError, match="no such thing"):
        await model.reply()
    assert model.asked == ["a"]
    assert model.targets[0].state.errors == 0


async def test_what_one_cannot_honour_goes_to_the_next_and_is_named() -> None:
    model = Model(cannot, answers)
    reply = await model.reply()
    assert model.headers() == {
        "provider": "b",
        "target": "b/m",
        "attempts": "1",
        "skipped": "a/m (seed)",
    }
    assert model.targets[0].state.snapshot(0).attempts == 0
    await reply.aclose()
    model = Model(cannot, cannot)
    with pytest.raises(APIError, match="can't"):
        await model.reply()


async def test_a_limit_that_refuses_here_is_no_fault_of_the_target() -> None:
    async def is_limited(name: str) -> Reply:
        error = APIError(429, "Rate limit reached", code="rate_limit_exceeded")
        error.headers = {"retry-after": "60"}
        error.was_sent = False
        raise error

    model = Model(is_limited, answers, cooldown={"failures": 1})
    for _ in range(3):
        await (await model.reply()).aclose()
    assert model.asked == ["a", "b"] * 3
    assert model.headers()["skipped"] == "a/m (rate_limit_exceeded)"
    assert model.headers()["attempts"] == "1"
    state = model.targets[0].state.snapshot(0)
    assert (state.attempts, state.errors, state.cooling_seconds) == (0, 0, 0)


async def test_what_is_of_one_model_does_not_go_to_another_and_that_is_said() -> None:
    model = Model(is_down, answers)
    other = target("other", model="another", priority=9)
    attempts = Attempts()
    call = call_of({"input": "x"}, EMBEDDINGS)
    reply = await dispatch(
        Targets([*model.targets, other]), model.policy, call, model._ask, attempts
    )
    assert reply.body == b"b"
    skipped = dict(attempts.answer_headers())[b"x-llama-compat-skipped"]
    assert skipped == b"other/another (embeddings)"


async def test_a_bug_is_counted_and_not_hidden() -> None:
    model = Model(has_a_bug, answers)
    with pytest.raises(ZeroDivisionError):
        await model.reply()
    assert model.in_flight == 0
    assert model.outcomes == ["failed"]


async def test_one_target_without_policies_is_asked_as_it_is() -> None:
    one = target("one")
    attempts = Attempts()
    model = Model(is_down)
    model.behaviours["one"] = answers
    reply = await dispatch(Targets([one]), None, call_of({}), model._ask, attempts)
    assert (reply.body, one.state.in_flight) == (b"one", 1)
    await reply.aclose()
    assert one.state.in_flight == 0
    model.behaviours["one"] = is_down
    for _ in range(5):
        with pytest.raises(APIError):
            await dispatch(Targets([one]), None, call_of({}), model._ask, attempts)
    snapshot = one.state.snapshot(0)
    assert (snapshot.attempts, snapshot.errors, snapshot.cooling_seconds) == (6, 5, 0)
    assert snapshot.recent_failures == 5
    assert snapshot.last_error == "connection"
    pinned = Attempts([(b"x-llama-compat-target", b"one/m")])
    with pytest.raises(APIError, match="lets nobody choose"):
        await dispatch(Targets([one]), None, call_of({}), model._ask, pinned)


async def test_failures_cool_a_target_and_the_others_get_its_requests() -> None:
    model = Model(is_down, answers)
    for _ in range(5):
        await (await model.reply()).aclose()
    assert model.asked == ["a", "b"] * 3 + ["b"] * 2


async def test_a_pinned_target_is_asked_alone() -> None:
    model = Model(is_down, answers, pin=True)
    with pytest.raises(APIError, match="a is down"):
        await model.reply(headers=[(b"x-llama-compat-target", b"a/m")])
    assert model.asked == ["a"]


# Kept connections ---------------------------------------------------------------------------------


class Stale:
    """Its connection was closed under the first requests; then it answers."""

    def __init__(self, times: int) -> None:
        self._left = times

    async def __call__(self, name: str) -> Reply:
        self._left -= 1
        if self._left >= 0:
            raise StaleConnection(name, "closed")
        return await answers(name)


async def only(model: Model) -> Reply:
    """The reply of a model of one target without policies."""
    model.attempts = Attempts()
    targets = Targets([model.targets[0]])
    return await dispatch(targets, None, call_of({}), model._ask, model.attempts)


@pytest.mark.parametrize("has_policy", [False, True])
async def test_a_request_on_a_connection_that_was_closed_is_an_attempt(has_policy: bool) -> None:
    backoff = {"first": 60, "most": 60}
    model = Model(Stale(1), cooldown={"failures": 1}, retries={"backoff": backoff})
    reply = await (model.reply() if has_policy else only(model))
    await reply.aclose()
    assert model.asked == ["a", "a"]
    assert model.outcomes == ["failed", "answered"]
    assert [each.why for each in model.attempts.made] == ["first", "retry"]
    assert model.headers()["attempts"] == "2"
    assert model.attempts.in_words() == "a/m (connection), a/m"
    failed, answered = model.attempts.made
    assert answered.begun - failed.ended < 30  # nobody has to recover
    # It says nothing of how the target is.
    state = model.targets[0].state.snapshot(0)
    assert (state.attempts, state.errors, state.cooling_seconds) == (2, 0, 0)
    assert model.in_flight == 0


async def test_it_is_sent_no_third_time_and_not_without_a_budget() -> None:
    model = Model(Stale(2))
    with pytest.raises(StaleConnection):
        await only(model)
    assert model.asked == ["a", "a"]
    model = Model(Stale(9))
    for _ in range(6):
        with pytest.raises(StaleConnection):
            await only(model)
    assert len(model.asked) == 6 + 3
    for settings_of in ({"same_target": 0}, {"attempts": 1, "same_target": 0}, {"budget": 0}):
        model = Model(Stale(1), retries=settings_of)
        with pytest.raises(StaleConnection):
            await model.reply()
        assert model.asked == ["a"]


async def test_without_policies_nothing_else_is_sent_again() -> None:
    for behaviour in (is_down, is_overloaded):
        model = Model(behaviour)
        with pytest.raises(APIError):
            await only(model)
        assert model.asked == ["a"]


# Ends ---------------------------------------------------------------------------------------------


async def test_a_stream_is_in_flight_until_it_is_closed_once() -> None:
    model = Model(streams)
    reply = await model.reply(stream=True)
    assert model.in_flight == 1
    assert not isinstance(reply.body, bytes)
    async for _ in reply.body:
        pass
    reply.read_to_end = True
    assert model.in_flight == 1
    await reply.aclose()
    await reply.aclose()
    assert (model.in_flight, model.outcomes) == (0, ["answered"])


async def test_a_stream_that_the_client_leaves_is_cancelled_and_blames_nobody() -> None:
    model = Model(streams)
    reply = await model.reply(stream=True)
    await reply.aclose()
    assert (model.in_flight, model.outcomes) == (0, ["cancelled"])
    assert model.targets[0].state.errors == 0


async def test_a_stream_that_breaks_off_blames_its_target_and_is_not_sent_again() -> None:
    model = Model(streams, answers, cooldown={"failures": 1})
    reply = await model.reply(stream=True)
    reply.error = APIError(502, "gone", code="upstream_connection_lost")
    await reply.aclose()
    assert model.outcomes == ["failed"]
    assert model.asked == ["a"]
    assert model.targets[0].state.errors == 1
    assert (await model.reply()).body == b"b"


@pytest.mark.parametrize("hedged", [False, True])
async def test_a_client_that_leaves_while_nobody_answers_cancels_them_all(hedged: bool) -> None:
    model = Model(hangs, hangs, hangs, hedge_after=0.001 if hedged else None)
    request = asyncio.create_task(model.reply())
    await model.wait_until_asked(1 + hedged)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert model.cancelled == ["a", "b"][: 1 + hedged]
    assert (model.in_flight, set(model.outcomes)) == (0, {"cancelled"})


async def test_a_stream_that_hangs_leaves_time_for_the_next() -> None:
    model = Model(hangs, streams, deadline=1)
    reply = await model.reply(stream=True)
    assert model.asked == ["a", "b"]
    assert model.cancelled == ["a"]
    failed = model.attempts.made[0]
    assert failed.error_class == "timeout"
    # Half of what was left of a second when it was asked, which is a little less than half of it.
    said = re.search(r"no content within (\S+) s, its share", failed.error)
    assert said
    assert 0.25 < float(said[1]) <= 0.5
    await reply.aclose()


# Hedges -------------------------------------------------------------------------------------------


async def test_a_hedge_answers_for_one_that_takes_its_time_which_is_cancelled() -> None:
    model = Model(hangs, answers, answers, hedge_after=0.01)
    reply = await model.reply()
    assert reply.body == b"b"
    assert model.asked == ["a", "b"]
    assert model.cancelled == ["a"]
    assert model.headers() == {"provider": "b", "target": "b/m", "attempts": "2"}
    await reply.aclose()
    assert model.outcomes == ["lost", "answered"]
    assert [each.why for each in model.attempts.made] == ["first", "hedge"]
    assert model.in_flight == 0
    assert model.targets[0].state.errors == 0


async def test_who_answers_in_time_is_not_hedged() -> None:
    model = Model(answers, answers, hedge_after=5)
    await (await model.reply()).aclose()
    assert model.asked == ["a"]


async def test_the_first_may_still_win() -> None:
    go_on = asyncio.Event()

    async def takes_its_time(name: str) -> Reply:
        await go_on.wait()
        return await answers(name)

    async def is_asked(name: str) -> Reply:
        go_on.set()
        return await hangs(name)

    model = Model(takes_its_time, is_asked, hedge_after=0.001)
    reply = await model.reply()
    assert reply.body == b"a"
    assert model.cancelled == ["b"]
    await reply.aclose()
    assert model.outcomes == ["answered", "lost"]


async def test_two_that_answer_in_the_same_moment_are_one_answer() -> None:
    together = asyncio.Event()
    made: list[Reply] = []

    async def waits(name: str) -> Reply:
        if len(model.asked) == 2:
            together.set()
        await together.wait()
        made.append(await streams(name))
        return made[-1]

    model = Model(waits, waits, hedge_after=0.001)
    reply = await model.reply(stream=True)
    assert len(made) == 2
    late = next(each for each in made if each is not reply)
    assert not isinstance(late.body, bytes)
    with pytest.raises(StopAsyncIteration):
        await anext(late.body)  # closed
    assert model.in_flight == 1
    reply.read_to_end = True
    await reply.aclose()
    assert sorted(model.outcomes) == ["answered", "lost"]
    assert model.in_flight == 0
    assert model.attempts.usage == Usage(6, 8)  # both were paid


async def test_if_both_fail_the_third_is_asked() -> None:
    go_on = asyncio.Event()

    async def fails_late(name: str) -> Reply:
        await go_on.wait()
        return await is_down(name)

    async def fails_too(name: str) -> Reply:
        go_on.set()
        return await is_overloaded(name)

    model = Model(fails_late, fails_too, answers, hedge_after=0.001)
    reply = await model.reply()
    assert reply.body == b"c"
    assert model.asked == ["a", "b", "c"]
    await reply.aclose()
    assert model.in_flight == 0


async def test_a_clients_mistake_ends_the_other_too() -> None:
    go_on = asyncio.Event()

    async def refuses_late(name: str) -> Reply:
        await go_on.wait()
        return await refuses(name)

    async def is_asked(name: str) -> Reply:
        go_on.set()
        return await hangs(name)

    model = Model(refuses_late, is_asked, answers, hedge_after=0.001)
    with pytest.raises(APIError, match="no such thing"):
        await model.reply()
    assert (model.asked, model.cancelled) == (["a", "b"], ["b"])


# max_concurrent -----------------------------------------------------------------------------------


async def test_a_place_is_held_until_the_reply_is_closed() -> None:
    one = target("one", max_concurrent=1, max_waiting=1)
    model = Model(answers)
    model.behaviours["one"] = streams
    model.targets = Targets([one])
    first = await model.reply(stream=True)
    second = asyncio.create_task(model.reply(stream=True))
    await asyncio.sleep(0)
    gate = one.state.provider.gate
    assert gate is not None
    assert one.state.snapshot(0).waiting == 1
    with pytest.raises(APIError) as told:
        await model.reply(stream=True)
    assert (told.value.status, told.value.retry_after) == (429, 1)
    await first.aclose()
    await (await second).aclose()
    assert (gate.running, model.in_flight) == (0, 0)


async def test_waiting_ends_with_the_deadline() -> None:
    one = target("one", max_concurrent=1, max_waiting=1)
    model = Model(answers, deadline=0.3)
    model.behaviours["one"] = streams
    model.targets = Targets([one])
    held = await model.reply(stream=True)
    with pytest.raises(APIError, match="1 requests running") as told:
        await model.reply(stream=True)
    assert told.value.status == 429
    await held.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_nobody_queues_before_a_target_that_hangs_while_another_is_idle(
    stream: bool,
) -> None:
    """As it was found: of 20 whole requests 18 got 429 at the deadline, and B was asked by none."""
    hanging = target("a", max_concurrent=2, max_waiting=100)
    model = Model(hangs, streams if stream else answers, deadline=0.3)
    model.targets = Targets([hanging, model.targets[1]])

    async def request() -> bytes:
        reply = await model.reply(stream=stream)
        await reply.aclose()
        return reply.first or bytes(reply.body)  # type: ignore[arg-type]

    tasks = [asyncio.create_task(request()) for _ in range(20)]
    # A whole reply can't be seen coming: the two that A has are A's.
    held = tasks[:0] if stream else tasks[:2]
    async with asyncio.timeout(5):
        answered = await asyncio.gather(*(task for task in tasks if task not in held))
    assert answered == [b"b"] * (20 - len(held))
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert model.cancelled == ["a"] * 2 or stream
    gate = hanging.state.provider.gate
    assert gate is not None
    assert (gate.running, gate.waiting, model.in_flight) == (0, 0, 0)


# Whatever happens ---------------------------------------------------------------------------------

BEHAVIOURS: list[Behaviour] = [answers, streams, is_down, is_overloaded, refuses, cannot, hangs]


@given(
    st.lists(st.sampled_from(BEHAVIOURS), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["read", "leave", "break"]),
    st.integers(0, 6),
)
@settings(max_examples=examples(60), deadline=None)
def test_in_flight_returns_to_zero(
    behaviours: list[Behaviour], hedged: bool, end: str, cancelled_after: int
) -> None:
    async def run() -> None:
        model = Model(
            *behaviours,
            hedge_after=0.0005 if hedged else None,
            retries={"backoff": {"first": 0.0005, "most": 0.001}},
        )
        request = asyncio.create_task(model.reply(stream=True))
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        if cancelled_after < 3 or hangs in behaviours:
            request.cancel()
        try:
            reply = await request
        except (APIError, asyncio.CancelledError):
            pass
        else:
            reply.read_to_end = end == "read"
            reply.error = APIError(502, "gone") if end == "break" else None
            await reply.aclose()
        assert model.in_flight == 0
        assert all(each.outcome is not Outcome.running for each in model.attempts.made)
        assert all(each.ended for each in model.attempts.made)

    asyncio.run(run())


# Mirrors ------------------------------------------------------------------------------------------


def test_the_sample_says_how_many_are_mirrored() -> None:
    settings_of: dict[str, Any] = {"mirror": {"model": "candidate", "sample": 0.05}}
    assert policy(lambda: 0.049, **settings_of).mirrored() == "candidate"
    assert policy(lambda: 0.05, **settings_of).mirrored() is None
    assert policy(lambda: 0.0).mirrored() is None
