"""Requests let in and settled: what they reserve, what clients are told, what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from llama_compat.dialects.anthropic_messages import operations as messages
from llama_compat.dialects.anthropic_messages.rate_limits import rate_limit_headers
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini import operations as gemini
from llama_compat.dialects.ollama import operations as ollama
from llama_compat.dialects.openai import operations as openai
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses import operations as responses
from llama_compat.dialects.rate_limits import RateLimit, duration, openai_headers
from llama_compat.distribution import BudgetSettings, Distribution, LimitSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.types import Usage
from routing.access.limits.limiter import Admission, Limiter, Tell, nobody
from routing.access.limits.memory import CountersAway, MemoryCounters, Taken
from routing.access.limits.requests import RequestLimits
from routing.access.limits.rules import Demand, Resource, Rule, Rules, rules_of
from routing.request import Request
from tests.unit import calls

LIMITS = LimitSettings(requests_per_minute=3, tokens_per_minute=600, concurrent=2)
RULES = Rules(rules_of("key:a", "key 'a'", LIMITS, BudgetSettings(amount=2, period="day")))


Cost = Callable[[Usage], int | None]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> Limiter:
    return Limiter(MemoryCounters(clock, clock), wall=clock)


async def refusal(limiter: Limiter, rules: Rules, demand: Demand) -> APIError:
    with pytest.raises(APIError) as raised:
        await limiter.admit(rules, demand)
    return raised.value


async def test_what_is_left_is_told(limiter: Limiter, clock: Clock) -> None:
    told: list[list[RateLimit]] = []
    await limiter.admit(RULES, Demand(150), lambda limits: told.append(list(limits)))
    assert told == [
        [
            RateLimit("requests", 3, 2, 20.0, clock.now + 20.0),
            RateLimit("tokens", 600, 450, 0.0, clock.now),
        ]
    ]


async def test_of_several_limits_the_tightest_is_told(limiter: Limiter) -> None:
    wide = Rule("team:t", Resource.requests, 10, "team 't'")
    narrow = Rule("key:a", Resource.requests, 2, "key 'a'")
    for rules in (Rules([wide, narrow]), Rules([narrow, wide])):
        told: list[RateLimit] = []
        await limiter.admit(rules, Demand(), told.extend)
        assert [each.limit for each in told] == [2]


async def test_who_asks_too_often_is_told_when_to_come_back(limiter: Limiter, clock: Clock) -> None:
    for _ in range(3):
        (await limiter.admit(RULES, Demand())).settle(0, 0)
    error = await refusal(limiter, RULES, Demand())
    assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
    assert error.headers == {"retry-after": "20", "retry-after-ms": "20000"}
    assert error.message == (
        "Rate limit reached for key 'a': 3 requests a minute, 0 left, 1 asked for. Try again in 20"
        " s."
    )
    assert limiter.refusals[Resource.requests] == 1
    assert limiter.refusals[Resource.tokens] == 0
    clock.now += 19.9
    assert (await refusal(limiter, RULES, Demand())).headers["retry-after-ms"] == "100"
    clock.now += 0.1
    await limiter.admit(RULES, Demand())


async def test_tokens_are_reserved_and_settled(limiter: Limiter) -> None:
    rules = Rules([RULES[1]])
    first = await limiter.admit(rules, Demand(500, is_guess=False))
    error = await refusal(limiter, rules, Demand(101, is_guess=False))
    assert (error.type, error.headers["retry-after"]) == ("tokens", "1")
    assert "100 left, 101 asked for" in error.message
    first.settle(50, 0)
    first.settle(600, 0)
    second = await limiter.admit(rules, Demand(550, is_guess=False))
    # More than it was let in with: the next one waits for what is over.
    second.settle(650, 0)
    error = await refusal(limiter, rules, Demand(1))
    assert error.headers["retry-after-ms"] == "10100"


async def test_nobody_knows_what_it_used(limiter: Limiter) -> None:
    rules = Rules([RULES[1], *RULES[3:]])
    (await limiter.admit(rules, Demand(500, cost=1.5))).settle(None, None)
    assert "100 left" in (await refusal(limiter, rules, Demand(200, cost=0.1))).message
    assert "$0.5 left" in (await refusal(limiter, rules, Demand(10, cost=0.6))).message


async def test_too_much_at_once_is_told_for_good(limiter: Limiter) -> None:
    error = await refusal(limiter, RULES, Demand(601, is_guess=False))
    assert error.headers == {"x-should-retry": "false"}
    assert "lower max_tokens" in error.message
    # What nobody asked for is not held against it.
    await limiter.admit(RULES, Demand(601))


async def test_over_budget(limiter: Limiter, clock: Clock) -> None:
    (await limiter.admit(RULES, Demand(cost=1.9))).settle(0, 1.75)
    error = await refusal(limiter, RULES, Demand(cost=0.3))
    assert (error.status, error.type) == (429, "insufficient_quota")
    assert error.code == "insufficient_quota"
    assert error.headers == {"x-should-retry": "false"}
    assert error.message.startswith(
        "The budget of key 'a' is used up: $2 a day, $0.25 left, and this request may cost $0.3."
    )
    (await limiter.admit(RULES, Demand(cost=0.25))).settle(0, 0)
    clock.now += 86400
    await limiter.admit(RULES, Demand(cost=2))


async def test_what_was_spent_is_told_once(clock: Clock) -> None:
    spent: list[tuple[str, float]] = []
    limiter = Limiter(
        MemoryCounters(clock, clock),
        wall=clock,
        on_spent=lambda charge, cost: spent.append((charge.counter, cost)),
    )
    admission = await limiter.admit(RULES, Demand(cost=1))
    admission.settle_usage(Usage(100, 20), lambda: 250_000_000)
    admission.settle_usage(Usage(100, 20), lambda: 250_000_000)
    assert spent == [("key:a:budget:day-2027-01-15", 0.25)]
    error = await refusal(limiter, RULES, Demand(481, is_guess=False))
    assert "480 left, 481 asked for" in error.message
    (await limiter.admit(RULES, Demand())).settle_usage(Usage())
    assert spent[1:] == [("key:a:budget:day-2027-01-15", 0.0)]


class Away(MemoryCounters):
    is_away = True

    async def take(self, charges: Any) -> Taken:
        if self.is_away:
            raise CountersAway
        return await super().take(charges)


async def test_what_to_do_while_nobody_counts() -> None:
    spent: list[float] = []
    counters = Away()
    closed = Limiter(counters, "refuse")
    error = await refusal(closed, RULES, Demand())
    assert (error.status, error.code) == (503, "limits_unavailable")
    assert error.headers["retry-after"] == "1"
    opened = Limiter(counters, "allow", on_spent=lambda charge, cost: spent.append(cost))
    admission = await opened.admit(RULES, Demand(1, cost=1))
    counters.is_away = False
    # What it cost is known all the same, and nothing is freed that was never taken.
    admission.settle(1, 0.5)
    assert spent == [0.5]
    assert (await opened.admit(RULES, Demand())).settle(0, 0) is None


# Which rules ------------------------------------------------------------------------------------

DISTRIBUTION = Distribution.model_validate(
    {
        "providers": [
            {"id": "p", "type": "local::echo", "limits": {"concurrent": 1}},
            {"id": "q", "type": "local::echo"},
        ],
        "models": [
            {"id": "m", "provider": "p", "aliases": ["n"], "limits": {"requests_per_minute": 5}},
            {"id": "o", "provider": "q"},
        ],
        "teams": [{"id": "t", "limits": {"concurrent": 7}, "budget": {"amount": 9}}],
    }
)
KEY = Principal("key-1", "ci", "t", limits=LimitSettings(concurrent=2))


async def admit(limits: RequestLimits, call: Call, cost: Cost, tell: Tell = nobody) -> Admission:
    return await limits.admit(limits.rules(call.principal, "o"), call, cost, tell)


def call_of(operation: Operation = CHAT, **members: Any) -> Call:
    body = {"messages": [{"role": "user", "content": "x" * 400}], **members}
    return replace(calls.call_of({"model": "m", **body}, operation), principal=KEY)


@pytest.fixture
def limits(limiter: Limiter) -> RequestLimits:
    return RequestLimits(DISTRIBUTION, limiter)


def test_the_rules_of_key_team_and_model_hold(limits: RequestLimits) -> None:
    assert [(each.subject, each.resource, each.limit) for each in limits.rules(KEY, "n")] == [
        ("key:key-1", "concurrent", 2),
        ("team:t", "concurrent", 7),
        ("team:t", "budget", 9),
        ("model:m", "requests", 5),
    ]
    assert limits.rules(KEY, "m")[0].name == "key 'ci'"
    assert limits.rules(Principal("x"), "o") == ()
    assert limits.rules(Principal("x", team="none"), "o") == ()


async def test_who_has_no_limits_is_not_counted(limits: RequestLimits) -> None:
    assert not limits.rules(Principal("x"), "o")


async def test_what_a_request_may_cost_is_reserved(limits: RequestLimits) -> None:
    asked: list[Usage] = []

    def cost(usage: Usage) -> int:
        asked.append(usage)
        return 5_000_000_000

    assert await admit(limits, call_of(max_tokens=7), cost)
    assert asked[0].completion_tokens == 7
    with pytest.raises(APIError, match=r"team 't' .* may cost \$5"):
        await admit(limits, call_of(max_tokens=7), cost)
    assert await admit(limits, call_of(), lambda usage: None)


EVERY_API = [
    (openai.CHAT, {"max_tokens": 1000, "n": 3}, 3000),
    (openai.CHAT, {"max_completion_tokens": 1, "max_tokens": 900_000}, 900_000),
    (openai.COMPLETIONS, {"prompt": ["a"] * 100, "max_tokens": 1000}, 100_000),
    (
        openai.COMPLETIONS,
        {"prompt": ["a"] * 5, "n": 2, "best_of": 3, "max_tokens": 1000},
        15_000,
    ),
    (openai.EMBEDDINGS, {"input": ["word " * 80] * 10}, 1000),
    (openai.EMBEDDINGS, {"input": [[7] * 100] * 10}, 1000),
    (responses.RESPONSES, {"input": "a", "max_output_tokens": 1000}, 1000),
    (messages.MESSAGES, {"max_tokens": 1000}, 1000),
    (messages.COUNT_TOKENS, {"max_tokens": 1000}, 0),
    (gemini.GENERATE, {"generationConfig": {"maxOutputTokens": 1000, "candidateCount": 8}}, 8000),
    (gemini.GENERATE, {"generationConfig": {"maxOutputTokens": -1_000_000_000}}, 512),
    (gemini.STREAM_EVENTS, {"generationConfig": {"candidateCount": -8}}, 512),
    (ollama.CHAT, {"options": {"num_predict": 1000}}, 1000),
    (ollama.CHAT, {"options": {"num_predict": -1_000_000_000}}, 512),
    (ollama.EMBED, {"input": ["word " * 80] * 10}, 1000),
]


@pytest.mark.parametrize(("operation", "members", "tokens"), EVERY_API)
async def test_what_a_request_may_come_to_is_reserved(
    limits: RequestLimits, operation: Operation, members: dict[str, Any], tokens: int
) -> None:
    called = call_of(operation, **members)
    wide = LimitSettings(tokens_per_minute=10_000_000)
    call = replace(called, principal=Principal("wide", limits=wide))
    told: list[RateLimit] = []
    await admit(limits, call, lambda usage: 0, told.extend)
    # The prompt is 130 tokens at most, and what is an estimate may be off by as much.
    assert -10 <= wide.tokens_per_minute - told[0].remaining - tokens <= 130


async def test_no_request_lifts_the_limits_of_its_key(limits: RequestLimits) -> None:
    settings = {"budget": BudgetSettings(amount=2), "limits": LimitSettings(tokens_per_minute=2000)}
    key = Principal("lifting", **settings)
    least = {"generationConfig": {"maxOutputTokens": -(10**9), "candidateCount": -(10**9)}}
    lifting = replace(call_of(gemini.GENERATE, **least), principal=key)
    assert await admit(limits, lifting, lambda usage: -(10**18))
    modest = replace(call_of(max_tokens=400), principal=key)
    for _ in range(2):
        assert await admit(limits, modest, lambda usage: 500_000_000)
    with pytest.raises(APIError, match="key 'lifting'"):
        await admit(limits, modest, lambda usage: 500_000_000)


async def test_what_a_vendor_counts_lifts_no_limit_of_its_provider(limiter: Limiter) -> None:
    provider = {"id": "p", "type": "local::echo", "limits": {"tokens_per_minute": 1000}}
    distribution = Distribution.model_validate(
        {"providers": [provider], "models": [{"id": "m", "provider": "p"}]}
    )
    limits = RequestLimits(distribution, limiter)

    async def ask() -> Reply:
        return Reply(b"", read_usage=lambda: Usage(-(10**9), -(10**9)))

    for _ in range(3):
        await (await limits.attempt("p", call_of(max_tokens=500), ask)).aclose()
    with pytest.raises(APIError, match="provider 'p'"):
        await limits.attempt("p", call_of(max_tokens=1001), ask)


async def test_an_attempt_at_a_provider_ends_with_its_reply(limits: RequestLimits) -> None:
    ended: list[Reply] = []

    async def ask(request: Request, provider: Any, target: Any) -> Reply:
        reply = Reply(b"", read_usage=lambda: Usage(1, 2))
        reply.when_closed(lambda closed: ended.append(closed))
        return reply

    async def fail(request: Request, provider: Any, target: Any) -> Reply:
        raise ZeroDivisionError

    class P:
        id = "p"

    request = Request(CHAT, "req", call=call_of())
    asking, failing = limits.around_attempts(ask), limits.around_attempts(fail)
    reply = await asking(request, P(), None)  # type: ignore[arg-type]
    with pytest.raises(APIError, match="provider 'p'") as refused:
        await asking(request, P(), None)  # type: ignore[arg-type]
    assert not refused.value.was_sent
    await reply.aclose()
    assert ended == [reply]
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await failing(request, P(), None)  # type: ignore[arg-type]
    await asking(request, P(), None)  # type: ignore[arg-type]


# Estimates and headers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9, "59.9s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (90.25, "1m30.25s"),
    ],
)
def test_durations_are_openai_s(seconds: float, text: str) -> None:
    assert duration(round(seconds * 1000)) == text.encode()


def test_headers() -> None:
    limit = RateLimit("tokens", 600, 450, 15.0, 0.0)
    assert openai_headers([limit]) == {
        b"x-ratelimit-limit-tokens": b"600",
        b"x-ratelimit-remaining-tokens": b"450",
        b"x-ratelimit-reset-tokens": b"15s",
    }
    assert rate_limit_headers([limit]) == {
        b"anthropic-ratelimit-tokens-limit": b"600",
        b"anthropic-ratelimit-tokens-remaining": b"450",
        b"anthropic-ratelimit-tokens-reset": b"1970-01-01T00:00:00Z",
    }


async def test_a_cost_is_worked_out_where_there_is_a_budget_alone(limiter: Limiter) -> None:
    asked: list[str] = []
    for name, rules in (("tokens", Rules([RULES[1]])), ("budget", Rules([RULES[3]]))):
        admission = await limiter.admit(rules, Demand(1, cost=0.1))
        admission.settle_usage(Usage(1, 1), lambda name=name: asked.append(name))  # type: ignore[misc]
    assert asked == ["budget"]


def test_the_rules_of_a_key_are_put_together_once_until_it_changes(limits: RequestLimits) -> None:
    rules = limits.rules(KEY, "m")
    assert limits.rules(KEY, "m") is rules
    narrower = Principal(KEY.id, limits=LimitSettings(requests_per_minute=1))
    assert [each.limit for each in limits.rules(narrower, "o")] == [1]


async def test_to_look_tells_what_is_used_and_takes_nothing(limiter: Limiter) -> None:
    admission = await limiter.admit(RULES, Demand(100, cost=0.5))
    for _ in range(2):
        looked = {each.rule.resource: level for each, *level in await limiter.look(RULES)}
        assert looked == {
            Resource.requests: [1, 0],
            Resource.tokens: [0, 100],
            Resource.concurrent: [0, 1],
            Resource.budget: [0, 0.5],
        }
    admission.settle(40, 0.25)
    looked = {each.rule.resource: level for each, *level in await limiter.look(RULES)}
    assert looked[Resource.tokens] == [40, 0]
    assert looked[Resource.budget] == [0.25, 0]
    assert sum(limiter.refusals.values()) == 0


async def test_to_look_at_what_is_full_is_no_refusal(limiter: Limiter) -> None:
    for _ in range(2):
        await limiter.admit(RULES, Demand(300))
    await refusal(limiter, RULES, Demand(300))
    before = dict(limiter.refusals)
    looked = {each.rule.resource: level for each, *level in await limiter.look(RULES)}
    assert looked[Resource.tokens] == [0, 600]
    assert limiter.refusals == before
