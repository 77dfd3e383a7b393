"""The vector stores of a template: started and stopped with its runtime."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from llama_compat.errors import shutting_down
from llama_compat.exchange import Principal
from llama_compat.hosted.asked.file_search import FileQuery
from llama_compat.hosted.vocabulary import FileSource
from providers.base import ProviderStartError
from routing.storage.outage import open_or_wait
from routing.storage.storage import StorageAway, StorageError
from routing.vector_stores.candidates import candidates_of
from routing.vector_stores.embedding import TextEmbedder
from routing.vector_stores.entries.batches import FileBatches
from routing.vector_stores.entries.table import Entries
from routing.vector_stores.entries.work import EntryWork
from routing.vector_stores.indexer import Indexer
from routing.vector_stores.search import Searcher
from routing.vector_stores.stores import StoreTable, stores_unavailable


class VectorStores:
    """The stores, their files, who works on these, and who searches them.

    Args:
        stores: what there is, which nobody has started.

    Attributes:
        settings: of the template.
        stores: what there is.
        entries: the files of each.
        batches: those that were put in together.

    Raises:
        ProviderStartError: a package is missing.
    """

    def __init__(self, stores: StoreTable) -> None:
        self.settings = stores.settings
        self.stores = stores
        self._candidates = candidates_of(self.stores.storage, self.settings.memory_bytes)
        self.entries = Entries(stores)
        self.batches = FileBatches(stores.storage)
        self._indexer = Indexer(stores, EntryWork(stores, self._candidates))
        self._searcher = Searcher(self.stores, self._candidates)
        self._embedder: TextEmbedder | None = None

    async def start(self) -> None:
        """Open the storage; one that is away, later.

        Raises:
            ProviderStartError: it can't be used.
        """
        try:
            await open_or_wait(self.stores.storage, "Vector stores")
            with suppress(StorageAway):
                await self._candidates.start()
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}") from None

    def serve(self, embedder: TextEmbedder) -> None:
        """Have vectors made by `embedder` from now on."""
        self._embedder = embedder
        self._indexer.serve(embedder)

    def begin_none(self) -> None:
        """Take no file any more: others see to them."""
        self._indexer.begin_none()

    async def stop(self) -> None:
        """Leave what is begun to others or to the next start, and close the storage."""
        await self._indexer.stop()
        await self.stores.storage.stop()

    def wake(self) -> None:
        """See at once what there is to do: a file was put in, or taken out."""
        self._indexer.wake()

    async def find(
        self, principal: Principal, store_ids: Sequence[str], sought: FileQuery
    ) -> list[FileSource]:
        """The pieces in some stores that fit best, as `Searcher.find` has them.

        Raises:
            APIError: as there; 503, the server stops or has not begun.
        """
        if self._embedder is None:
            raise shutting_down()
        return await self._searcher.find(self._embedder, principal, store_ids, sought)

    async def file_is_gone(self, file_id: str) -> None:
        """Take a file that was deleted out of all stores.

        Raises:
            APIError: 503.
        """
        with stores_unavailable():
            await self.entries.file_is_gone(file_id)
        self.wake()
