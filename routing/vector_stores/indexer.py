"""Who makes pieces of files in this process, with all others that have the same storage.

look: say that we are alive; take files that nobody works on; forget what was taken out
  |
  v
index:  read the file -> pieces -> vectors -> write      (one task a file)
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from llama_compat.errors import APIError
from llama_compat.going_on import going_on
from routing.batches.files import FileStore
from routing.storage.looking import Looking
from routing.storage.storage import StorageError
from routing.vector_stores.candidates import normalized
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.embedding import TextEmbedder
from routing.vector_stores.entries.key_room import KeyIsFull
from routing.vector_stores.entries.removal import EntryRemoval
from routing.vector_stores.entries.rows import EntryRow
from routing.vector_stores.entries.work import EntryLost, EntryWork
from routing.vector_stores.extraction import pieces_of
from routing.vector_stores.formats import UnreadableFile
from routing.vector_stores.stores import StoreTable

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""How often it is seen what has expired."""

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 120.0
"""How long a file waits that was tried in vain: at first, and at most."""


class Indexer:
    """Works on the files of one storage, from `serve` to `stop`.

    Args:
        stores: whose files they are.
        work: what is done to them.
    """

    def __init__(self, stores: StoreTable, work: EntryWork) -> None:
        self._stores = stores
        self._work = work
        self._removal = EntryRemoval(stores.storage)
        self._files: FileStore = stores.files
        self._settings = stores.settings
        self._embedder: TextEmbedder | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._looking = Looking("vector stores", self._look, stores.settings.lease_seconds)
        self._tidying: asyncio.Task[None] | None = None
        self._beaten = 0.0
        self._swept = -SWEEP_SECONDS
        self._stopping = False

    def serve(self, embedder: TextEmbedder) -> None:
        """Have vectors made by `embedder` from now on."""
        self._embedder = embedder
        self._looking.start()

    def wake(self) -> None:
        """See at once what there is to do."""
        self._looking.wake()

    def begin_none(self) -> None:
        """Take no other file."""
        self._stopping = True

    async def stop(self) -> None:
        """Leave what is begun to others, or to the next start."""
        self._stopping = True
        await self._looking.stop()
        tasks = list(self._tasks.values())
        if self._tidying is not None:
            tasks.append(self._tidying)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Looking --------------------------------------------------------------------------------------

    async def _look(self) -> None:
        now = time.monotonic()
        if now >= self._beaten + self._looking.beat_seconds:
            await self._beat()
            self._beaten = now
        if now >= self._swept + SWEEP_SECONDS:
            await self._stores.expire()
            await self._removal.without_files()
            self._swept = now
        await self._take()
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(
                going_on("vector stores' rest", self._tidy), name="vector stores' rest"
            )

    async def _tidy(self) -> None:
        try:
            while await self._removal.tidy():
                pass
        except StorageError as error:
            self._looking.outage.failed(str(error))

    async def _beat(self) -> None:
        kept = await self._work.keep(list(self._tasks))
        for entry, task in self._tasks.items():
            if entry not in kept:
                task.cancel()

    async def _take(self) -> None:
        room = self._settings.concurrency - len(self._tasks)
        if room <= 0 or self._stopping or self._embedder is None:
            return
        for entry in await self._work.claim(room):
            task = asyncio.create_task(self._index(entry), name=f"index {entry.file}")
            self._tasks[entry.entry] = task
            task.add_done_callback(partial(self._ended, entry.entry))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._looking.wake()

    # One file -------------------------------------------------------------------------------------

    async def _index(self, entry: EntryRow) -> None:
        """Do what is to do for a file, and note what came of it. Where the storage is away nothing
        can be noted: the file is taken again when the lease has run out."""
        try:
            try:
                await self._pieces(entry)
            except (UnreadableFile, KeyIsFull) as error:
                code = getattr(error, "code", "server_error")
                await self._work.failed(entry, code, str(error))
            except APIError as error:
                await self._gave_up(entry, error)
            except asyncio.CancelledError:
                with suppress(StorageError):
                    await self._work.release(entry, 0.0, counts=False)
                raise
        except EntryLost:
            pass
        except StorageError as error:
            self._looking.outage.failed(str(error))
        except Exception:
            log.exception("file %s can't be put into vector store %s", entry.file, entry.store)
            with suppress(StorageError, EntryLost):
                message = "The server had an error while it read the file; its log has the details."
                await self._work.failed(entry, "server_error", message)

    async def _gave_up(self, entry: EntryRow, error: APIError) -> None:
        """A file was tried in vain; unless the reason will be the same, it is tried later."""
        attempts = await self._work.attempts(entry)
        if not error.error_class.handling.passes or attempts >= self._settings.attempts:
            await self._work.failed(entry, "server_error", error.message)
            return
        wait = min(FIRST_WAIT_SECONDS * 2 ** (attempts - 1), LONGEST_WAIT_SECONDS)
        wait = max(wait, min(error.retry_after or 0.0, LONGEST_WAIT_SECONDS))
        log.warning(
            "file %s is put into vector store %s later: %s", entry.file, entry.store, error.message
        )
        await self._work.release(entry, wait * random.uniform(0.8, 1.2), counts=True)

    async def _pieces(self, entry: EntryRow) -> None:
        """Write all pieces of a file that are not written.

        Raises:
            UnreadableFile, KeyIsFull: there will be none.
            APIError: the file, or vectors, can't be had.
            EntryLost: it is this worker's no more.
        """
        if entry.attempts > self._settings.attempts:
            # Whoever tried did not live to say why.
            raise UnreadableFile(
                "server_error", "The server's process ended each time that it read the file."
            )
        settings, model = self._settings, await self._work.model_of(entry)
        chunks = await pieces_of(
            entry.filename,
            await self._content(entry),
            size=entry.chunk_tokens,
            overlap=entry.overlap_tokens,
            seconds=settings.read_seconds,
        )
        if len(chunks) > settings.max_file_chunks:
            raise UnreadableFile(
                "invalid_file",
                f"The file comes to {len(chunks)} pieces, and may to {settings.max_file_chunks}."
                " Split it, or ask for larger pieces ('chunking_strategy').",
            )
        done = await self._work.done_before(entry, chunks)
        while done < len(chunks):
            together = chunks[done : done + settings.embed_together]
            await self._embed(entry, model, done, together)
            done += len(together)
        await self._work.completed(entry)

    async def _content(self, entry: EntryRow) -> bytes:
        file = await self._files.get(entry.owner, entry.file)
        most = self._settings.max_file_bytes
        if file.bytes > most:
            raise UnreadableFile(
                "invalid_file", f"The file has {file.bytes} bytes, and may have {most}. Split it."
            )
        return b"".join([piece async for piece in self._files.content(entry.file)])

    async def _embed(
        self, entry: EntryRow, model: str, number: int, chunks: Sequence[TextChunk]
    ) -> None:
        assert self._embedder is not None
        principal = await self._embedder.principal(entry.owner)
        if principal is None:
            if self._embedder.knows_keys:
                raise UnreadableFile(
                    "server_error",
                    "The key of this vector store opens nothing any more: it was revoked, or has"
                    " expired.",
                )
            raise APIError(503, "The stored keys can't be read now.", code="store_unavailable")
        texts = [each.text for each in chunks]
        vectors = await self._embedder.embed(model, texts, principal, can_wait=True)
        array = await asyncio.to_thread(normalized, vectors)
        await self._work.write(entry, number, chunks, array)
