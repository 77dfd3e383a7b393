"""What a connection knows of the responses that were made on it: a conversation goes on from them
although nobody stored them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import encode_json
from routing.allowance import Allowance
from routing.storage.kept import RESPONSES_KEPT, KeptAPI
from routing.storage.kept_rows import Items
from routing.storage.responses import History, ResponseStore

REMEMBERED = 32
"""So many responses a connection knows; the one that was gone on from longest ago makes room."""


class RecalledTurn(Struct, eq=False, frozen=True):
    """The items of one request and its response, as JSON; conversations that go on from it share
    them."""

    items: bytes


class Known(Struct, eq=False, frozen=True):
    """One response.

    Attributes:
        turns: the conversation that ends with it.
        at_vendor: whether a vendor keeps it too, and can go on from its id.
        stored: whether it is in the store too.
    """

    turns: tuple[RecalledTurn, ...]
    at_vendor: bool = False
    stored: bool = False


class ConnectionMemory:
    """The responses of one connection, as long as it lasts.

    Args:
        limit: bytes that they may come to.
        room: of that, what there is for all connections.
    """

    def __init__(self, limit: int, room: Allowance) -> None:
        self._limit = limit
        self._room = room
        self._known: dict[str, Known] = {}
        self._uses: dict[RecalledTurn, int] = {}
        self.size = 0

    def find(self, response_id: str) -> Known | None:
        """One response, which is the newest then."""
        known = self._known.pop(response_id, None)
        if known is not None:
            self._known[response_id] = known
        return known

    def keep(self, response_id: str, known: Known) -> None:
        """Know one more. What is older makes room for it; where that is not enough it is not
        known."""
        self.forget(response_id)
        self._known[response_id] = known
        for turn in known.turns:
            uses = self._uses.get(turn, 0)
            self._uses[turn] = uses + 1
            if not uses:
                self.size += len(turn.items)
        while len(self._known) > REMEMBERED or self.size > self._limit:
            self._forget_oldest()
        while self._known:
            try:
                self._room.grow_to(self.size)
            except APIError:
                self._forget_oldest()
            else:
                break

    def forget(self, response_id: str) -> None:
        """Know one no more."""
        known = self._known.pop(response_id, None)
        for turn in known.turns if known is not None else ():
            self._uses[turn] -= 1
            if not self._uses[turn]:
                del self._uses[turn]
                self.size -= len(turn.items)
        self._room.shrink_to(self.size)

    def clear(self) -> None:
        """Know none any more."""
        while self._known:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self.forget(next(iter(self._known)))

    def items(self) -> Items:
        """Those of all responses."""
        return [item for turn in self._uses for item in msgspec.json.decode(turn.items)]


class Recall:
    """What one request finds of earlier responses, and leaves to later ones: first on its
    connection, then in the store.

    It is the store to the layer that continues conversations.

    Args:
        memory: the connection's.
        store: where responses are kept for longer; None where they are not.
        previous: the response that the request goes on from.
    """

    def __init__(
        self, memory: ConnectionMemory, store: ResponseStore | None, previous: str | None
    ) -> None:
        self._memory = memory
        self._store = store
        self._previous = previous
        self._earlier: tuple[RecalledTurn, ...] | None = None if previous else ()
        self._asked: Items = []
        self._is_relayed = False
        self._is_stored = False

    @property
    def keeps(self) -> bool:
        """Whether what is saved is kept."""
        return self._store is not None

    def is_at_vendor(self, response_id: str) -> bool:
        """Whether a vendor is known to go on from the id of a response."""
        known = self._memory.find(response_id)
        if known is None or not known.at_vendor:
            return False
        self._earlier = known.turns
        return True

    # What the request finds -----------------------------------------------------------------------

    async def history(self, owner: str, response_id: str, api: KeptAPI = RESPONSES_KEPT) -> History:
        """The conversation that ends with a response.

        Raises:
            APIError: 400, it is known nowhere, or is too long.
        """
        known = self._memory.find(response_id)
        if known is not None:
            self._earlier = known.turns
            size = sum(len(turn.items) for turn in known.turns)
            return History(await off_loop(size, _decoded, known.turns))
        if self._store is None:
            raise _not_known(response_id)
        history = await self._store.history(owner, response_id, api)
        self._earlier = (RecalledTurn(encode_json(history.items)),)
        return history

    async def items(self, owner: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of the items with these ids that are known."""
        wanted = set(ids)
        found = await off_loop(self._memory.size, self._memory.items)
        known = {item["id"]: item for item in found if item.get("id") in wanted}
        missing = wanted - known.keys()
        if missing and self._store is not None:
            known |= await self._store.items(owner, missing)
        return known

    # What it leaves -------------------------------------------------------------------------------

    async def save(
        self,
        owner: str,
        response: Mapping[str, Any],
        input: Sequence[Mapping[str, Any]],
        previous: str | None = None,
    ) -> None:
        """Keep a response for longer; that the connection knows it is `answered`'s to see to."""
        if self._store is None:
            return
        known = self._memory.find(previous) if previous else None
        if known is not None and not known.stored:
            # Nobody else will find what this one goes on from.
            size = sum(len(turn.items) for turn in known.turns)
            earlier = await off_loop(size, _decoded, known.turns)
            input, previous = [*earlier, *input], None
        await self._store.save(owner, response, input, previous)
        self._is_stored = True

    def asks(self, items: Items) -> None:
        """These items are the request's own."""
        self._asked = items

    def relayed(self) -> None:
        """A vendor answers it that speaks the API itself."""
        self._is_relayed = True

    def answered(self, response: Mapping[str, Any]) -> None:
        """The request has come to this response, which its client may go on from."""
        response_id, output = response.get("id"), response.get("output")
        if not isinstance(response_id, str) or not isinstance(output, list):
            return
        # Of a conversation whose beginning only a vendor has, nothing can be gone on from here.
        if self._earlier is not None:
            turn = RecalledTurn(encode_json([*self._asked, *output]))
            known = Known(
                (*self._earlier, turn),
                at_vendor=self._is_relayed and response.get("store") is True,
                stored=self._is_stored,
            )
            self._memory.keep(response_id, known)

    def failed(self) -> None:
        """The request has failed: its client has to begin anew, as the specification has it."""
        if self._previous is not None:
            self._memory.forget(self._previous)


def _not_known(response_id: str) -> APIError:
    return invalid_parameter(
        "previous_response_id",
        f"The response '{response_id}' is not known on this connection: it was made on another, a"
        " request that went on from it failed, or it had to make room. Send the whole conversation"
        " in 'input'.",
        "previous_response_not_found",
    )


def _decoded(turns: Sequence[RecalledTurn]) -> Items:
    return [item for turn in turns for item in msgspec.json.decode(turn.items)]
