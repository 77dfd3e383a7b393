"""`llama-compat requests`: what was asked, a line each, as it comes; and one of them whole."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routing.cli.commands import app as commands
from routing.cli.records.reading import (
    KeyOption,
    SinceOption,
    StorageOption,
    TeamOption,
    TemplateOption,
    UntilOption,
    dollars_text,
    read,
)
from routing.cli.terminal import fail, print_, table

if TYPE_CHECKING:  # commands import what they need when they run
    from rich.text import Text

    from llama_compat.exchange import Principal
    from routing.cli.records.reading import Recorded
    from routing.observability.records.record import Record
    from routing.observability.records.search import Numbered, RecordFilter

FOLLOW_SECONDS = 1.0
"""So often is looked for what is new."""

app = typer.Typer(help="Show what was asked: the last requests, or one of them.")
commands.add_typer(app, name="requests")

AsJSON = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.callback(invoke_without_command=True)
def requests(
    context: typer.Context,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, help="How many at most, the last ones.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")
    ] = False,
    since: SinceOption = "7d",
    until: UntilOption = None,
    key: KeyOption = None,
    team: TeamOption = None,
    model: Annotated[
        str | None,
        typer.Option(help="Only of this model, by the name asked for or the template's."),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Only those it answered, or failed.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only with this one: 429, or 4xx.")
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Only those that went wrong so: timeout; any."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Only with this in the id, the model or the error.")
    ] = None,
    as_json: AsJSON = False,
    template: TemplateOption = None,
    storage: StorageOption = None,
) -> None:
    """Show the last requests that were recorded, the newest last."""
    from contextlib import suppress

    from routing.observability.records import search

    if context.invoked_subcommand is not None:
        return

    def chosen_of(principals: Mapping[str, Principal]) -> RecordFilter:
        try:
            return search.filter_of(
                principals,
                since=since,
                until=until,
                keys=key,
                teams=team,
                model=model,
                provider=provider,
                status=status,
                error=error,
                text=text,
            )
        except search.WrongFilter as wrong:
            fail(f"--{wrong.name}: {wrong}")

    chosen_of({})  # what is said wrongly is said before anything is opened

    async def show(recorded: Recorded) -> None:
        chosen = chosen_of(recorded.principals)
        found = (await search.newest(recorded.storage, chosen, lines))[::-1]
        _print_lines(found, recorded, as_json=as_json)
        if follow:
            await _follow(recorded, chosen, found, as_json=as_json)
        elif not found and not as_json:
            print_("No such requests were recorded.")

    with suppress(KeyboardInterrupt):
        try:
            read(template, storage, show)
        except BrokenPipeError:  # `... | head`
            sys.stderr.close()


@app.command()
def show(
    request_id: Annotated[str, typer.Argument(help="Its `x-request-id`.")],
    as_json: AsJSON = False,
    template: TemplateOption = None,
    storage: StorageOption = None,
) -> None:
    """Show all that is recorded of a request, and its bodies where they are kept."""
    import msgspec

    from routing.observability.records import search
    from routing.observability.records.export import exported

    async def find(recorded: Recorded) -> tuple[Recorded, search.Whole | None]:
        return recorded, await search.whole(recorded.storage, request_id)

    recorded, found = read(template, storage, find)
    if found is None:
        fail(
            f"No request '{request_id}' is recorded here. It may be of another storage (--template,"
            " --storage), too old, or not written yet: that takes a second."
        )
    kept = found.kept
    for each in found.found:
        members = exported(each.record)
        if as_json:
            if kept is not None:
                members = {**members, **kept.shown()}
            typer.echo(msgspec.json.encode(members).decode())
        else:
            _show_one(members, recorded)
    if kept is not None and not as_json:
        if kept.headers:
            print_("Headers:")
            for name, value in kept.headers:
                typer.echo(f"{name}: {value}")
        for title, part in (("Request", kept.request), ("Reply", kept.reply)):
            print_(f"{title}:")
            typer.echo(_readable(part))


async def _follow(
    recorded: Recorded, chosen: RecordFilter, found: Sequence[Numbered], *, as_json: bool
) -> None:
    from routing.observability.records import search

    if found:
        last = found[-1].number
    else:
        newest = await search.newest(recorded.storage, search.RecordFilter(), 1)
        last = newest[0].number if newest else 0
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        new = await search.later(recorded.storage, chosen, last)
        if new:
            last = new[-1].number
            _print_lines(new, recorded, as_json=as_json)


def _print_lines(found: Iterable[Numbered], recorded: Recorded, *, as_json: bool) -> None:
    import msgspec
    from rich.console import Console

    from routing.observability.records.export import exported

    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        if as_json:
            typer.echo(msgspec.json.encode(exported(each.record)).decode())
        else:
            console.print(_line(each.record, recorded))
    sys.stdout.flush()


def _line(record: Record, recorded: Recorded) -> Text:
    from datetime import datetime

    from rich.text import Text

    moment = datetime.fromtimestamp(record.time).astimezone()
    went_well = not record.error and not record.cancelled
    line = Text()
    line.append(f"{moment:%m-%d %H:%M:%S}  ", "dim")
    line.append(f"{record.status}", "green" if went_well else "red" if record.error else "yellow")
    line.append(f"  {recorded.name(record.key) or record.key or '-':<12}")
    line.append(f"  {record.model or '-':<20}")
    line.append(f"  {record.duration:7.2f} s")
    line.append(f"  {_count(record.input_tokens):>8} in  {_count(record.output_tokens):>7} out")
    line.append(f"  {dollars_text(_dollars(record)):>9}")
    line.append(f"  {record.request_id}", "dim")
    if record.error:
        line.append(f"\n    {record.error}: {record.message}", "red")
    elif record.cancelled:
        line.append("\n    the client left before the end", "yellow")
    return line


def _dollars(record: Record) -> float | None:
    from llama_compat.catalog.prices import NANO_DOLLARS

    return None if record.cost is None else record.cost / NANO_DOLLARS


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"


def _show_one(members: dict[str, Any], recorded: Recorded) -> None:
    shown = table("", "")
    shown.show_header = False
    for column in shown.columns:
        column.overflow = "fold"
    key = members["key"]
    named = {**members, "key": f"{name} ({key})" if (name := recorded.name(key)) else key}
    trail = named.pop("trail")
    for name, value in named.items():
        if value not in (None, "", False):
            shown.add_row(name.replace("_", " "), _text(name, value))
    print_(shown)
    if trail:
        tried = table("Tried", "Why", "Outcome", "From", "To", "Error")
        for step in trail:
            error = ": ".join(filter(None, (step.get("error"), step.get("message"))))
            moments = (f"{step[moment]:.3f} s" for moment in ("begun", "ended"))
            tried.add_row(step["target"], step["why"], step["outcome"], *moments, error)
        print_(tried)


_SECONDS = ("first_content", "duration", "overhead")


def _text(name: str, value: Any) -> str:
    if name in _SECONDS:
        return f"{value:.3f} s"
    if name == "cost_usd":
        return f"${value:.6f}"
    if value is True:
        return "yes"
    return f"{value:,}" if isinstance(value, int) and name != "status" else str(value)


def _readable(body: bytes) -> str:
    """JSON with its members below each other; anything else, a stream for one, as it is."""
    import msgspec

    try:
        return msgspec.json.format(body).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")
