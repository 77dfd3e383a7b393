"""Records of single requests, found by what somebody looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from routing.access.keys.secret import PREFIX
from routing.observability.records.bodies import read_headers
from routing.observability.records.record import COLUMNS, Record
from routing.observability.records.reports import parse_span, parse_until, parsed
from routing.storage.storage import Storage, small

if TYPE_CHECKING:
    from llama_compat.exchange import Principal

MOST_FOUND = 1000
"""So many are found at a time at most."""

LOOKED_AT_TOGETHER = 50_000
"""So many records one statement looks at: whoever else reads has their turn after it."""


def parse_status(text: str) -> int:
    """`429`, or `4xx` for all from 400 to 499, as `RecordFilter.status` has it.

    Raises:
        ValueError: it is neither.
    """
    digits = text[:1] if text[1:].lower() == "xx" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) in (1, 3)):
        raise ValueError(f"'{text}' is no status such as 429, or 4xx for all from 400 to 499")
    return int(digits)


def key_ids(
    principals: Mapping[str, Principal],
    keys: Sequence[str] | None,
    teams: Sequence[str] | None,
) -> list[str] | None:
    """The ids of keys that are named, or of these teams; None where all are meant.

    Args:
        principals: who asks with each key that is known, by the key's id.
        keys: ids, prefixes or names. One that is not known any more is taken for an id: its records
            are still there.
        teams: by id.
    """
    if not keys and not teams:
        return None
    of_teams = {each for each, known in principals.items() if (known.team or "") in (teams or ())}
    if not keys:
        return sorted(of_teams)
    ids = [found for key in keys for found in _ids(principals, key)]
    return [each for each in ids if not teams or each in of_teams]


def _ids(principals: Mapping[str, Principal], key: str) -> list[str]:
    named = f"key-{key.removeprefix(PREFIX)}"
    if key.startswith(PREFIX) and named in principals:
        return [named]
    if key in principals:
        return [key]
    return [each for each, known in principals.items() if known.name == key] or [key]


class RecordFilter(Struct, frozen=True):
    """What somebody looks for among records; of what is not set, anything.

    Attributes:
        since, until: from when on, and before when, in seconds since 1970.
        keys: of whom, by id.
        model: what the client asked for, or the configured model that it went to.
        provider: who answered, or failed last.
        status: the HTTP status: 429, or 4 for all of them from 400 to 499.
        error: the class of what went wrong; `any` for all requests that went wrong.
        text: is in the request id, in the model or in what was said of an error, in any case.
    """

    since: float | None = None
    until: float | None = None
    keys: Sequence[str] | None = None
    model: str | None = None
    provider: str | None = None
    status: int | None = None
    error: str | None = None
    text: str | None = None


class RecordWords(Struct, frozen=True, kw_only=True):
    """What somebody looks for, in the words of the page and of a terminal alike; empty for none.

    Attributes:
        since, until: as in `7d`, `12h` or `2026-03-01`.
        keys, teams: as in `key_ids`.
        status: as in `parse_status`.
        model, provider, error, text: as in `RecordFilter`.
    """

    since: str | None = None
    until: str | None = None
    keys: Sequence[str] | None = None
    teams: Sequence[str] | None = None
    model: str | None = None
    provider: str | None = None
    status: str | None = None
    error: str | None = None
    text: str | None = None

    def read(self, principals: Mapping[str, Principal]) -> RecordFilter:
        """What they come to, with `principals` as in `key_ids`.

        Raises:
            WrongFilter: one of them can't be read.
        """
        from_then, until_then = None, None
        if self.since:
            from_then, until_then = parse_span(self.since, self.until)
        elif self.until:
            until_then = parsed("until", parse_until, self.until)
        return RecordFilter(
            since=None if from_then is None else from_then.time,
            until=None if until_then is None else until_then.time,
            keys=key_ids(principals, self.keys, self.teams),
            model=self.model or None,
            provider=self.provider or None,
            status=parsed("status", parse_status, self.status) if self.status else None,
            error=self.error or None,
            text=self.text or None,
        )


class Numbered(Struct, frozen=True):
    """A record, and its number: one that was written later has a larger one."""

    number: int
    record: Record


async def newest(
    storage: Storage, chosen: RecordFilter, limit: int, before: int | None = None
) -> list[Numbered]:
    """The last ones that were written, the newest first.

    Args:
        storage: of the records.
        chosen: which.
        limit: how many at most; no more than `MOST_FOUND`.
        before: with smaller numbers than this alone: that of the last one of the page before.

    Raises:
        StorageError: it can't be read.
    """
    limit = min(limit, MOST_FOUND)
    conditions, values = _conditions(storage, chosen)
    lowest = 1
    edge = await newest_number(storage) + 1 if before is None else before
    found: list[Numbered] = []
    is_bound = False
    while len(found) < limit and edge > lowest:
        begins = max(lowest, edge - LOOKED_AT_TOGETHER)
        found += await _found(
            storage,
            [*conditions, "id >= ?", "id < ?"],
            [*values, begins, edge],
            "id DESC",
            limit - len(found),
        )
        edge = begins
        if not is_bound and len(found) < limit:
            # Which numbers the time leaves is worth a look where they are not the newest.
            is_bound = True
            first, last = await _numbers(storage, chosen)
            lowest, edge = first, min(edge, last + 1)
    return found


async def _numbers(storage: Storage, chosen: RecordFilter) -> tuple[int, int]:
    """The least and the greatest number of the records of that time, which the index of times has
    too; none is between 1 and 0."""
    conditions, values = _conditions(storage, RecordFilter(since=chosen.since, until=chosen.until))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    [(first, last)] = await storage.fetch(f"SELECT MIN(id), MAX(id) FROM records{where}", *values)
    return (int(first), int(last)) if last is not None else (1, 0)


async def later(storage: Storage, chosen: RecordFilter, after: int) -> list[Numbered]:
    """Those that were written after the one with this number, the oldest first.

    Raises:
        StorageError: it can't be read.
    """
    conditions, values = _conditions(storage, chosen)
    return await _found(storage, [*conditions, "id > ?"], [*values, after], "id", MOST_FOUND)


async def of_request(storage: Storage, request_id: str) -> list[Numbered]:
    """The records of a request: one, or several where clients chose an id twice; the newest first.

    Raises:
        StorageError: it can't be read.
    """
    return await _found(storage, ["request_id = ?"], [request_id], "id DESC", MOST_FOUND)


async def newest_number(storage: Storage) -> int:
    """The number of the last record that was written, whichever it is; 0 where there is none.

    Raises:
        StorageError: it can't be read.
    """
    rows = await storage.fetch("SELECT MAX(id) FROM records")
    return int(rows[0][0] or 0)


class KeptContent(Struct, frozen=True):
    """What is kept of a request besides its record.

    Attributes:
        request, reply: the bodies, or their beginnings.
        headers: the request's, of which secrets are covered.
    """

    request: bytes
    reply: bytes
    headers: list[tuple[str, str]]

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "headers": self.headers,
            "request": self.request.decode(errors="replace"),
            "reply": self.reply.decode(errors="replace"),
        }


class Whole(Struct, frozen=True):
    """All that is recorded of a request.

    Attributes:
        found: its records: one, or several where clients chose an id twice; the newest first.
        kept: what is kept besides of the newest; None where nothing is.
    """

    found: list[Numbered]
    kept: KeptContent | None


async def whole(storage: Storage, request_id: str) -> Whole | None:
    """All that is recorded of a request; None where nothing is.

    Raises:
        StorageError: it can't be read.
    """
    found = await of_request(storage, request_id)
    return Whole(found, await kept_of(storage, found[0].record)) if found else None


async def kept_of(storage: Storage, record: Record) -> KeptContent | None:
    """What is kept besides of the request of `record`; None where nothing is.

    By the time too, as several requests may have the same id.

    Raises:
        StorageError: it can't be read.
    """
    rows = await storage.fetch(
        "SELECT request, reply, headers FROM bodies WHERE request_id = ? AND time = ?"
        " ORDER BY id DESC LIMIT 1",
        record.request_id,
        record.time,
    )
    if not rows:
        return None
    request, reply, headers = rows[0]
    return KeptContent(bytes(request), bytes(reply), read_headers(headers))


async def _found(
    storage: Storage, conditions: Sequence[str], values: Sequence[Any], order: str, limit: int
) -> list[Numbered]:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = await storage.fetch(
        f"SELECT id, {', '.join(COLUMNS)} FROM records{where} ORDER BY {order}"
        f" LIMIT {min(limit, MOST_FOUND)}",
        *values,
    )
    return [Numbered(row[0], Record(**dict(zip(COLUMNS, row[1:], strict=True)))) for row in rows]


def _conditions(storage: Storage, chosen: RecordFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if chosen.since is not None:
        add("time >= ?", chosen.since)
    if chosen.until is not None:
        add("time < ?", chosen.until)
    if chosen.keys is not None:
        add(f"key IN ({', '.join('?' * len(chosen.keys))})" if chosen.keys else "1 = 0")
        values.extend(chosen.keys)
    if chosen.model is not None:
        add("(model = ? OR route = ?)", chosen.model, chosen.model)
    if chosen.provider is not None:
        add("provider = ?", chosen.provider)
    if chosen.status is not None:
        if chosen.status < 10:
            add("status / 100 = ?", chosen.status)
        else:
            add("status = ?", chosen.status)
    if chosen.error is not None:
        if chosen.error == "any":
            add("error <> ''")
        else:
            add("error = ?", chosen.error)
    if chosen.text is not None:
        pattern = "%" + "".join(f"\\{c}" if c in "\\%_" else c for c in small(chosen.text)) + "%"
        request_id, model, message = (
            f"{storage.lowered(column, chosen.text)} LIKE ? ESCAPE '\\'"
            for column in ("request_id", "model", "message")
        )
        # Most have none.
        said = f"(message <> '' AND {message})"
        add(f"({request_id} OR {model} OR {said})", pattern, pattern, pattern)
    return conditions, values
