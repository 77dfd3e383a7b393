"""What the chain of a line ends in that a vendor's own batch answers: no policy, no waiting, one
target that has been chosen. What it would be asked is only looked at, or has been answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply, Target
from llama_compat.hosted.asked.named import tools_named
from providers.answer import answer, relays
from providers.remote.upstream.deferred import DEFERRED, Deferred
from routing.policy.attempts import Attempt
from routing.policy.targets import ProviderState, TargetState
from routing.request import Request

if TYPE_CHECKING:
    from providers.base import Provider
    from routing.policy.targets import LiveTarget


class Deferral(Struct, frozen=True):
    """How a request is answered in another way than by being sent.

    Attributes:
        target: whose batch it is a line of.
        by: has what it would be asked seen, or answered.
        is_answered: whether it has been.
    """

    target: LiveTarget
    by: Deferred
    is_answered: bool


class ByRequests(Exception):
    """No batch of the vendor's can do what a line asks for; a request can."""


async def by_deferral(request: Request) -> Reply:
    """Answer a request by its deferral.

    Raises:
        ByRequests: it is one that has to be sent.
        APIError: as any provider; `NotSent` where it was only looked at.
    """
    call, deferral = request.call, request.deferral
    assert call is not None
    assert deferral is not None
    provider, target = deferral.target.provider, deferral.target.target
    if _wants_more(call, provider, target):
        raise ByRequests
    # A state of its own: how fast the vendor's batches are says nothing of its target.
    state = TargetState(ProviderState(provider.id), target.model)
    attempt = Attempt(state)
    request.attempts.add(attempt)
    token = DEFERRED.set(deferral.by)
    try:
        reply = await answer(provider, call, target)
    except APIError as error:
        attempt.fail(error)
        raise
    except BaseException:
        attempt.cancel()
        raise
    finally:
        DEFERRED.reset(token)
    attempt.has_content()
    reply.when_closed(attempt.finish)
    return reply


def _wants_more(call: Call, provider: Provider, target: Target) -> bool:
    """Whether a call comes to more than one request, or may: of tools that are run here, or by a
    vendor who pauses its turn for them, or for replies that are asked for one by one."""
    is_translated = target.fit is not None and target.fit.adapts_relayed  # perhaps
    if relays(provider, call, target) and not (is_translated and call.extent.made > 1):
        return False
    return bool(tools_named(call.fields).kinds) or call.extent.made > 1
