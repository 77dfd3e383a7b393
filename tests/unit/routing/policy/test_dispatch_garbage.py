"""What attempts leave behind that fail, where another one answers: nothing of the request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.error_classes import ErrorClass
from llama_compat.errors import APIError
from llama_compat.exchange import Reply, Target
from providers.base import Provider
from routing.policy.attempts import Attempts
from routing.policy.dispatch import dispatch
from routing.policy.group import Targets
from tests.garbage import leaving_none
from tests.unit.calls import call_of
from tests.unit.routing.policy.models import error_of, policy, target


@pytest.mark.parametrize("settings", [{}, {"hedge_after": 0.01}])
async def test_an_attempt_that_fails_leaves_nothing(settings: dict[str, Any]) -> None:
    asked: list[Provider] = []

    async def ask(provider: Provider, target: Target) -> Reply:
        asked.append(provider)
        if len(asked) == 1:
            await asyncio.sleep(0.05 if settings else 0)
            raise error_of(ErrorClass.server_error)
        await asyncio.sleep(0.2 if settings else 0)
        return Reply(b"{}")

    targets = Targets([target("a"), target("b", priority=1)])
    call = call_of(b'{"model": "m", "messages": []}', CHAT)
    with leaving_none(APIError, Attempts):
        reply = await dispatch(targets, policy(**settings), call, ask, Attempts([]))
        await reply.aclose()
        del reply
    assert len(asked) == 2
