"""`llama-compat export`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routing.cli.commands import app
from routing.cli.records.reading import OptionalSource, SinceOption, read, span_of
from routing.cli.storages import StorageOption
from routing.cli.terminal import fail

if TYPE_CHECKING:
    from routing.cli.records.reading import Recorded


class ExportFormat(StrEnum):
    """What records can be written as."""

    jsonl = "jsonl"
    csv = "csv"


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
    from_then = span_of(since)[0].time

    async def write(recorded: Recorded) -> None:
        storage = recorded.storage
        pages = (
            exports.export_bodies(storage, from_then)
            if bodies
            else exports.export(storage, from_then, format.value)
        )
        if output is None:
            await _write_all(pages, sys.stdout.write)
            return
        with output.open("w", encoding="utf-8", newline="") as file:
            await _write_all(pages, file.write)

    try:
        read(template, storage, write)
    except BrokenPipeError:  # `... | head`
        sys.stderr.close()
    except OSError as error:
        fail(f"{output}: {error.strerror or error}")


async def _write_all(pages: AsyncIterable[str], write: Callable[[str], object]) -> None:
    async for page in pages:
        write(page)
