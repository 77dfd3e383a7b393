"""Files, each its key's alone: what is known of them in the storage, and their contents."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO

from llama_compat.distribution import FilesSettings
from llama_compat.errors import APIError
from llama_compat.going_on import going_on
from llama_compat.media.documents import ANY_TYPE
from providers.base import ProviderStartError
from routing.batches.contents import Contents, ContentWriter, contents_of
from routing.batches.file_rows import COLUMNS, StoredFile, lock_files, note
from routing.batches.journal.rows import OPEN
from routing.batches.tables import MIGRATIONS
from routing.storage.once import kept_once
from routing.storage.outage import open_or_wait
from routing.storage.outage import unavailable as store_unavailable
from routing.storage.pages import Cursor, PageStart, page_of
from routing.storage.storage import Storage, StorageError, Transaction, open_storage

log = logging.getLogger(__name__)

BATCH_OUTPUT = "batch_output"
"""What a file is for that a batch made."""

HIDDEN = "hidden"
"""What a file is for that no client asked for: it is found by what it belongs to alone."""

PIECE_BYTES = 1 << 20
"""Files are written and read in pieces of about so much."""

SWEEP_SECONDS = 60.0


_COLUMNS = ", ".join(COLUMNS)

_THERE = "owner = ? AND (expires IS NULL OR expires > ?)"

_IN_USE = f"SELECT 1 FROM batches WHERE status IN {OPEN} AND input_file ="
"""Followed by a file: whether a batch reads it that has not ended."""


class FileStore:
    """The files, from `start` to `stop`. Whoever is not the owner of a file finds none.

    Args:
        settings: where contents lie, and how much of them.
        address: of the storage of the template.
        clock: the time in seconds since 1970; that of the storage if none is given.
        sweeps: whether to forget files that have expired, whoever made them.

    Attributes:
        storage: that; the journal of batches is in it, too.

    Raises:
        ProviderStartError: a package is missing.
    """

    def __init__(
        self,
        settings: FilesSettings,
        address: str,
        clock: Callable[[], float] | None = None,
        *,
        sweeps: bool = True,
    ) -> None:
        self.settings = settings
        self._sweeps = sweeps
        self._contents: Contents = contents_of(settings)
        try:
            self.storage: Storage = open_storage(address, [MIGRATIONS])
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}.") from None
        self._clock = clock or self.storage.now
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the place of the contents, and the storage; one that is away, later.

        Raises:
            ProviderStartError: one can't be used.
        """
        try:
            await asyncio.to_thread(self._contents.start)
        except Exception as error:  # of fsspec's packages each has its own
            raise ProviderStartError(f"`server.files`: can't be used: {error}") from None
        try:
            await open_or_wait(self.storage, "Files")
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}") from None
        if self._sweeps:
            self._sweeping = asyncio.create_task(going_on("expired files", self._sweep))

    async def stop(self) -> None:
        """Close the storage."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.storage.stop()

    # Writing --------------------------------------------------------------------------------------

    async def begin(self, owner: str, file_id: str = "", *, bounded: bool = True) -> NewFile:
        """Begin a file; whoever does keeps or discards it.

        Args:
            owner: the id of the key that it belongs to.
            file_id: one that is made if this is empty.
            bounded: whether it has to be within what the template lets a file and a key have.

        Raises:
            APIError: 503, it can't be written now.
        """
        room = None
        if bounded:
            with unavailable():
                room = self.settings.max_key_bytes - await self._used(self.storage, owner)
        file_id = file_id or new_id()
        with _unwritable():
            writer = await asyncio.to_thread(self._contents.writer, file_id)
        return NewFile(self, owner, file_id, writer, room)

    async def keep(self, file: StoredFile, *, bounded: bool) -> None:
        """Note a file whose content is there.

        Raises:
            APIError: 413, the key has too much with it; 503.
        """

        async def keep(transaction: Transaction) -> None:
            if bounded:
                await transaction.alone(f"files of {file.owner}")
                used = await self._used(transaction, file.owner)
                if used + file.bytes > self.settings.max_key_bytes:
                    raise _key_is_full(self.settings.max_key_bytes)
            await note(transaction, file)

        with unavailable():
            await kept_once(self.storage, ("SELECT 1 FROM files WHERE id = ?", file.id), keep)

    async def _used(self, storage: Storage | Transaction, owner: str) -> int:
        ((used,),) = await storage.fetch(
            f"SELECT coalesce(sum(bytes), 0) FROM files WHERE {_THERE}", owner, self._clock()
        )
        return int(used)

    # Reading --------------------------------------------------------------------------------------

    async def get(self, owner: str, file_id: str, *, hidden: bool = False) -> StoredFile:
        """A file; a `HIDDEN` one only for who asks for those.

        Raises:
            APIError: 404, the owner has none of this id; 503.
        """
        with unavailable():
            rows = await self.storage.fetch(
                f"SELECT {_COLUMNS} FROM files WHERE id = ? AND {_THERE}",
                file_id,
                owner,
                self._clock(),
            )
        file = StoredFile(*rows[0]) if rows else None
        if file is None or (file.purpose == HIDDEN and not hidden):
            raise file_not_found(file_id)
        return file

    async def page(
        self,
        owner: str,
        *,
        purpose: str | None,
        cursor: Cursor | None,
        limit: int,
        ascending: bool,
    ) -> tuple[list[StoredFile], bool]:
        """Up to `limit` files of the owner by age, and whether there are more.

        Args:
            owner: the id of a key.
            purpose: only those for this.
            cursor: beside which file they are.
            limit: how many.
            ascending: the oldest first.

        Raises:
            APIError: 404, there is no such file; 503.
        """
        condition, values = f"{_THERE} AND purpose <> ?", [owner, self._clock(), HIDDEN]
        if purpose is not None:
            condition, values = f"{condition} AND purpose = ?", [*values, purpose]
        place = None
        if cursor is not None:
            beside = await self.get(owner, cursor.row)
            place = PageStart(beside.created, beside.id, cursor.backwards)
        with unavailable():
            rows, more = await page_of(
                self.storage,
                f"SELECT {_COLUMNS} FROM files WHERE {condition}",
                values,
                limit=limit,
                ascending=ascending,
                place=place,
            )
        return [StoredFile(*row) for row in rows], more

    async def content(self, file_id: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """What is in a file, piece by piece.

        Raises:
            APIError: 404, it was deleted since it was looked for; 503, it can't be read.
        """
        file: BinaryIO | None = None
        with unreadable():
            try:
                file = await asyncio.to_thread(self._contents.open, file_id, offset)
            except FileNotFoundError:
                if await self.storage.fetch("SELECT 1 FROM files WHERE id = ?", file_id):
                    raise
        if file is None:
            raise file_not_found(file_id)
        try:
            while True:
                with unreadable():
                    piece = await asyncio.to_thread(file.read, PIECE_BYTES)
                if not piece:
                    return
                yield piece
        finally:
            await asyncio.to_thread(file.close)

    async def opened(self, file_id: str) -> BinaryIO:
        """A file, for who reads it here and there, in threads, and closes it.

        Raises:
            APIError: 503, it can't be read.
        """
        with unreadable():
            return await asyncio.to_thread(self._contents.open, file_id)

    # Forgetting -----------------------------------------------------------------------------------

    async def delete(self, owner: str, file_id: str, *, hidden: bool = False) -> None:
        """Forget a file; as `get`.

        Raises:
            APIError: 404, the owner has none of this id; 409, a batch is reading it; 503.
        """
        await self.get(owner, file_id, hidden=hidden)
        with unavailable():
            async with self.storage.transaction() as transaction:
                if not await lock_files(transaction, "id = ?", file_id):
                    raise file_not_found(file_id)  # somebody else was sooner
                if await transaction.fetch(f"{_IN_USE} ?", file_id):
                    raise APIError(
                        409,
                        f"File '{file_id}' is the input of a batch that has not ended. Cancel the"
                        " batch, or wait for its end.",
                        code="file_in_use",
                    )
                await transaction.fetch("DELETE FROM files WHERE id = ?", file_id)
        await self.remove(file_id)

    async def delete_hidden(self, owner: str, file_id: str) -> None:
        """Forget a file that no client knows, and that may be forgotten by now.

        Raises:
            APIError: 409, a batch is reading it; 503.
        """
        try:
            await self.delete(owner, file_id, hidden=True)
        except APIError as error:
            if error.status != 404:
                raise

    async def abandon(self, file_id: str) -> None:
        """Leave nothing of a file that nobody was told of, be it noted or not: who waited for its
        COMMIT may have left, or the database."""
        with suppress(APIError), unavailable():
            async with self.storage.transaction() as transaction:
                await transaction.fetch("DELETE FROM files WHERE id = ?", file_id)
        await self.remove(file_id)

    async def remove(self, file_id: str) -> None:
        """Remove the content of a file that nobody can find any more."""
        try:
            await asyncio.to_thread(self._contents.delete, file_id)
        except OSError as error:
            log.error("what was in file %s stays where it is: %s", file_id, error)

    async def _sweep(self) -> None:
        while True:
            with suppress(APIError):  # which has been logged, and may be over by the next time
                with unavailable():
                    now = self._clock()
                    async with self.storage.transaction() as transaction:
                        await lock_files(transaction, "expires <= ?", now)
                        gone = await transaction.fetch(
                            "DELETE FROM files WHERE expires <= ?"
                            f" AND NOT EXISTS ({_IN_USE} files.id) RETURNING id",
                            now,
                        )
                for (file_id,) in gone:
                    await self.remove(file_id)
            await asyncio.sleep(SWEEP_SECONDS)

    @property
    def scratch(self) -> str | None:
        """The folder for what is on this machine for a while, with the files where they are in
        one; None for the system's."""
        return None if self.settings.url is not None else self.settings.path

    def now(self) -> float:
        """In seconds since 1970."""
        return self._clock()


class NewFile:
    """A file that is being written. Nobody finds it before it is kept.

    Args:
        store: whose it is.
        owner: the id of the key that it belongs to.
        file_id: its id.
        writer: of its content.
        room: bytes that the key may have more; None where it is not bounded.

    Attributes:
        id: its id.
        size: bytes that it has.
    """

    def __init__(
        self, store: FileStore, owner: str, file_id: str, writer: ContentWriter, room: int | None
    ) -> None:
        self.id = file_id
        self.size = 0
        self._store = store
        self._owner = owner
        self._writer = writer
        self._room = room

    async def write(self, data: bytes) -> None:
        """Append `data`.

        Raises:
            APIError: 413, that is too much; 503, it can't be written.
        """
        self.size += len(data)
        if self._room is not None:
            if self.size > self._store.settings.max_bytes:
                raise file_too_large(self._store.settings.max_bytes)
            if self.size > self._room:
                raise _key_is_full(self._store.settings.max_key_bytes)
        with _unwritable():
            await asyncio.to_thread(self._writer.write, data)

    async def keep(
        self, filename: str, purpose: str, seconds: float | None, media_type: str = ANY_TYPE
    ) -> StoredFile:
        """It is whole; after `seconds` it expires.

        Raises:
            APIError: 413, the key has too much with it; 503.
        """
        file = await self.committed(filename, purpose, seconds, media_type)
        try:
            await self._store.keep(file, bounded=self._room is not None)
        except BaseException:
            await self._store.abandon(self.id)
            raise
        return file

    async def committed(
        self, filename: str, purpose: str, seconds: float | None, media_type: str = ANY_TYPE
    ) -> StoredFile:
        """Its content is whole; whoever asks for this notes it (`note`). Otherwise as `keep`.

        Raises:
            APIError: 503, it can't be written.
        """
        with _unwritable():
            await asyncio.to_thread(self._writer.commit)
        now = self._store.now()
        expires = None if seconds is None else now + seconds
        return StoredFile(
            self.id, self._owner, filename, purpose, self.size, now, expires, media_type
        )

    async def discard(self) -> None:
        """Leave nothing of it, unless it has been kept."""
        with suppress(OSError):
            await asyncio.to_thread(self._writer.discard)


def new_id() -> str:
    """An id that nobody can guess."""
    return f"file-{os.urandom(12).hex()}"


_ID = re.compile(r"file-[0-9a-f]{24}")


def is_id(value: str) -> bool:
    """Whether `value` is the id of a file that was uploaded here, there or not, and no vendor's."""
    return _ID.fullmatch(value) is not None


def file_not_found(file_id: str, param: str = "file_id") -> APIError:
    """404: the caller has no file of this id."""
    return APIError(
        404,
        f"No such file: '{file_id[:100]}'. It was never uploaded with this key, was deleted, or has"
        " expired.",
        type="invalid_request_error",
        param=param,
        code="file_not_found",
    )


def file_too_large(limit: int) -> APIError:
    """413: more than one file may have."""
    return APIError(
        413,
        f"A file may have {limit} bytes at most. Split it into several, or have `server.files`"
        " `max_bytes` raised.",
        param="file",
        code="file_too_large",
    )


def _key_is_full(limit: int) -> APIError:
    return APIError(
        413,
        f"The files of this key may have {limit} bytes together. Delete some that are not needed"
        " any more.",
        param="file",
        code="files_too_large",
    )


unavailable = partial(store_unavailable, "Files and batches")
"""Where the storage is used: what goes wrong with it is logged, and told as 503."""


@contextmanager
def _unusable(what: str, done: str) -> Iterator[None]:
    """Where contents of files are used: what goes wrong with their file system is logged.

    Args:
        what: is written or read.
        done: which of the two, for the message.

    Raises:
        APIError: 503, as where the storage is away, see `unavailable`.
    """
    try:
        yield
    except Exception as error:  # of fsspec's packages each has its own
        log.exception("%s can't be %s", what, done)
        raise APIError(
            503,
            f"{what.capitalize()} can't be {done} now; the server's log says why. Ask again later.",
            code="store_unavailable",
        ) from error


_unwritable = partial(_unusable, "a file", "written")

unreadable = partial(_unusable, "what is in a file", "read")
"""Where the content of a file is read."""
