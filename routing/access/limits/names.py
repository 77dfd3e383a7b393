"""What counters and leases are called in a store that several processes share."""

from __future__ import annotations

from collections.abc import Sequence

from routing.access.limits.rules import Charge

PREFIX = "{llama_compat}:"
"""What all keys begin with. The braces keep them on one node of a cluster."""


def keys_of(charges: Sequence[Charge], lease: str = "") -> list[str]:
    """The keys of a script: the clock, what says that `lease` was settled if there is one, and of
    each charge its counter and the times of its leases."""
    keys = [f"{PREFIX}clock"]
    if lease:
        keys.append(mark_of(lease))
    for charge in charges:
        keys += [f"{PREFIX}{charge.counter}", f"{PREFIX}{charge.counter}:leases"]
    return keys


def mark_of(lease: str) -> str:
    """What says that a lease was settled."""
    return f"{PREFIX}settled:{lease}"


def lease_of(mark: str) -> str:
    """The lease of such a mark; any other key as it is."""
    return mark.rpartition(":settled:")[2]
