"""Which hints of a request a provider is told, and which it has no place for.

A hint says something about a request, and changes nothing about the reply that is due, so that no
request is refused for one unless its template wants that; but whoever counts on it has to know that
it is gone. Which an API has, its operations say (`Operation.hints`), by OpenAI's names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from msgspec import Struct

from llama_compat.fitting.fit import member_at
from llama_compat.types import ChatCompletionRequest

USERS = ("safety_identifier", "user")
"""OpenAI's names of who asks, the one that counts for more first."""

TIER = "service_tier"
"""OpenAI's name of how soon, and at what price, a reply is wanted."""

METADATA = "metadata"
"""OpenAI's name of what a client keeps with a request: texts, by name."""

_USUAL_TIERS = frozenset({"auto", "default", "standard", "standard_only", "unspecified"})
"""What is so anyway, in the words of all who have tiers."""


class MetadataPlace(Struct, frozen=True):
    """What an API takes of `metadata`.

    Attributes:
        name, value: patterns for all of a name, and of what goes by it.
        most: how many there may be.
    """

    name: re.Pattern[str]
    value: re.Pattern[str]
    most: int


class HintPlaces(Struct, frozen=True):
    """What hints an API has a place for.

    Attributes:
        users: OpenAI's names of who asks, of those that it takes.
        one_user: whether it takes one of them alone.
        user: what it takes as one: a pattern for all of it.
        tiers: OpenAI's words for the tiers that it has; None for whatever is said.
        metadata: what it takes of that; None for nothing.
    """

    users: frozenset[str] = frozenset()
    one_user: bool = False
    user: re.Pattern[str] = re.compile(r".{1,64}", re.DOTALL)
    tiers: frozenset[str] | None = frozenset()
    metadata: MetadataPlace | None = None


NO_HINTS = HintPlaces()


def places_but_for(refused: Set[str]) -> HintPlaces:
    """Those of an API that is OpenAI's, but for what it refuses, by OpenAI's names."""
    return HintPlaces(frozenset(USERS) - refused, tiers=frozenset() if TIER in refused else None)


def hints_said(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """The hints of a decoded request that say something.

    Args:
        body: the request.
        names: OpenAI's names of those that its API has, by path; `""` where OpenAI has none.
    """
    return {path: name for path, name in names.items() if _says(member_at(body, path), name)}


def _says(value: Any, name: str) -> bool:
    if name == TIER and isinstance(value, str):
        return value.lower().removeprefix("service_tier_") not in _USUAL_TIERS
    return bool(value)


def without_hints(
    request: ChatCompletionRequest, said: Mapping[str, str], places: HintPlaces
) -> tuple[list[str], dict[str, Any]]:
    """What of the hints in `request` there is no place for.

    Args:
        request: what is asked.
        said: the paths of all its hints, and OpenAI's names for them.
        places: those that there are.

    Returns:
        The paths of what is left out, and the fields of the request that are others then.
    """
    kept: set[str] = set()
    changes: dict[str, Any] = {}
    for name in USERS:
        value = getattr(request, name)
        room = name in places.users and not (places.one_user and kept)
        if value is not None and room and places.user.fullmatch(value):
            kept.add(name)
        elif value is not None:
            changes[name] = None
    tier = request.service_tier
    if tier is not None and (places.tiers is None or tier in places.tiers):
        kept.add(TIER)
    elif tier is not None:
        changes[TIER] = None
    gone = [path for path, name in said.items() if name not in kept]
    if request.metadata is not None:
        told = _placed(request.metadata, places.metadata)
        changes[METADATA] = told or None
        if told and METADATA in gone:
            at = gone.index(METADATA)
            gone[at : at + 1] = [
                f"{METADATA}.{name}" for name in request.metadata if name not in told
            ]
    return gone, changes


def _placed(metadata: Mapping[str, Any], place: MetadataPlace | None) -> dict[str, str]:
    if place is None:
        return {}
    fitting = [
        (name, value)
        for name, value in metadata.items()
        if place.name.fullmatch(name) and isinstance(value, str) and place.value.fullmatch(value)
    ]
    return dict(fitting[: place.most])
