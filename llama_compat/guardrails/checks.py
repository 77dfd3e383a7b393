"""The checks that one request has to pass, as they are put together once for a model and a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

from msgspec import Struct

from llama_compat.guardrails.named import NAMED
from llama_compat.guardrails.patterns import Pattern, Search, own_pattern, search_for
from llama_compat.guardrails.settings import PLACES, CheckSettings, Mode, Place

END = 1 << 62
"""More characters than a reply has."""

WORD_LENGTH = 40
"""Characters; of texts that are no longer, as the names of members are, it is remembered whether
anything is in them."""

KNOWN_WORDS = 2000
"""So many of them, with the places where they stand."""


class Sought(Struct, frozen=True, eq=False):
    """The patterns of all checks of one mode that look through one place.

    Attributes:
        mode: what is done with what they find.
        search: finds them.
        checks: whose each pattern is.
    """

    mode: Mode
    search: Search
    checks: Sequence[CheckSettings]


class Checks:
    """What one request has to pass.

    Args:
        settings: of all checks that count for it.

    Attributes:
        settings: the same, in their order.
        told_apart: the same for two that do the same.
        is_slow: whether looking through a text may take longer than an event loop has.
        is_slow_with_replies: the same of what a model says.
    """

    def __init__(self, settings: Iterable[CheckSettings]) -> None:
        self.settings = sorted(settings, key=lambda each: each.order)
        told = repr([each.model_dump() for each in self.settings]).encode()
        self.told_apart = blake2b(told, digest_size=16).hexdigest()
        self._sought: Mapping[Place, Sequence[Sought]] = {
            place: _sought(place, self.settings) for place in PLACES
        }
        # Names of members are the same in every event.
        self._word_has_nothing = lru_cache(maxsize=KNOWN_WORDS)(self._has_nothing)
        slow = {place for each in self.settings if each.presidio for place in each.places}
        self.is_slow = bool(slow)
        self.is_slow_with_replies = not slow.isdisjoint(("output", "tool_arguments"))

    def sought(self, place: Place) -> Sequence[Sought]:
        """What is looked for in a text of `place`."""
        return self._sought[place]

    def has_nothing(self, place: Place, text: str) -> bool:
        """Whether there is nothing in a whole text of `place`, as far as that is quick to tell."""
        if len(text) <= WORD_LENGTH:
            return self._word_has_nothing(place, text)
        return self._has_nothing(place, text)

    def _has_nothing(self, place: Place, text: str) -> bool:
        return "\\" not in text and self.has_nothing_but_escapes(place, text)

    def has_nothing_but_escapes(self, place: Place, text: str) -> bool:
        """The same of one whose escapes, if it has any, are no more than what they look like."""
        return all(each.search.has_nothing(text) for each in self._sought[place])

    def asked(self, place: Place) -> Sequence[CheckSettings]:
        """The checks that are asked about a text of `place` as a whole."""
        return [each for each in self.settings if each.is_asked and place in each.places]

    def with_entities(self, place: Place) -> Sequence[CheckSettings]:
        """The checks that look for entities in what is said in `place`."""
        if not self.is_slow:
            return ()
        return [each for each in self.settings if each.presidio and place in each.places]

    def with_pictures(self, place: Place) -> Sequence[CheckSettings]:
        """The checks that are shown the pictures in `place`."""
        return [each for each in self.settings if each.images and place in each.places]

    @cached_property
    def look_at_pictures(self) -> bool:
        """Whether any of them is shown what is asked about, or what tools gave."""
        return bool(self.with_pictures("input") or self.with_pictures("tool_results"))

    @cached_property
    def sees_replies(self) -> bool:
        """Whether any of them is shown what a model draws."""
        return bool(self.with_pictures("output"))

    @cached_property
    def looks_at_requests(self) -> bool:
        """Whether any of them looks through what is asked, as it comes."""
        places = {place for each in self.settings for place in each.places}
        return not places.isdisjoint(("input", "tool_arguments", "tool_results"))

    @cached_property
    def asks_about_requests(self) -> bool:
        """Whether any of them is asked about what is asked as a whole."""
        return any(self.asked(place) for place in PLACES)

    @cached_property
    def asks_about_replies(self) -> bool:
        """Whether any of them is asked about what a model says as a whole."""
        return bool(self.asked("output") or self.asked("tool_arguments"))

    @cached_property
    def window(self) -> int:
        """Characters of a reply that are asked about together."""
        asked = (*self.asked("output"), *self.asked("tool_arguments"))
        if any(each.valid_json for each in asked):
            return END
        return min((each.window for each in asked), default=END)

    @cached_property
    def watches_replies(self) -> bool:
        """Whether any of them looks through what a model says."""
        return any({"output", "tool_arguments"} & set(each.places) for each in self.settings)


def _patterns(check: CheckSettings) -> list[Pattern]:
    named = [pattern for name in check.patterns for pattern in NAMED[name]]
    own = [own_pattern(label, each) for label, each in check.expressions.items()]
    return [*named, *own]


def _sought(place: Place, settings: Sequence[CheckSettings]) -> list[Sought]:
    sought: list[Sought] = []
    modes: tuple[Mode, ...] = ("block", "redact", "monitor")
    for mode in modes:
        found = [
            (pattern, check)
            for check in settings
            if check.mode == mode and place in check.places
            for pattern in _patterns(check)
        ]
        if found:
            patterns, checks = zip(*found, strict=True)
            sought.append(Sought(mode, search_for(patterns), checks))
    return sought
