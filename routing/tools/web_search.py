"""Searching the web."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from llama_compat.hosted.citations import FORM
from llama_compat.hosted.settings import WebSearchSettings
from llama_compat.hosted.vocabulary import WebSearchTool, WebSource
from llama_compat.types import ToolDefinition
from routing.tools.domains import Domains
from routing.tools.queries import QUERY_PARAMETERS, Searches, Uses
from routing.tools.search_backends import Backend, SearchQuery
from routing.tools.tool import Gave

MAX_QUERY = 1000

_SHARES = {"low": 0.5, "medium": 1.0, "high": 2.0}
"""Of the results that a search gives, by how much of them a request wants."""


class WebSearch:
    """The search, for one reply.

    Args:
        asked: what the request says of it.
        settings: what the template says.
        backend: who searches.
        uses: how often all searches of the reply may be made.
    """

    kind: Literal["web_search"] = "web_search"
    name = "web_search"
    server = ""
    asks = False

    def __init__(
        self, asked: WebSearchTool, settings: WebSearchSettings, backend: Backend, uses: Uses
    ) -> None:
        self._backend = backend
        self._count = max(1, round(settings.max_results * _SHARES[asked.context_size]))
        self._searches = Searches(uses.within(asked.max_uses), MAX_QUERY)
        self._domains = Domains(asked.allowed_domains, asked.blocked_domains)
        self._found = 0
        where = f" The user is in {asked.location}." if asked.location else ""
        self.definition = ToolDefinition(
            asked.name,
            "Search the web for what is newer than what you know, or what you are not sure of."
            + where,
            QUERY_PARAMETERS,
        )

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Search once more.

        Raises:
            ToolError: it was done as often as may be, or can't be.
        """
        query = self._searches.begin(arguments)
        found = await self._backend.find(SearchQuery(query, self._count, self._domains))
        sources = [each for each in found if self._domains.has(each.url)][: self._count]
        text = _told(sources, self._found)
        self._found += len(sources)
        return Gave(text, sources)


def _told(sources: Sequence[WebSource], before: int) -> str:
    if not sources:
        return "Nothing was found."
    blocks = [
        "\n".join(
            filter(
                None,
                (
                    f"[{before + number}] {source.title}",
                    f"URL: {source.url}",
                    f"Age: {source.age}" if source.age else "",
                    source.text,
                ),
            )
        )
        for number, source in enumerate(sources, 1)
    ]
    return "\n\n".join([*blocks, FORM])
