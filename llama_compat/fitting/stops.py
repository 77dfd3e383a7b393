"""Which of a request's stop strings its vendor is told, where it takes not all that there may be.

The gateway looks for the others itself (`llama_compat.fitting.cut`), so no request is refused for
how many it names. A call with such others is put into the vocabulary, whoever could relay it: what
is relayed is not read for its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llama_compat.dialects.stop_lists import ANY_STOPS, StopBound
from llama_compat.errors import APIError
from llama_compat.exchange import Call
from llama_compat.fitting.fit import member_at
from llama_compat.wire.json_fields import from_raw
from llama_compat.wire.malformed import UNREADABLE


class BoundsStops(Protocol):
    """What is needed of a provider."""

    def stop_bound(self, model: str) -> StopBound:
        """Which stop strings `model` (the provider's name) takes."""
        ...


def all_told(provider: BoundsStops, call: Call, model: str) -> bool:
    """Whether the vendor takes all the stop strings of `call` for `model`."""
    members = call.operation.stop_members
    if members.isdisjoint(call.fields):
        return True
    bound = provider.stop_bound(model)
    return bound == ANY_STOPS or not bound.split(_stops_in(call))[1]


def _stops_in(call: Call) -> Sequence[str]:
    """The stop strings of a call, wherever its API has them; none of what is malformed, of which
    its vendor says better what is wrong with it."""
    operation = call.operation
    try:
        body: dict[str, Any] = {
            name: from_raw(raw)
            for name, raw in call.fields.items()
            if name in operation.stop_members
        }
        asked = operation.parameters(body)
    except (*UNREADABLE, APIError):
        return ()
    found: list[str] = []
    for path, name in asked.items():
        value = member_at(body, path) if name == "stop" else None
        stops = [value] if isinstance(value, str) else value
        if isinstance(stops, list):
            found += [stop for stop in stops if isinstance(stop, str)]
    return found
