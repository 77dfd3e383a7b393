"""`llama-compat requests`: what was asked, a line each, as it comes; and one of them whole."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from routing.cli.commands import app as commands
from routing.cli.records.reading import (
    KeyOption,
    SinceOption,
    TeamOption,
    TemplateOption,
    UntilOption,
    dollars_text,
    read,
)
from routing.cli.storages import StorageOption
from routing.cli.terminal import console, fail, harmless, in_a_line, print_, table

if TYPE_CHECKING:  # commands import what they need when they run
    from rich.text import Text

    from llama_compat.exchange import Principal
    from routing.cli.records.reading import Recorded
    from routing.observability.records.record import Record
    from routing.observability.records.search import Numbered, RecordFilter, RecordWords

FOLLOW_SECONDS = 1.0
"""So often is looked for what is new."""


class _Requests(TyperGroup):
    """Tells who gives a template as other commands take theirs how it is given here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(
                f"There is no command '{args[0]}'. If it is a template: llama-compat requests"
                f" --template {args[0]}"
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_Requests, help="Show what was asked: the last requests, or one of them.")
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

    from routing.observability.records.search import RecordWords

    if context.invoked_subcommand is not None:
        return

    words = RecordWords(
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
    _filter_of(words, {})  # what is said wrongly is said before anything is opened
    show = partial(_show_last, words=words, lines=lines, follow=follow, as_json=as_json)
    with suppress(KeyboardInterrupt):
        try:
            read(template, storage, show)
        except BrokenPipeError:  # `... | head`
            sys.stderr.close()


def _filter_of(words: RecordWords, principals: Mapping[str, Principal]) -> RecordFilter:
    """What the options say, of which one that says nothing that there is ends the command."""
    from routing.observability.records.reports import WrongFilter

    try:
        return words.read(principals)
    except WrongFilter as wrong:
        fail(f"--{wrong.name}: {wrong}")


async def _show_last(
    recorded: Recorded,
    *,
    words: RecordWords,
    lines: int,
    follow: bool,
    as_json: bool,
) -> None:
    from routing.observability.records import search

    chosen = _filter_of(words, recorded.principals)
    found = (await search.newest(recorded.storage, chosen, lines))[::-1]
    _print_lines(found, recorded, as_json=as_json)
    if follow:
        await _follow(recorded, chosen, found, as_json=as_json)
    elif not found and not as_json:
        print_("No such requests were recorded.")


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
                typer.echo(harmless(f"{name}: {value}"))
        for title, part in (("Request", kept.request), ("Reply", kept.reply)):
            print_(f"{title}:")
            typer.echo(harmless(_readable(part).replace("\r\n", "\n")))


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

    from routing.observability.records.export import exported

    shown = console()
    # A pipe has no width, and whoever reads it wants a request on a line.
    room = shown.width if shown.is_terminal else None
    for each in found:
        if as_json:
            typer.echo(msgspec.json.encode(exported(each.record)).decode())
        else:
            shown.print(_line(each.record, recorded, room), soft_wrap=room is None)
    sys.stdout.flush()


_KEY, _MODEL = 16, 20
"""What the columns of names are wide; in a terminal, what does not fit is cut off."""

_ALL_BESIDE = 117
"""What a request's line has beside the model's name; where there is less room, it is two."""

_FIRST_BESIDE = 61
"""What the first of the two has."""

_SHORTEST = 8
"""No name is cut to less."""


def _line(record: Record, recorded: Recorded, room: int | None) -> Text:
    """A request.

    Args:
        record: of it.
        recorded: where that is from.
        room: the columns that there are; None for as many as it needs.
    """
    from datetime import datetime

    from rich.text import Text

    moment = datetime.fromtimestamp(record.time).astimezone()
    went_well = not record.error and not record.cancelled
    wraps = room is not None and room < _ALL_BESIDE + _MODEL
    left = _MODEL if room is None else room - (_FIRST_BESIDE if wraps else _ALL_BESIDE)
    line = Text()
    line.append(f"{moment:%m-%d %H:%M:%S}  ", "dim")
    line.append(f"{record.status}", "green" if went_well else "red" if record.error else "yellow")
    key = recorded.name(record.key) or record.key or "-"
    line.append(f"  {_in_column(key, _KEY, cut=room is not None)}")
    line.append(f"  {_in_column(record.model or '-', max(left, _SHORTEST), cut=room is not None)}")
    line.append(f"  {record.duration:7.2f} s")
    cost = f"  {dollars_text(_dollars(record)):>9}"
    tokens = f"  {_count(record.input_tokens):>8} in  {_count(record.output_tokens):>7} out"
    line.append(f"{cost}\n   {tokens}" if wraps else f"{tokens}{cost}")
    line.append(f"  {record.request_id}", "dim")
    if record.error:
        line.append(f"\n    {in_a_line(f'{record.error}: {record.message}')}", "red")
    elif record.cancelled:
        line.append("\n    the client left before the end", "yellow")
    return line


def _in_column(name: str, columns: int, *, cut: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    name = in_a_line(name)
    if cell_len(name) <= columns:
        return set_cell_size(name, columns)
    return f"{set_cell_size(name, columns - 1)}…" if cut else name


def _dollars(record: Record) -> float | None:
    from llama_compat.catalog.prices import NANO_DOLLARS

    return None if record.cost is None else record.cost / NANO_DOLLARS


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"


def _show_one(members: dict[str, Any], recorded: Recorded) -> None:
    shown = table("", "")
    shown.show_header = False
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
