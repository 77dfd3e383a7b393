"""A line as a vendor's batch has it, written and read by the chain of its model.

It goes through the same layers and the same translation as a request, twice: once to see what the
vendor would be asked, and once with what the vendor has said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from providers.remote.batches.base import LineAnswer, VendorBatches
from providers.remote.upstream.deferred import Capture, Replay
from routing.access.limits.requests import COMPLETION_TOKENS
from routing.batches.wires import LineOutcome
from routing.layers.deferred import Deferral

if TYPE_CHECKING:
    from llama_compat.exchange import Principal
    from routing.batches.asking import Asker
    from routing.policy.targets import LiveTarget


class HandedLine(Struct, frozen=True):
    """A line that a vendor's batch can answer.

    Attributes:
        endpoint, headers: what it asks, and what it has in common with all lines of its order.
        body: what is asked: JSON.
        tokens: that it may come to.
        is_guess: whether it leaves open how long its reply may be.
        cost: what it may cost, in billionths of a dollar; 0 where nobody knows.
    """

    endpoint: str
    headers: Mapping[str, str]
    body: bytes
    tokens: int
    is_guess: bool
    cost: int


async def written(
    asker: Asker,
    api: VendorBatches,
    target: LiveTarget,
    endpoint: str,
    body: bytes,
    principal: Principal,
) -> HandedLine | None:
    """A line of an order; None where it has to be asked by a request, which says what is wrong with
    it if anything is.

    Args:
        asker: looks at it.
        api: of the vendor.
        target: where it goes.
        endpoint: of the batch.
        body: what is asked.
        principal: whose batch it is.
    """
    deferral = Deferral(target, Capture(api.upstream), is_answered=False)
    seen = await asker.look_through(endpoint, body, principal, deferral)
    asks = None if seen is None else api.endpoint(seen.unsent)
    if seen is None or asks is None:
        return None
    usage = seen.extent.usage(COMPLETION_TOKENS)
    return HandedLine(
        asks,
        api.headers(seen.unsent),
        seen.unsent.body,
        usage.prompt_tokens + usage.completion_tokens,
        seen.extent.max_tokens is None,
        asker.batch_cost(seen.route, target, usage) or 0,
    )


async def read(
    asker: Asker,
    api: VendorBatches,
    target: LiveTarget,
    endpoint: str,
    body: bytes,
    principal: Principal,
    said: LineAnswer,
) -> LineOutcome:
    """What became of a line that the vendor has answered: a request, with its record.

    Args:
        asker, api, target, endpoint, body, principal: as for `written`.
        said: by the vendor.
    """
    by = Replay(api.upstream, said.status, said.body)
    return await asker.ask(endpoint, body, principal, Deferral(target, by, is_answered=True))
