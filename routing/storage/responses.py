"""The replies that are kept, each its owner's alone: responses of the Responses API, and Google's
interactions. Both are called responses here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from llama_compat.distribution import ResponsesStoreSettings
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.going_on import going_on
from providers.base import ProviderStartError
from routing.storage.kept import RESPONSES_KEPT, AtVendor, KeptAPI, api_of
from routing.storage.kept_rows import (
    RESPONSES,
    RUNNING,
    TAKEN_OVER,
    Items,
    ReplyRow,
    RunningReplies,
    item_ids,
    marks,
    output_of,
    placed,
    replies_unavailable,
)
from routing.storage.once import kept_once
from routing.storage.outage import open_or_wait
from routing.storage.storage import (
    Row,
    StorageError,
    Transaction,
    open_storage,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CHAIN = 1000
"""As many responses may go on from one another."""

MAX_HISTORY_BYTES = 64 << 20
"""As large may the conversation be that a response goes on from."""

SWEEP_SECONDS = 60.0


class StoredResponse(Struct, frozen=True):
    """A response, and the items that it was an answer to.

    Attributes:
        at_vendor: who makes it, if that is a vendor; None where it is made here.
        is_left: whether a vendor makes it, and nobody here follows that any more.
    """

    response: dict[str, Any]
    input: Items
    at_vendor: AtVendor | None = None
    is_left: bool = False


class History(Struct, frozen=True):
    """A conversation that a response goes on from.

    Attributes:
        items: of it.
        lost: the id of the reply with which it begins no more, as that is not kept any longer.
    """

    items: Items = []
    lost: str | None = None


class ResponseStore:
    """The store, from `start` to `stop`. Whoever is not the owner of a response finds none.

    Args:
        settings: how long and how much, and where, if not in `address`.
        address: of the storage of the template.
        clock: the time in seconds since 1970; that of the storage if none is given.

    Attributes:
        running: who works on those that run.
    """

    keeps = True
    """Whether what is saved is kept."""

    def __init__(
        self,
        settings: ResponsesStoreSettings,
        address: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        own = settings.path
        try:
            self._storage = open_storage(f"sqlite:{own}" if own else address, [RESPONSES])
        except StorageError as error:
            raise ProviderStartError(f"`server.storage`: {error}.") from None
        self._clock = clock or self._storage.now
        self.running = RunningReplies(self._storage, self._clock)
        self._sweeping: asyncio.Task[None] | None = None
        self._saving: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Open the storage; one that is away, later.

        Raises:
            ProviderStartError: it can't be opened.
        """
        own = self._settings.path
        if own:
            log.warning(
                "`server.responses_store.path` is the old way: responses are kept in"
                " `server.storage`, with all else that is kept, where it is left out"
            )
        try:
            await open_or_wait(self._storage, "Stored responses")
            if own:
                await self._take_over()
        except StorageError as error:
            where = "server.responses_store.path" if own else "server.storage"
            raise ProviderStartError(
                f"`{where}`: {error}. It has to be a database of this server's own, or a place"
                " where one can be made."
            ) from None
        self._sweeping = asyncio.create_task(going_on("old responses", self._sweep))

    async def stop(self) -> None:
        """Close it."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*self._saving, return_exceptions=True)
        await self._storage.stop()

    async def save(
        self,
        owner: str,
        response: Mapping[str, Any],
        input: Sequence[Mapping[str, Any]],
        previous: str | None = None,
        at_vendor: AtVendor | None = None,
    ) -> None:
        """Keep a response, and make room for it. A cancelled caller does not stop that.

        Args:
            owner: whose it is.
            response: the response object.
            input: the items that it answers.
            previous: the id of the response that it goes on from, if that is kept here.
            at_vendor: who makes it, if that is a vendor.

        Raises:
            APIError: 503, it could not be kept; 413, it is yet to be made, and is larger now than
                all that may be kept: nobody would ever see it.
        """
        row = ReplyRow.of(owner, response, input, previous, self._clock(), at_vendor)
        if row.size > self._settings.max_bytes:
            if row.status in RUNNING:
                raise APIError(
                    413,
                    f"The response can't be kept until it is done: with its input it has {row.size}"
                    f" bytes, and all that are kept come to {self._settings.max_bytes} at most,"
                    " `server.responses_store` `max_bytes`. Ask without 'background', or for less.",
                    param="background",
                    code="response_too_large",
                )
            _log_too_large(row.id, row.size)
            return
        await self._surely(self._save(row, item_ids(input, response)))

    async def complete(self, response: Mapping[str, Any], worker: str | None = None) -> bool:
        """Put the end of a background response in the place of what is kept of it. A cancelled
        caller does not stop that.

        Nothing happens where it has been cancelled or deleted meanwhile, or another worker has
        claimed it. One that is larger than all that may be kept has failed.

        Args:
            response: as it is at its end.
            worker: whose it has to be; None for whoever asks.

        Returns:
            Whether it is that worker's to say what has come of it.
        """
        return await self._surely(self._complete(response, worker))

    async def get(
        self, owner: str, response_id: str, api: KeptAPI = RESPONSES_KEPT
    ) -> StoredResponse:
        """A response of `api`.

        Raises:
            APIError: 404, the owner has none of this id.
        """
        _check_is(api, response_id)
        rows = await self._fetch(
            "SELECT response, input, status, alive_until, at_vendor FROM stored_responses"
            f" WHERE id = ? AND {_OWNED}",
            response_id,
            owner,
            self._oldest(),
        )
        if not rows:
            raise api.not_found(response_id)
        response, input, status, alive_until, place = rows[0]
        decoded = {**msgspec.json.decode(response), "status": status}
        at_vendor = placed(place)
        is_left = status in RUNNING and alive_until is not None and alive_until < self._clock()
        if is_left and at_vendor is None:
            decoded = await self.give_up(decoded)
        return StoredResponse(
            decoded, msgspec.json.decode(input), at_vendor, is_left and at_vendor is not None
        )

    async def at_vendor(self, owner: str, response_id: str) -> AtVendor | None:
        """Where the owner's response is made; None if here, or if there is none."""
        rows = await self._fetch(
            f"SELECT at_vendor FROM stored_responses WHERE id = ? AND {_OWNED}",
            response_id,
            owner,
            self._oldest(),
        )
        return placed(rows[0][0]) if rows else None

    async def delete(self, owner: str, response_id: str, api: KeptAPI = RESPONSES_KEPT) -> None:
        """Forget a response of `api`.

        Raises:
            APIError: 404, the owner has none of this id.
        """
        _check_is(api, response_id)
        async with self._writing() as transaction:
            condition = f"id = ? AND {_OWNED}"
            found = await _removed(transaction, condition, response_id, owner, self._oldest())
        if not found:
            raise api.not_found(response_id)

    async def cancel(
        self, owner: str, response_id: str, api: KeptAPI = RESPONSES_KEPT
    ) -> dict[str, Any]:
        """Mark a background response as cancelled, if it still runs; the response as it is then.

        Raises:
            APIError: 404, the owner has none of this id; 400, somebody waits for it.
        """
        response = (await self.get(owner, response_id, api)).response
        # An interaction does not say; one that somebody waits for has come to its end.
        if not response.get("background", True):
            raise invalid_parameter(
                "response_id",
                f"Only a response that runs in the background can be cancelled; close the"
                f" connection of '{response_id}' instead.",
            )
        if response["status"] in RUNNING:
            await self.complete({**response, "status": "cancelled"})
            # It may have come to its end in the meantime.
            response = (await self.get(owner, response_id, api)).response
        return response

    async def history(self, owner: str, response_id: str, api: KeptAPI = RESPONSES_KEPT) -> History:
        """The conversation that ends with a response of `api`: input and output of each, as far
        back as they are kept, where the API has that.

        Raises:
            APIError: 400, the last of the chain, or any that has to be, is not there, or the chain
                is too long.
        """
        if api_of(response_id) is not api:
            raise api.previous_not_found(response_id)
        oldest = self._oldest()
        chain = await self._fetch(_CHAIN, response_id, owner, oldest, owner, oldest, MAX_CHAIN + 1)
        if not chain:
            raise api.previous_not_found(response_id)
        if len(chain) > MAX_CHAIN or sum(size for *_, size in chain) > MAX_HISTORY_BYTES:
            raise _too_long(api, response_id)
        if any(status in RUNNING for _, _, status, _ in chain):
            raise api.still_running(response_id)
        ids, lost = [row[0] for row in chain], chain[-1][1] or None
        held = await self._held(ids)
        if gone := next((each for each in ids if each not in held), None):
            ids, lost = ids[: ids.index(gone)], gone  # It was deleted just now.
        if lost is not None and not (ids and api.outlives_earlier):
            raise api.previous_not_found(lost)
        return History([item for each in reversed(ids) for item in held[each]], lost)

    async def items(self, owner: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of the items with these ids that the owner's responses have."""
        wanted = list(dict.fromkeys(ids))
        rows = await self._fetch(
            "SELECT stored_items.id, min(stored_responses.id) FROM stored_items"
            " JOIN stored_responses ON stored_items.response = stored_responses.id"
            f" WHERE stored_items.id IN ({marks(wanted)}) AND {_OWNED} GROUP BY stored_items.id",
            *wanted,
            owner,
            self._oldest(),
        )
        held = await self._held(sorted({response for _, response in rows}))
        found = {item.get("id"): item for items in held.values() for item in items}
        return {item_id: found[item_id] for item_id in wanted if item_id in found}

    async def give_up(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """Have a response be failed that was made in a process that is gone; as it is then."""
        failed = api_of(response["id"]).failed(response, _GIVEN_UP)
        await self.complete(failed)
        return failed

    # Statements -----------------------------------------------------------------------------------

    def _oldest(self) -> float:
        return self._clock() - self._settings.ttl

    async def _surely(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, which a cancelled caller does not stop."""
        saving = asyncio.create_task(work)
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        return await asyncio.shield(saving)

    async def _fetch(self, statement: str, *values: Any) -> list[Row]:
        with replies_unavailable():
            return await self._storage.fetch(statement, *values)

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[Transaction, None]:
        with replies_unavailable():
            async with self._storage.transaction() as transaction:
                await _have_total(transaction)
                yield transaction

    async def _save(self, row: ReplyRow, item_ids: Sequence[str]) -> None:
        async def keep(transaction: Transaction) -> None:
            await _have_total(transaction)
            await _removed(transaction, "created < ?", self._oldest())
            await transaction.insert(
                "stored_responses", ReplyRow.__struct_fields__, [msgspec.structs.astuple(row)]
            )
            await _add(transaction, row.size)
            await _index(transaction, row.id, item_ids)
            await self._make_room(transaction)

        is_there = ("SELECT 1 FROM stored_responses WHERE id = ?", row.id)
        with replies_unavailable():
            await kept_once(self._storage, is_there, keep)

    async def _make_room(self, transaction: Transaction) -> None:
        while True:
            ((total,),) = await transaction.fetch("SELECT bytes FROM stored_total")
            if total <= self._settings.max_bytes:
                return
            oldest = "id IN (SELECT id FROM stored_responses ORDER BY created, id LIMIT 1)"
            await _removed(transaction, oldest)

    async def _complete(self, response: Mapping[str, Any], worker: str | None) -> bool:
        encoded = msgspec.json.encode(response)
        async with self._writing() as transaction:
            before = await transaction.fetch(
                "SELECT size, input_bytes, status, worker FROM stored_responses WHERE id = ?",
                response["id"],
            )
            if not before:
                return True  # it was deleted
            ((size, input_bytes, status, claimed_by),) = before
            if None not in (worker, claimed_by) and worker != claimed_by:
                return False
            if status not in RUNNING:
                return True
            if input_bytes + len(encoded) > self._settings.max_bytes:
                _log_too_large(response["id"], input_bytes + len(encoded))
                api = api_of(response["id"])
                response = api.failed({**response, api.output: []}, _TOO_LARGE)
                encoded = msgspec.json.encode(response)
            await transaction.fetch(
                "UPDATE stored_responses SET response = ?, status = ?, alive_until = NULL, size = ?"
                " WHERE id = ?",
                encoded,
                response["status"],
                input_bytes + len(encoded),
                response["id"],
            )
            await _add(transaction, input_bytes + len(encoded) - size)
            await _index(transaction, response["id"], item_ids((), response))
            await self._make_room(transaction)
        return True

    async def _held(self, ids: Sequence[str]) -> dict[str, Items]:
        """The items of each of these responses."""
        rows = await self._fetch(
            f"SELECT id, input, response FROM stored_responses WHERE id IN ({marks(ids)})", *ids
        )
        return {
            response_id: msgspec.json.decode(input)
            + output_of(response_id, msgspec.json.decode(response))
            for response_id, input, response in rows
        }

    async def _sweep(self) -> None:
        # At once, as many a process does not live for as long as it is until the next.
        while True:
            with suppress(APIError):  # which has been logged, and may be over by the next time
                async with self._writing() as transaction:
                    await _removed(transaction, "created < ?", self._oldest())
            await asyncio.sleep(min(SWEEP_SECONDS, self._settings.ttl))

    async def _take_over(self) -> None:
        """Bring in what a file holds that was made before there was one scheme for all."""
        async with self._storage.transaction() as transaction:
            if not await transaction.fetch("SELECT 1 FROM sqlite_master WHERE name = 'total'"):
                return
            for statement in TAKEN_OVER:
                await transaction.fetch(statement)


_OWNED = "owner = ? AND created >= ?"
_CHAIN = (
    "WITH RECURSIVE chain (id, previous, status, size, place) AS ("
    f"SELECT id, previous, status, size, 1 FROM stored_responses WHERE id = ? AND {_OWNED}"
    " UNION ALL"
    " SELECT one.id, one.previous, one.status, one.size, chain.place + 1"
    " FROM stored_responses one JOIN chain ON one.id = chain.previous"
    " WHERE one.owner = ? AND one.created >= ? AND chain.place < ?)"
    " SELECT id, previous, status, size FROM chain ORDER BY place"
)
"""A response, and those that it goes on from: the newest first."""


async def _removed(transaction: Transaction, condition: str, *values: Any) -> int:
    """Delete the responses of which `condition` is true; how many there were."""
    sizes = await transaction.fetch(
        f"DELETE FROM stored_responses WHERE {condition} RETURNING size", *values
    )
    if sizes:
        await _add(transaction, -sum(size for (size,) in sizes))
    return len(sizes)


async def _have_total(transaction: Transaction) -> None:
    """Who has the total writes; the others wait, so that no two wait for each other."""
    await transaction.fetch("UPDATE stored_total SET bytes = bytes")


async def _add(transaction: Transaction, size: int) -> None:
    await transaction.fetch("UPDATE stored_total SET bytes = bytes + ?", size)


async def _index(transaction: Transaction, response_id: str, item_ids: Sequence[str]) -> None:
    await transaction.execute_many(
        "INSERT INTO stored_items (id, response) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(item_id, response_id) for item_id in item_ids],
    )


_GIVEN_UP = {
    "code": "server_error",
    "message": "The process that worked on this response has ended. Ask again.",
}

_TOO_LARGE = {
    "code": "server_error",
    "message": "It became larger than all that may be kept, `server.responses_store` `max_bytes`."
    " Ask again without 'background', or for less.",
}


def _log_too_large(response_id: str, size: int) -> None:
    log.warning("response %s is not kept: its %s bytes are more than max_bytes", response_id, size)


def _check_is(api: KeptAPI, response_id: str) -> None:
    if api_of(response_id) is not api:
        raise api.not_found(response_id)


def _too_long(api: KeptAPI, response_id: str) -> APIError:
    return invalid_parameter(
        api.previous,
        f"The conversation that ends with '{response_id}' is longer than {MAX_CHAIN} {api.noun}s or"
        f" {MAX_HISTORY_BYTES} bytes. Compact it, and begin a new one with what that gives.",
        "conversation_too_long",
    )
