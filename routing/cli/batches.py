"""The commands about batches: those of servers are listed, watched, cancelled; one without a server
is worked through here."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from routing.cli import pulling
from routing.cli.commands import app as main_app
from routing.cli.storages import StorageOption, storage_address
from routing.cli.terminal import TemplateArgument, fail, load, print_, table

if TYPE_CHECKING:  # commands import what they need when they run
    from rich.progress import Progress as Bars

    from routing.batches.journal.journal import Journal
    from routing.batches.journal.rows import Job

Found = TypeVar("Found")

SOME_FAILED = 3
"""The exit code where all was done, and some lines have errors."""

INTERRUPTED = 130
"""The exit code after Ctrl-C: the same command goes on where it was."""

WATCH_SECONDS = 0.5

app = typer.Typer(help="List, watch and cancel the batches of servers.", no_args_is_help=True)
main_app.add_typer(app, name="batches")

BatchTemplate = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="TEMPLATE",
        help="The template whose `server.storage` has the batches.",
        show_default=False,
    ),
]
BatchName = Annotated[str, typer.Argument(metavar="BATCH", help="A batch's id.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest first.")] = 20,
    template: BatchTemplate = None,
    storage: StorageOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show batches of all keys: how far they have come, and what they have cost."""
    from routing.batches.rendering import openai_batch

    found, _ = _with_journal(
        template, storage, lambda journal: journal.page(None, None, limit=limit)
    )
    now = time.time()
    if as_json:
        shown = [openai_batch(job, now) for job in found]
        typer.echo(json.dumps(shown, indent=2))
        return
    if not found:
        print_(
            "No batches yet. Work one through:  llama-compat batch TEMPLATE --in FILE --out FILE"
        )
        return
    rows = table("Batch", "Key", "State", "Lines", "Failed", "Cost", "Ends")
    rows.columns[0].no_wrap = True
    for job in found:
        rows.add_row(*_row(job, now))
    print_(rows)


def _row(job: Job, now: float) -> Sequence[str]:
    from routing.batches.rendering import estimated_end

    end = job.ended or estimated_end(job, now)
    ends = "" if end is None else time.strftime("%m-%d %H:%M:%S", time.localtime(end))
    return (
        job.id,
        job.owner,
        job.status,
        f"{job.good + job.failed:,}/{job.total:,}",
        f"{job.failed:,}" if job.failed else "",
        _cost(job),
        ends if job.ended else f"~{ends}" if ends else "",
    )


def _cost(job: Job) -> str:
    from llama_compat.catalog.prices import NANO_DOLLARS

    return f"${job.cost / NANO_DOLLARS:,.4f}{'+' if job.unpriced else ''}"


@app.command()
def watch(
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", help="A batch's id; by default all that run.")
    ] = None,
    template: BatchTemplate = None,
    storage: StorageOption = None,
) -> None:
    """Show progress bars until the batches have ended."""

    async def follow(journal: Journal) -> None:
        with _bars() as bars:
            tasks: dict[str, Any] = {}
            while True:
                if batch is None:
                    jobs = await journal.open()
                    jobs += [job for job in [await journal.get(each) for each in tasks] if job]
                else:
                    found = await journal.get(batch)
                    if found is None:
                        fail(f"There is no batch '{batch}' in this storage.")
                    jobs = [found]
                if not jobs:
                    print_("No batch is being worked on.")
                    return
                for job in jobs:
                    if job.id not in tasks:
                        tasks[job.id] = bars.add_task(job.id, total=None, cost="")
                    _show(bars, tasks[job.id], job)
                if all(job.ended is not None for job in jobs):
                    return
                await asyncio.sleep(WATCH_SECONDS)

    _with_journal(template, storage, follow)


@app.command()
def cancel(batch: BatchName, template: BatchTemplate = None, storage: StorageOption = None) -> None:
    """End a batch. What was answered is kept. Running servers know within a second."""
    from routing.batches.journal.rows import AS_CANCELLED

    async def end(journal: Journal) -> str:
        if await journal.break_off(batch, AS_CANCELLED):
            return ""
        job = await journal.get(batch)
        return (
            f"There is no batch '{batch}' in this storage."
            if job is None
            else (f"{batch} is {job.status} already.")
        )

    why_not = _with_journal(template, storage, end)
    if why_not:
        fail(why_not)
    print_(f"{batch} is cancelled.")


@main_app.command("batch")
def work(
    template: TemplateArgument,
    source: Annotated[
        Path,
        typer.Option("--in", metavar="FILE", help="The lines, as OpenAI's or Anthropic's batches."),
    ],
    target: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="What becomes of each, in their order.")
    ],
    pull: Annotated[
        bool, typer.Option("--pull", help="Pull models that are missing, without asking.")
    ] = False,
) -> None:
    """Have a file of requests answered without a server. Run again, it goes on where it was.

    Ends with 0 where every line was answered, with 3 where some have errors, with 1 where nothing
    could be done, and with 130 after Ctrl-C.
    """
    distribution = load(template)
    pulling.pull_missing(distribution, asked_to=pull)

    from providers.base import ProviderStartError
    from routing.batches.command import InputError, work_through
    from routing.storage.storage import StorageError

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        with _bars() as bars:
            bar = bars.add_task(source.name, total=None, cost="")

            def tell(job: Job) -> None:
                _show(bars, bar, job)

            done = asyncio.run(work_through(distribution, source, target, tell))
    except (InputError, ProviderStartError, StorageError) as error:
        fail(error)
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command goes on where this was.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _say(done, source, target)


def _say(job: Job, source: Path, target: Path) -> None:
    if job.status != "completed" and job.errors is not None:
        problems = json.loads(job.errors)["data"]
        told = [f"line {each['line']}: {each['message']}" for each in problems]
        fail("\n".join([f"{source} is refused:", *told]))
    if job.status != "completed":
        fail(f"The batch is {job.status}; what was answered is in {target}.")
    typer.echo(
        f"{job.completed:,} of {job.total:,} lines answered, {_cost(job)}: {target}", err=True
    )
    if job.failed:
        raise typer.Exit(SOME_FAILED)


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[cost]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _show(bars: Bars, task: Any, job: Job) -> None:
    done = job.good + job.failed + job.undone
    known = job.total if job.begun is not None or job.ended is not None else None
    bars.update(task, total=known, completed=done, cost=_cost(job))


def _with_journal(
    template: str | None, storage: str | None, work: Callable[[Journal], Awaitable[Found]]
) -> Found:
    """What `work` finds in the journal of a storage; or what went wrong, and the end."""
    from routing.batches.journal.journal import Journal
    from routing.batches.tables import MIGRATIONS
    from routing.storage.storage import StorageError, open_storage

    address, _ = storage_address(template, storage)

    async def run() -> Found:
        opened = open_storage(address, [MIGRATIONS])
        await opened.start()
        try:
            return await work(Journal(opened, 1.0))
        finally:
            await opened.stop()

    try:
        return asyncio.run(run())
    except StorageError as error:
        fail(error)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
