"""Lists that are read page by page, of rows that have an age (`created`) and a key of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routing.storage.storage import Row, Storage, Transaction


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a client says of where a page begins.

    Attributes:
        row: the id of the row that it lies beside.
        backwards: it ends before that row, instead of beginning behind it.
    """

    row: str
    backwards: bool


def cursor_of(after: str | None, before: str | None = None) -> Cursor | None:
    """Where a page begins; None for where the list does. `after` counts where both are said, and
    an empty one says nothing."""
    if after:
        return Cursor(after, backwards=False)
    return Cursor(before, backwards=True) if before else None


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page begins, in a table: `created` and key of the row of a `Cursor`."""

    created: float
    key: Any
    backwards: bool = False


async def page_of(
    storage: Storage | Transaction,
    statement: str,
    values: Sequence[Any],
    *,
    limit: int,
    ascending: bool,
    place: PageStart | None = None,
    key: str = "id",
) -> tuple[list[Row], bool]:
    """Up to `limit` rows by their age, and whether there are more that way.

    Args:
        storage: where they are.
        statement: a `SELECT` with a condition, and its `values`.
        values: they.
        limit: how many.
        ascending: the oldest first.
        place: where they begin.
        key: the column by which rows of the same age are ordered.

    Raises:
        StorageError: they can't be read.
    """
    backwards = place is not None and place.backwards
    upwards = ascending != backwards
    if place is not None:
        sign = ">" if upwards else "<"
        statement += f" AND (created {sign} ? OR (created = ? AND {key} {sign} ?))"
        values = [*values, place.created, place.created, place.key]
    order = "ASC" if upwards else "DESC"
    rows = await storage.fetch(
        f"{statement} ORDER BY created {order}, {key} {order} LIMIT ?", *values, limit + 1
    )
    page = rows[:limit]
    return (page[::-1] if backwards else page), len(rows) > limit
