"""The commands that read records: usage, export."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from routing.cli.commands import app
from routing.cli.terminal import fail, load, print_, table

if TYPE_CHECKING:  # commands import what they need when they run
    from routing.observability.records.reports import Since, Use
    from routing.storage.storage import Storage

Found = TypeVar("Found")

OptionalSource = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEMPLATE]", help="Whose records; by default those of this user's own storage."
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="sqlite:PATH or postgres://..., in place of a template's."
    ),
]
SinceOption = Annotated[
    str, typer.Option(metavar="TIME", help="7d, 4w, 12h, 30m, or a day such as 2026-03-01.")
]


class By(StrEnum):
    """What use can be told apart by."""

    key = "key"
    model = "model"
    provider = "provider"
    day = "day"


class ExportFormat(StrEnum):
    """What records can be written as."""

    jsonl = "jsonl"
    csv = "csv"


@app.command()
def usage(
    template: OptionalSource = None,
    by: Annotated[
        str, typer.Option(metavar="NAMES", help="Any of key, model, provider, day: model,day")
    ] = "model",
    since: SinceOption = "7d",
    json: Annotated[bool, typer.Option("--json", help="JSON in place of a table.")] = False,
    storage: StorageOption = None,
) -> None:
    """Show what was used, and what it cost."""
    from routing.observability.records import reports

    names = _names(by)
    from_then = _since(since)
    uses = _read(
        template, storage, lambda opened: reports.usage(opened, [n.value for n in names], from_then)
    )
    if json:
        typer.echo(_json(uses, names))
        return
    if not uses:
        typer.echo(f"No requests were recorded since {_day(from_then)}.")
        return
    _show(uses, names)


@app.command()
def export(
    template: OptionalSource = None,
    since: SinceOption = "7d",
    format: Annotated[
        ExportFormat, typer.Option(help="One record a line, either way.")
    ] = ExportFormat.jsonl,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="What is kept of bodies, in place of the records.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default the terminal.")
    ] = None,
    storage: StorageOption = None,
) -> None:
    """Write records as JSON or CSV, one a line."""
    from routing.observability.records import export as exports

    if bodies and format is ExportFormat.csv:
        fail("Bodies are no table: leave --format csv out, and get JSON.")
    from_then = _since(since).time

    async def write(opened: Storage) -> None:
        pages = (
            exports.export_bodies(opened, from_then)
            if bodies
            else exports.export(opened, from_then, format.value)
        )
        if output is None:
            await _write_all(pages, sys.stdout.write)
            return
        with output.open("w", encoding="utf-8", newline="") as file:
            await _write_all(pages, file.write)

    try:
        _read(template, storage, write)
    except BrokenPipeError:  # `... | head`
        sys.stderr.close()
    except OSError as error:
        fail(f"{output}: {error.strerror or error}")


async def _write_all(pages: AsyncIterable[str], write: Callable[[str], object]) -> None:
    async for page in pages:
        write(page)


def _names(by: str) -> list[By]:
    try:
        return [By(name.strip()) for name in by.split(",")]
    except ValueError:
        fail(f"--by {by}: expected any of {', '.join(By)}, with commas between them")


def _since(text: str) -> Since:
    from routing.observability.records.reports import parse_since

    try:
        return parse_since(text)
    except ValueError as error:
        fail(f"--since: {error}")


def _read(
    template: str | None,
    address: str | None,
    work: Callable[[Storage], Coroutine[Any, Any, Found]],
) -> Found:
    """What `work` finds in the storage of a template, or in another that is named."""
    from llama_compat.distribution import default_storage
    from routing.observability.records.record import MIGRATIONS
    from routing.storage.storage import StorageError, open_storage

    if address is None:
        settings = load(template).server if template is not None else None
        secret = settings.storage if settings is not None else default_storage()
        address = secret.get_secret_value()
    if address.startswith("sqlite:"):
        path = Path(address.removeprefix("sqlite:")).expanduser()
        if not path.exists():
            fail(
                f"There are no records: {path} does not exist. `records: {{}}` under `server:` in a"
                " template has them kept."
            )

    async def read() -> Found:
        storage = open_storage(address, [MIGRATIONS])
        try:
            return await work(storage)
        finally:
            await storage.stop()

    try:
        return asyncio.run(read())
    except StorageError as error:
        fail(str(error))


def _json(uses: Sequence[Use], names: Sequence[By]) -> str:
    import msgspec

    rows = [
        {
            **{name.value: value for name, value in zip(names, use.keys, strict=True)},
            "requests": use.requests,
            "errors": use.errors,
            "cancelled": use.cancelled,
            "input_tokens": use.input_tokens,
            "cached_tokens": use.cached_tokens,
            "cache_write_tokens": use.cache_write_tokens,
            "output_tokens": use.output_tokens,
            "reasoning_tokens": use.reasoning_tokens,
            "estimated_requests": use.estimated,
            "cost_usd": use.dollars,
            "unpriced_requests": use.unpriced,
            "seconds": use.milliseconds / 1000,
        }
        for use in uses
    ]
    return msgspec.json.format(msgspec.json.encode(rows)).decode()


def _show(uses: Sequence[Use], names: Sequence[By]) -> None:
    columns = {title: cell for title, cell in _CELLS.items() if _is_of_use(title, uses)}
    shown = table(*(name.value.capitalize() for name in names), *columns)
    for place, column in enumerate(shown.columns):
        column.no_wrap = True
        column.justify = "left" if place < len(names) else "right"
        column.min_width = len("2026-03-01") if column.header == "Day" else None
    for use in uses:
        keys = (str(value) or "-" for value in use.keys)
        shown.add_row(*keys, *(cell(use) for cell in columns.values()))
    print_(shown)
    estimated, unpriced = sum(use.estimated for use in uses), sum(use.unpriced for use in uses)
    if estimated:
        print_(f"~ The tokens of {estimated:,} requests are estimated: nobody counted them.")
    if unpriced:
        print_(
            f"+ {unpriced:,} requests have no known price; `price:` in a template's model gives it."
        )


def _tokens(use: Use, count: int) -> str:
    return f"{'~' if use.estimated else ''}{count:,}"


def _cost(use: Use) -> str:
    dollars = use.dollars
    if dollars is None:
        return "?"
    shown = "<$0.0001" if 0 < dollars < 0.0001 else f"${dollars:,.{2 if dollars >= 100 else 4}f}"
    return f"{shown}{'+' if use.unpriced else ''}"


_CELLS: Mapping[str, Callable[[Use], str]] = {
    "Requests": lambda use: f"{use.requests:,}",
    "Errors": lambda use: f"{use.errors:,}",
    "Input": lambda use: _tokens(use, use.input_tokens),
    "Cached": lambda use: f"{use.cached_tokens:,}",
    "Output": lambda use: _tokens(use, use.output_tokens),
    "Reasoning": lambda use: f"{use.reasoning_tokens:,}",
    "Cost": _cost,
    "Mean": lambda use: f"{use.milliseconds / use.requests / 1000:.2f} s",
}
"""The columns of the table, after what use is told apart by."""

_WHERE_THERE_ARE_ANY: Mapping[str, Callable[[Use], int]] = {
    "Cached": lambda use: use.cached_tokens,
    "Reasoning": lambda use: use.reasoning_tokens,
}


def _is_of_use(title: str, uses: Sequence[Use]) -> bool:
    count = _WHERE_THERE_ARE_ANY.get(title)
    return count is None or any(map(count, uses))


def _day(since: Since) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(since.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
