"""Copies of requests, whose answers nobody wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec.structs import replace

from llama_compat.dialects.openai_responses.client_events import WARM_UP
from llama_compat.errors import upstream_error
from llama_compat.exchange import Reply
from llama_compat.guardrails.settings import CheckSettings
from routing.layers.mirrors import MAX_RUNNING, MIRROR, Mirrors
from routing.request import Handler, Request
from tests.unit.routing.observability.records.test_ledger import BODY, ended
from tests.unit.routing.policy.models import policy


async def pieces(*, fails: bool = False) -> AsyncGenerator[bytes, None]:
    yield b"a"
    if fails:
        raise upstream_error("up", "broke off")
    yield b"b"


class Copies:
    """What became of the copies."""

    def __init__(self, answer: Handler, **settings: Any) -> None:
        self.begun: list[Request] = []
        self.ended: list[Request] = []
        self.layer = Mirrors(self._answered, answer, self._begin)
        self._policy = policy(lambda: 0.0, mirror={"model": "candidate", "sample": 0.5}, **settings)

    async def _answered(self, request: Request) -> Reply:
        return Reply(BODY)

    def _begin(self, request: Request) -> None:
        self.begun.append(request)
        request.when_ended(self.ended.append)

    async def send(self, count: int = 1) -> None:
        """Requests of a model that is mirrored."""
        for _ in range(count):
            request = ended()
            assert request.route is not None
            request.route.policy = self._policy
            assert (await self.layer(request)).body == BODY

    async def copy(self) -> Request:
        """The one copy, once it has ended."""
        await self.send()
        await asyncio.gather(*self.layer._running)
        (request,) = self.ended
        assert self.begun == self.ended
        return request


async def test_a_copy_is_a_request_of_its_own_and_read_to_its_end() -> None:
    replies: list[Reply] = []

    async def answer(request: Request) -> Reply:
        replies.append(Reply(pieces()))
        return replies[-1]

    copies = Copies(answer)
    copy = await copies.copy()
    assert copy.call is not None
    assert (copy.request_id, copy.call.request_id) == ("req-mirror", "req-mirror")
    assert (copy.model, copy.principal, copy.call.principal) == ("candidate", MIRROR, MIRROR)
    assert replies[0].read_to_end
    assert (copy.status, copy.complete, copy.cancelled, copy.error) == (200, True, False, None)
    assert (copies.layer.sent, copies.layer.failed) == (1, 0)


async def test_what_generates_nothing_is_not_mirrored() -> None:
    async def answer(request: Request) -> Reply:
        raise AssertionError("there is nothing to compare")

    copies = Copies(answer)
    for _ in range(4):
        request = ended()
        assert request.call is not None
        assert request.route is not None
        request.call = replace(request.call, operation=WARM_UP)
        request.route.policy = copies._policy
        await copies.layer(request)
    assert copies.layer.sent == 0


async def test_a_stream_that_breaks_off_is_the_copys_failure_alone() -> None:
    async def answer(request: Request) -> Reply:
        return Reply(pieces(fails=True))

    copies = Copies(answer)
    copy = await copies.copy()
    assert copy.error is not None
    assert (copy.status, copy.complete, copy.cancelled) == (200, False, False)
    assert "broke off" in copy.outcome
    assert copies.layer.failed == 1


async def test_so_is_an_error_before_that() -> None:
    async def answer(request: Request) -> Reply:
        raise upstream_error("up", "is down")

    copies = Copies(answer)
    copy = await copies.copy()
    assert copy.error is not None
    assert (copy.status, copies.layer.failed) == (502, 1)


async def test_and_a_bug() -> None:
    async def answer(request: Request) -> Reply:
        raise LookupError("no")

    copies = Copies(answer)
    copy = await copies.copy()
    assert (copy.status, copies.layer.failed) == (500, 1)


async def test_they_are_bounded_and_end_with_the_server() -> None:
    async def answer(request: Request) -> Reply:
        await asyncio.sleep(1000)
        raise AssertionError

    copies = Copies(answer)
    await copies.send(MAX_RUNNING + 2)
    assert (copies.layer.sent, copies.layer.left_out) == (MAX_RUNNING, 2)
    await asyncio.sleep(0)
    await copies.layer.stop()
    assert len(copies.ended) == MAX_RUNNING
    assert all(each.cancelled for each in copies.ended)


async def test_a_copy_has_to_pass_what_its_request_has_to() -> None:
    async def answer(copy: Request) -> Reply:
        return Reply(BODY)

    check = CheckSettings(name="size", scan="input", max_characters=9)
    copies = Copies(answer)
    copies.layer._checks = lambda call, route: [check]
    copy = await copies.copy()
    assert copy.call is not None
    assert copy.call.principal.id == MIRROR.id
    assert copy.call.principal.guardrails == (check,)
    assert copy.principal == copy.call.principal
