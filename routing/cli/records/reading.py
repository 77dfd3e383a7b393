"""What commands that read records have in common: whose, from when on, and from which storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from routing.cli.storages import storage_address
from routing.cli.terminal import fail

if TYPE_CHECKING:  # commands import what they need when they run
    from llama_compat.exchange import Principal
    from routing.observability.records.reports import Since
    from routing.storage.storage import Storage

Found = TypeVar("Found")

OptionalSource = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEMPLATE]", help="Whose records; by default those of this user's own storage."
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE", help="Whose records; by default those of this user's own storage."
    ),
]
SinceOption = Annotated[
    str, typer.Option(metavar="TIME", help="7d, 4w, 12h, 30m, or a day such as 2026-03-01.")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="The same; of a day its end. Now.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="Only of this key, by its id, prefix or name."),
]
TeamOption = Annotated[
    list[str] | None, typer.Option("--team", metavar="TEAM", help="Only of this team's keys.")
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records, and whose they are.

    Attributes:
        storage: of the records.
        principals: who asks with each key that is known, by the key's id.
    """

    storage: Storage
    principals: Mapping[str, Principal]

    def name(self, key: str) -> str:
        """What people call a key; empty where it has no name."""
        principal = self.principals.get(key)
        return "" if principal is None else principal.name or ""

    def team(self, key: str) -> str:
        """The team of a key; empty where it has none, or the key is not known any more."""
        principal = self.principals.get(key)
        return "" if principal is None else principal.team or ""

    def keys(self, keys: Sequence[str] | None, teams: Sequence[str] | None) -> list[str] | None:
        """The ids of those that are named, or of these teams; None where all are meant.

        A key that is not known any more is taken for an id: its records are still there.
        """
        from routing.observability.records.search import key_ids

        return key_ids(self.principals, keys, teams)


def dollars_text(dollars: float | None) -> str:
    """An amount for people; `?` where nobody knows it."""
    if dollars is None:
        return "?"
    return "<$0.0001" if 0 < dollars < 0.0001 else f"${dollars:,.{2 if dollars >= 100 else 4}f}"


def span_of(since: str, until: str | None = None) -> tuple[Since, Since | None]:
    """From when on, and until when; or what is wrong with that, and the end."""
    from routing.observability.records.reports import WrongFilter, parse_span

    try:
        return parse_span(since, until)
    except WrongFilter as wrong:
        fail(f"--{wrong.name}: {wrong}")


def read(
    template: str | None,
    address: str | None,
    work: Callable[[Recorded], Coroutine[Any, Any, Found]],
) -> Found:
    """What `work` finds in the storage of a template, or in another that is named; or why that
    can't be read, and the end."""
    from routing.access.keys.store import KEYS
    from routing.observability.records.record import MIGRATIONS
    from routing.storage.storage import StorageError, open_storage

    address, distribution = storage_address(template, address)
    if address.startswith("sqlite:"):
        path = Path(address.removeprefix("sqlite:")).expanduser()
        if not path.exists():
            _no_records(path)

    async def run() -> Found:
        from routing.access.keys.ring import Key, KeyRing
        from routing.access.keys.store import KeyStore

        storage = open_storage(address, [MIGRATIONS, KEYS])
        try:
            stored = [each.key() for each in await KeyStore(storage).list()]
            given: list[Key] = []
            if distribution is not None:
                given = list(KeyRing.of(distribution, None).given.values())
            known = {each.principal.id: each.principal for each in (*stored, *given)}
            return await work(Recorded(storage, known))
        finally:
            await storage.stop()

    try:
        return asyncio.run(run())
    except StorageError as error:
        fail(str(error))


def _no_records(path: Path) -> NoReturn:
    fail(
        f"There are no records: {path} does not exist. `records: {{}}` under `server:` in a"
        " template has them kept."
    )
