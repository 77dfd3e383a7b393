"""Which template the gateways of a fleet serve, and how another takes its place at all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from routing.fleet.messages import Adopted, Message, Proposed, Report, Vote, encode
from routing.fleet.store import FleetStore, StoreAway
from routing.waiting import first_of

log = logging.getLogger(__name__)

VOTE_SECONDS = 15.0
"""So long the others may look at a template. One that is there and has not answered then may find
it wrong, so that it counts as refused."""

MOST_REPLACED = 64
"""So many hashes of older templates are remembered."""

MOST_PROBLEM = 1000
"""So many characters are told of what is wrong; PostgreSQL's NOTIFY takes 8,000 bytes."""

CURRENT = "template"

NOTHING = ""


class FleetTemplate(Struct):
    """What the fleet serves.

    Attributes:
        hash, text: of the file, its references to the environment as they are.
        replaced: the hashes of those that it took the place of.
    """

    hash: str
    text: str
    replaced: list[str]


_CURRENT = msgspec.msgpack.Decoder(FleetTemplate)


def hash_of(text: str) -> str:
    """By which gateways know whether they serve the same."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Templates:
    """What one gateway knows of it.

    A gateway that is told to reload proposes what its file says. The others look whether that is
    right for them too, with their own environment. If all find it right it is reloaded there first
    and then by all; if one does not, or if it can't start, nobody has it.

    Args:
        gateway: its id.
        store: that of the fleet.
        peers: the other gateways, by id, as they were seen last.

    Attributes:
        served: the hash of what is served here.
        pending: whether what is served here was never agreed upon, as the store was away.
    """

    def __init__(
        self, gateway: str, store: FleetStore, peers: Callable[[], Mapping[str, Report]]
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._peers = peers
        self._votes: dict[str, dict[str, str]] = {}
        self._voted = asyncio.Event()
        self._voting: set[asyncio.Task[None]] = set()
        self._check: Callable[[str], Awaitable[str]] | None = None
        self._adopt: Callable[[], None] = lambda: None
        self._propose: Callable[[], None] = lambda: None
        self._warned_of: frozenset[str] = frozenset()
        self._has_joined = False
        self._served_before: dict[str, None] = {}
        self.served = NOTHING
        self.pending = False

    def connect(
        self,
        served: str,
        check: Callable[[str], Awaitable[str]],
        adopt: Callable[[], None],
        propose: Callable[[], None],
    ) -> None:
        """Let somebody reload.

        Args:
            served: the hash of what is served now.
            check: says what is wrong here with a text; nothing, if it is right.
            adopt: has what is the fleet's template loaded.
            propose: has what this gateway serves proposed.
        """
        self._served_before[self.served] = None
        self.served = served
        self._check, self._adopt, self._propose = check, adopt, propose

    async def stop(self) -> None:
        """Look at no proposal any more."""
        for task in self._voting:
            task.cancel()
        await asyncio.gather(*self._voting, return_exceptions=True)

    def is_settled(self, text: str) -> bool:
        """Whether `text` is served here, and the others know of it."""
        return not self.pending and hash_of(text) == self.served

    # Who is told to reload ------------------------------------------------------------------------

    async def objections(self, text: str) -> list[str]:
        """What the others find wrong with `text`, each with who says it; nothing if it is right.

        Raises:
            StoreAway: they can't be asked.
        """
        hash = hash_of(text)
        votes = self._votes[hash] = {}
        try:
            await self._store.keep(f"{CURRENT}:{hash}", text.encode("utf-8", "surrogatepass"))
            await self._store.tell(encode(Proposed(self._gateway, hash)))
            try:
                async with asyncio.timeout(VOTE_SECONDS):
                    while not any(votes.values()) and self._peers().keys() - votes.keys():
                        self._voted.clear()
                        # Who is gone meanwhile is not waited for.
                        await first_of(self._voted, 1.0)
            except TimeoutError:
                pass
            silent = self._peers().keys() - votes.keys() if not any(votes.values()) else set()
            wrong = [f"gateway {who}: {problem}" for who, problem in votes.items() if problem]
            return [*wrong, *(f"gateway {who} did not answer" for who in sorted(silent))]
        finally:
            del self._votes[hash]

    async def agreed(self, text: str) -> None:
        """`text` is served here, and is what all are to serve.

        Raises:
            StoreAway: they can't be told.
        """
        hash = hash_of(text)
        self._served_before[self.served] = None
        self.served = hash
        before = await self.current()
        replaced = [] if before is None else [*before.replaced, before.hash]
        others = {each.template for each in self._peers().values()}
        replaced = [*dict.fromkeys([*replaced, *others, *self._served_before])]
        replaced = [each for each in replaced if each not in (hash, NOTHING)][-MOST_REPLACED:]
        await self._store.keep(CURRENT, encode(FleetTemplate(hash, text, replaced)))
        self.pending = False
        await self._store.tell(encode(Adopted(self._gateway, hash)))

    async def current(self) -> FleetTemplate | None:
        """What the fleet serves; None if nobody has reloaded anything yet.

        Raises:
            StoreAway: nobody can say.
        """
        data = await self._store.read(CURRENT)
        try:
            return None if data is None else _CURRENT.decode(data)
        except msgspec.DecodeError:
            return None

    # What the others say --------------------------------------------------------------------------

    def hears(self, message: Message) -> None:
        """Another gateway proposes, votes, or has settled it."""
        if isinstance(message, Proposed):
            task = asyncio.create_task(self._vote(message.hash))
            self._voting.add(task)
            task.add_done_callback(self._voting.discard)
        elif isinstance(message, Vote):
            if (votes := self._votes.get(message.hash)) is not None:
                votes[message.by] = message.problem
                self._voted.set()
        elif isinstance(message, Adopted) and message.hash != self.served:
            self._adopt()

    async def _vote(self, hash: str) -> None:
        try:
            try:
                problem = await self._problem(hash) if hash != self.served else NOTHING
            except StoreAway:
                raise
            except Exception as error:
                log.exception("a template that others reload can't be looked at")
                problem = f"it can't be looked at there ({type(error).__name__}), as its log says"
            await self._store.tell(encode(Vote(self._gateway, hash, problem[:MOST_PROBLEM])))
        except StoreAway:
            log.warning("the store went away while a template was looked at that others reload")

    async def _problem(self, hash: str) -> str:
        text = await self._store.read(f"{CURRENT}:{hash}")
        if text is None:
            return "the template is not in the store"
        if self._check is None:
            return NOTHING
        return await self._check(text.decode("utf-8", "surrogatepass"))

    def parts(self) -> None:
        """This gateway hears nothing of the others any more."""
        self._has_joined = False

    async def joins(self) -> None:
        """This gateway hears of the others, for the first time or again: have it serve what they
        do, where theirs has replaced its own.

        Raises:
            StoreAway: nobody can say.
        """
        if self._has_joined or not self.served:
            return
        if self.pending:
            self._propose()
        else:
            found = await self.current()
            if found is not None and self.served in found.replaced:
                if not self._is_served(found.hash):
                    return  # who has just reloaded says so with its next report
                log.info("the other gateways have reloaded since: their template is loaded")
                self._adopt()
        self._has_joined = True

    def _is_served(self, hash: str) -> bool:
        return any(each.template == hash for each in self._peers().values())

    def compare(self, peers: Collection[Report]) -> None:
        """Say once where others serve another template."""
        others = frozenset({each.template for each in peers} - {self.served, NOTHING})
        if others != self._warned_of and self.served:
            self._warned_of = others
            if others:
                log.warning(
                    "other gateways serve another template (%s; this one %s): reload one of them",
                    ", ".join(sorted(others)),
                    self.served,
                )
