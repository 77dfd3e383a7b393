"""What a request reserves is settled when it has ended, however it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.types import Usage
from routing.access.limits.rules import Resource, Rule, Rules
from routing.layers.limits import LimitsLayer
from routing.request import Request
from tests.unit.routing.observability.records.test_ledger import BODY, LEDGER, counted, ended

LEFT = [RateLimit("requests", 10, 9, 6.0, 106.0)]


class Admission:
    """Notes what is settled."""

    def __init__(self) -> None:
        self.settled: list[Any] = []

    def settle_usage(self, usage: Usage, cost: Callable[[], int | None]) -> None:
        self.settled.append((usage, cost()))

    def settle(self, tokens: float | None, cost: float | None) -> None:
        self.settled.append((tokens, cost))


class Admits:
    """Lets everything in, or nothing."""

    def __init__(self, error: APIError | None = None) -> None:
        self.admission = Admission()
        self.error = error
        self.most: int | None = None

    def rules(self, principal: Principal, model: str) -> Rules:
        return Rules([Rule("key:a", Resource.requests, 10, "key 'a'")])

    async def admit(
        self,
        rules: Rules,
        call: Call,
        cost: Callable[[Usage], int | None],
        tell: Callable[[Sequence[RateLimit]], None],
    ) -> Admission:
        tell(LEFT)
        self.most = cost(Usage(10, 10))
        if self.error is not None:
            raise self.error
        return self.admission


async def answered(request: Request) -> Reply:
    return Reply(BODY)


async def test_it_is_settled_once_the_request_has_ended() -> None:
    limits, request = Admits(), ended(Reply(BODY, read_usage=counted(7, 5)))
    layer = LimitsLayer(answered, limits, LEDGER)  # type: ignore[arg-type]
    assert (await layer(request)).body == BODY
    assert limits.admission.settled == []
    assert limits.most == 110_000
    request.end()
    assert limits.admission.settled == [(Usage(7, 5), 57_000)]
    assert request.rate_limits == LEFT
    request.end()
    assert len(limits.admission.settled) == 1


async def test_it_is_settled_before_the_last_of_the_answer_is_sent() -> None:
    limits, request = Admits(), ended(Reply(BODY, read_usage=counted(7, 5)))
    await LimitsLayer(answered, limits, LEDGER)(request)  # type: ignore[arg-type]
    await request.settle()
    assert limits.admission.settled == [(Usage(7, 5), 57_000)]
    request.end()
    assert len(limits.admission.settled) == 1


async def test_what_goes_on_after_its_answer_is_settled_at_its_end() -> None:
    limits, request = Admits(), ended(Reply(b'{"status":"queued"}'))
    await LimitsLayer(answered, limits, LEDGER)(request)  # type: ignore[arg-type]
    request.goes_on = True
    await request.settle()
    assert limits.admission.settled == []
    await request.went_on(ended(Reply(BODY, read_usage=counted(7, 5))))
    assert limits.admission.settled == [(Usage(7, 5), 57_000)]


async def test_what_is_refused_is_told_what_is_left_and_settles_nothing() -> None:
    limits = Admits(APIError(429, "Too many."))
    request = ended(Reply(BODY))
    layer = LimitsLayer(answered, limits, LEDGER)  # type: ignore[arg-type]
    with pytest.raises(APIError, match="Too many"):
        await layer(request)
    request.end()
    assert request.rate_limits == LEFT
    assert limits.admission.settled == []


async def test_what_nobody_answered_has_cost_nothing() -> None:
    limits, request = Admits(), ended(failures=1)

    async def fails(request: Request) -> Reply:
        raise upstream_error("up", "broke")

    layer = LimitsLayer(fails, limits, LEDGER)  # type: ignore[arg-type]
    with pytest.raises(APIError, match="broke"):
        await layer(request)
    request.end()
    assert limits.admission.settled == [(Usage(0, 0), None)]


async def test_what_can_t_be_told_is_settled_with_all_that_it_reserved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Usage:
        raise LookupError("no")

    limits, request = Admits(), ended(Reply(BODY, read_usage=broken))
    await LimitsLayer(answered, limits, LEDGER)(request)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        request.end()
    assert limits.admission.settled == [(None, None)]
    assert "what request req used is not known" in caplog.text
