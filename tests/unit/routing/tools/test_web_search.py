"""What a search of the web gives for one reply."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.distribution import ServerSettings
from llama_compat.hosted.vocabulary import WebSearchTool, WebSource
from routing.tools.queries import Uses
from routing.tools.search_backends import SearchQuery
from routing.tools.web_search import WebSearch


class Backend:
    """One that finds as much as is wanted."""

    async def find(self, search: SearchQuery) -> list[WebSource]:
        return [WebSource(f"https://a.example/{number}") for number in range(search.count)]


@pytest.mark.parametrize(
    ("size", "most", "found"), [("low", 6, 3), ("medium", 6, 6), ("high", 6, 12), ("low", 1, 1)]
)
async def test_as_much_is_found_as_is_wanted(size: Any, most: int, found: int) -> None:
    server = ServerSettings.model_validate(
        {"tools": {"web_search": {"backend": "files", "folder": ".", "max_results": most}}}
    )
    assert server.tools is not None
    assert server.tools.web_search is not None
    asked = WebSearchTool("web_search", context_size=size)
    search = WebSearch(asked, server.tools.web_search, Backend(), Uses(8))
    assert len((await search.run({"query": "x"})).sources) == found
