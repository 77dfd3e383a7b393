"""What a vendor has searched for and found, as checks are asked about it."""

from __future__ import annotations

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.settings import Place
from llama_compat.hosted.vocabulary import CitationDelta, HostedCallDelta, Source, WebSource

Searched = HostedCallDelta | CitationDelta
"""What brings something of a search."""

_NO_ARGUMENTS = "{}"
"""Of a call that has begun, of which they are not known yet."""


class VendorSearches:
    """The searches of one choice; about each text checks are asked once, however often it comes.

    Args:
        guard: of the request.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._asked: set[Said] = set()

    async def ask(self, delta: Searched) -> None:
        """Have the checks asked about what a delta brings.

        Raises:
            Blocked: no more of the choice may be shown.
        """
        if isinstance(delta, CitationDelta):
            await self._ask("tool_results", _words_of(delta.citation.source))
            return
        call = delta.call
        if call.arguments_json != _NO_ARGUMENTS:
            await self._ask("tool_arguments", (call.arguments_json,))
        await self._ask("tool_results", (call.output,))
        for source in call.sources:
            await self._ask("tool_results", _words_of(source))

    async def _ask(self, place: Place, texts: tuple[str, ...]) -> None:
        said = Said(place, tuple(filter(None, texts)))
        if said.texts and said not in self._asked:
            self._asked.add(said)
            await self._guard.ask(said)


def _words_of(source: Source) -> tuple[str, ...]:
    name = source.title if isinstance(source, WebSource) else source.filename
    return name, source.text
