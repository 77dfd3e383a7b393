"""Searching files of vector stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.hosted.asked.file_search import FileQuery
from llama_compat.hosted.citations import FILE_FORM
from llama_compat.hosted.settings import FileSearchSettings
from llama_compat.hosted.vocabulary import FileSearchTool, FileSource
from llama_compat.types import ToolDefinition
from routing.tools.queries import QUERY_PARAMETERS, Searches, Uses
from routing.tools.tool import Gave, ToolError

if TYPE_CHECKING:
    from routing.vector_stores.service import VectorStores

MAX_QUERY = 4096
"""Characters; also of a query that a client sends to `/v1/vector_stores/ID/search`."""


class FileSearch:
    """The search, for one reply.

    Args:
        asked: what the request says of it.
        settings: what the template says.
        stores: those of the template.
        principal: whose are searched.
        uses: how often all searches of the reply may be made.
    """

    kind: Literal["file_search"] = "file_search"
    name = "file_search"
    server = ""
    asks = False

    def __init__(
        self,
        asked: FileSearchTool,
        settings: FileSearchSettings,
        stores: VectorStores,
        principal: Principal,
        uses: Uses,
    ) -> None:
        self._asked = asked
        self._count = asked.max_results or settings.max_results
        self._searches = Searches(uses.within(None), MAX_QUERY)
        self._stores = stores
        self._principal = principal
        self.definition = ToolDefinition(
            asked.name,
            "Search the files that the user has put at your disposal, for what you need to know of"
            " them. Ask in whole sentences, with the words that stand there.",
            QUERY_PARAMETERS,
        )

    async def check(self) -> None:
        """See whether there is what the request wants searched.

        Raises:
            APIError: 404, one of the stores is none of who asks; 503.
        """
        # Whoever would be told of it by the model alone would not know what to mend.
        for store in self._asked.stores:
            await self._stores.stores.get(self._principal.id, store)

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Search once more.

        Raises:
            ToolError: it was done as often as may be, or can't be.
        """
        query = self._searches.begin(arguments)
        sought = FileQuery([query], self._count, self._asked.filter, self._asked.ranking)
        try:
            found = await self._stores.find(self._principal, self._asked.stores, sought)
        except APIError as error:
            raise ToolError(
                "unavailable", f"The files can't be searched: {error.message}"
            ) from None
        return Gave(_told(found), found)


def _told(found: Sequence[FileSource]) -> str:
    if not found:
        return "Nothing was found."
    blocks = [f"File: {each.filename}\nID: {each.file_id}\n{each.text}" for each in found]
    return "\n\n---\n\n".join([FILE_FORM, *blocks])
