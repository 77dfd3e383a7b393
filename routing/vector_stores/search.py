"""What is found in vector stores: by words and by meaning, in one order.

                 +-- words ----> by_words  ---+
query -- files --|                            +-- fused -- score, threshold -- texts
                 +-- vector ---> by_vector ---+
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from llama_compat.exchange import Principal
from llama_compat.hosted.asked.file_search import FileQuery
from llama_compat.hosted.asked.filters import passes
from llama_compat.hosted.vocabulary import AttributeFilter, FileSource, Ranking
from routing.vector_stores.candidates import Candidates, Near, Visible, normalized, words_of
from routing.vector_stores.embedding import TextEmbedder
from routing.vector_stores.fusion import fused
from routing.vector_stores.stores import (
    StoreTable,
    VectorStoreRow,
    store_has_expired,
    store_not_found,
    stores_unavailable,
)

LOOKED_AT = 200
"""So many of the best of each order are put together."""


class _File(Struct):
    visible: Visible
    file_id: str
    filename: str
    attributes: dict[str, Any]


class Searcher:
    """Searches stores.

    Args:
        stores: those there are.
        candidates: their pieces.
    """

    def __init__(self, stores: StoreTable, candidates: Candidates) -> None:
        self._stores = stores
        self._storage = stores.storage
        self._candidates = candidates

    async def find(
        self,
        embedder: TextEmbedder,
        principal: Principal,
        store_ids: Sequence[str],
        sought: FileQuery,
    ) -> list[FileSource]:
        """The pieces that fit best, the best first.

        Args:
            embedder: makes vectors of the queries.
            principal: whose stores they are.
            store_ids: the stores.
            sought: what is looked for.

        Raises:
            APIError: 404, one is none of the principal's stores; 400, one has expired; what the
                embedding model's provider raises; 503.
        """
        # Halves of characters are nowhere, and no database or vendor takes them.
        whole = [each.encode("utf-8", "replace").decode() for each in sought.queries]
        sought = structs.replace(sought, queries=whole)
        stores = await self._open(principal, store_ids)
        await self._stores.used(stores)
        files = await self._files(stores, sought.filter)
        by_model: dict[str, list[Visible]] = {}
        models = {each.id: each.model for each in stores}
        for file in files.values():
            by_model.setdefault(models[file.visible.store], []).append(file.visible)
        found = await asyncio.gather(
            *(
                self._orders(embedder, principal, model, visible, sought)
                for model, visible in by_model.items()
            )
        )
        scores = _scores(found, sought.ranking)
        best = [each for each in scores.items() if each[1] >= sought.ranking.threshold]
        return await self._told(best[: sought.limit], files)

    async def _open(self, principal: Principal, store_ids: Sequence[str]) -> list[VectorStoreRow]:
        stores = await self._stores.owned(principal.id, store_ids)
        if len(stores) < len(store_ids):
            there = {each.id for each in stores}
            raise store_not_found(next(each for each in store_ids if each not in there))
        for store in stores:
            if store.has_expired(self._stores.now()):
                raise store_has_expired(store.id)
        return stores

    async def _files(
        self, stores: Sequence[VectorStoreRow], filter: AttributeFilter | None
    ) -> dict[int, _File]:
        """The files in which something may be found, by their numbers."""
        marks = ", ".join("?" * len(stores))
        with stores_unavailable():
            rows = await self._storage.fetch(
                "SELECT entry, chunks, store, file, filename, attributes FROM vector_store_files"
                f" WHERE store IN ({marks}) AND status = 'completed' AND EXISTS (SELECT 1 FROM"
                " files WHERE files.id = vector_store_files.file"
                " AND files.owner = vector_store_files.owner"
                " AND (files.expires IS NULL OR files.expires > ?)) ORDER BY entry",
                *(each.id for each in stores),
                self._stores.now(),
            )
        files = {}
        for entry, chunks, store, file, filename, encoded in rows:
            attributes = msgspec.json.decode(encoded)
            if filter is None or passes(filter, attributes):
                visible = Visible(entry, chunks, store)
                files[entry] = _File(visible, file, filename, attributes)
        return files

    async def _orders(
        self,
        embedder: TextEmbedder,
        principal: Principal,
        model: str,
        visible: Sequence[Visible],
        sought: FileQuery,
    ) -> tuple[list[Near], list[list[int]]]:
        """What is near each query, and what has its words."""
        ranking = sought.ranking
        vectors = []
        if not ranking.by_words or ranking.embedding_weight > 0:
            answer = await embedder.embed(model, sought.queries, principal)
            vectors = list(await asyncio.to_thread(normalized, answer))
        with stores_unavailable():
            near = [
                await self._candidates.by_vector(visible, vector, LOOKED_AT) for vector in vectors
            ]
            having = []
            if ranking.by_words and ranking.text_weight > 0:
                having = [
                    await self._candidates.by_words(visible, words_of(query), LOOKED_AT)
                    for query in sought.queries
                ]
        return near, having

    async def _told(
        self, best: Sequence[tuple[int, float]], files: dict[int, _File]
    ) -> list[FileSource]:
        if not best:
            return []
        marks = ", ".join("?" * len(best))
        with stores_unavailable():
            rows = await self._storage.fetch(
                f"SELECT id, entry, text FROM vector_store_chunks WHERE id IN ({marks})",
                *(chunk for chunk, _ in best),
            )
        texts = {chunk: (entry, text) for chunk, entry, text in rows}
        told = []
        for chunk, score in best:
            if chunk in texts:  # It may have been taken out since.
                entry, text = texts[chunk]
                file = files[entry]
                told.append(
                    FileSource(
                        file.file_id,
                        file.filename,
                        text,
                        round(score, 6),
                        file.attributes,
                        file.visible.store,
                    )
                )
        return told


def _scores(
    found: Sequence[tuple[list[Near], list[list[int]]]], ranking: Ranking
) -> dict[int, float]:
    if ranking.by_words:
        return fused(
            [
                *(
                    (ranking.embedding_weight, [chunk for chunk, _ in each])
                    for near, _ in found
                    for each in near
                ),
                *((ranking.text_weight, order) for _, having in found for order in having),
            ]
        )
    alike: dict[int, float] = {}
    for near, _ in found:
        for each in near:
            for chunk, cosine in each:
                alike[chunk] = max(alike.get(chunk, 0.0), min(1.0, cosine))
    return dict(sorted(alike.items(), key=lambda item: -item[1]))
