"""`llama-compat usage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routing.cli.commands import app
from routing.cli.records.reading import (
    KeyOption,
    OptionalSource,
    SinceOption,
    TeamOption,
    UntilOption,
    dollars_text,
    read,
    span_of,
)
from routing.cli.storages import StorageOption
from routing.cli.terminal import UNBOUNDED, console, fail, print_, table, width_of

if TYPE_CHECKING:  # commands import what they need when they run
    from routing.cli.plain_table import PlainTable
    from routing.cli.records.reading import Recorded
    from routing.observability.records.reports import Since, Use, UseBy


class By(StrEnum):
    """What use can be told apart by."""

    key = "key"
    team = "team"
    model = "model"
    provider = "provider"
    day = "day"


@app.command()
def usage(
    template: OptionalSource = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            show_default="model",
            help="Any of key, team, model, provider, day: model,day",
        ),
    ] = None,
    since: SinceOption = "7d",
    until: UntilOption = None,
    key: KeyOption = None,
    team: TeamOption = None,
    json: Annotated[bool, typer.Option("--json", help="JSON in place of a table.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV in place of a table.")] = False,
    storage: StorageOption = None,
) -> None:
    """Show what was used, and what it cost."""
    from routing.observability.records.reports import usage_by, use_rows

    if json and csv:
        fail("--json and --csv are two ways to show the same: leave one out.")
    names = _names(",".join(by or ["model"]))
    by_names: list[UseBy] = [name.value for name in names]
    from_then, until_then = span_of(since, until)

    async def find(recorded: Recorded) -> tuple[Recorded, list[Use]]:
        keys = recorded.keys(key, team)
        uses = await usage_by(
            recorded.storage, by_names, from_then, until_then, keys, team_of=recorded.team
        )
        return recorded, uses

    recorded, uses = read(template, storage, find)
    if json:
        import msgspec

        rows = use_rows(uses, by_names, recorded.name)
        typer.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
    elif csv and uses:
        _print_csv(use_rows(uses, by_names, recorded.name))
    elif uses:
        _show(uses, names, recorded)
    else:
        typer.echo(_nothing(from_then, until_then))


def _names(by: str) -> list[By]:
    try:
        return list(dict.fromkeys(By(name.strip()) for name in by.split(",")))
    except ValueError:
        fail(f"--by {by}: expected any of {', '.join(By)}, with commas between them")


# For programs -------------------------------------------------------------------------------------


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    from routing.observability.records.export import csv_lines

    typer.echo(csv_lines([list(rows[0]), *(list(row.values()) for row in rows)]), nl=False)


# For people ---------------------------------------------------------------------------------------


def _show(uses: Sequence[Use], names: Sequence[By], recorded: Recorded) -> None:
    from routing.observability.records.reports import summed

    shown_at = console()
    total = summed(uses, ("",) * len(names)) if len(uses) > 1 else None
    titles = [title for title in _CELLS if _is_of_use(title, uses)]
    bars: Sequence[int] = _BARS if shown_at.is_terminal else ()
    shown = _table(uses, total, names, titles, recorded, bars[:1])
    # Numbers are not cut: what there is no room for is left out, and said to be.
    left_out = []
    for title in _LEFT_OUT_FIRST if shown_at.is_terminal else ():
        if width_of(shown_at, shown) <= shown_at.width:
            break
        if title in titles:
            titles.remove(title)
            left_out.append(title)
        elif title == _SHORTER_BARS:
            bars = bars[1:]
        shown = _table(uses, total, names, titles, recorded, bars[:1])
    if shown_at.is_terminal:
        _widen(shown, len(names), shown_at.width - width_of(shown_at, shown))
        shown_at.width = max(shown_at.width, width_of(shown_at, shown))
        shown_at.print(shown)
    else:
        _widen(shown, len(names), UNBOUNDED)
        print_(shown)
    if left_out:
        print_(f"{', '.join(reversed(left_out))}: no room here; --json and --csv have them.")
    _say_what_is_not_known(uses)


def _table(
    uses: Sequence[Use],
    total: Use | None,
    names: Sequence[By],
    titles: Sequence[str],
    recorded: Recorded,
    bars: Sequence[int],
) -> PlainTable:
    from rich.bar import Bar

    shown = table(*(name.value.capitalize() for name in names), *titles, *[""] * len(bars))
    costs_known = any(use.cost for use in uses)
    weights = [use.cost if costs_known else use.requests for use in uses]
    for use, weight in zip(uses, weights, strict=True):
        keys = [_key(name, value, recorded) for name, value in zip(names, use.keys, strict=True)]
        bar = [Bar(size=max(weights), begin=0, end=weight, width=width) for width in bars]
        shown.add_row(*keys, *(_CELLS[title](use) for title in titles), *bar)
    if total is not None:
        shown.add_section()
        blank = [""] * (len(names) - 1)
        shown.add_row(
            "Total", *blank, *(_CELLS[title](total) for title in titles), *[""] * len(bars)
        )
    for name, column in zip(names, shown.columns[: len(names)], strict=True):
        # A name may be folded, but not into less, and a key's id not at all.
        column.width = max(_SHORTEST_NAME, (column.min_width or 0) if name is By.key else 0)
        column.min_width = None
    for column in shown.columns[len(names) :]:
        column.no_wrap = True
        column.justify = "right"
        column.min_width = max(map(_columns_of, (column.header, *column.cells)))
    for column, width in zip(reversed(shown.columns), bars, strict=False):
        column.min_width = width
    return shown


_SHORTEST_NAME = 12
"""A name is folded where there is no room, but not into less; a day needs ten."""

_BARS = (10, 6)
"""The columns of a bar, and those of one where there is less room."""


def _columns_of(cell: object) -> int:
    from rich.cells import cell_len

    return cell_len(str(cell))


def _widen(shown: PlainTable, names: int, room: int) -> None:
    """Give the columns of names what room there is, as far as they need it."""
    for column in shown.columns[:names]:
        assert column.width is not None
        longest = max(map(_columns_of, (column.header, *column.cells)))
        wider = min(longest - column.width, room)
        if wider > 0:
            column.width += wider
            room -= wider


def _key(name: By, value: Any, recorded: Recorded) -> str:
    if name is By.key and (called := recorded.name(value)):
        return f"{called} ({value})"
    return str(value) or "-"


def _tokens(use: Use, count: int) -> str:
    return f"{'~' if use.estimated else ''}{count:,}"


def _cost(use: Use) -> str:
    known = use.dollars is not None
    return f"{dollars_text(use.dollars)}{'+' if known and use.unpriced else ''}"


_CELLS: Mapping[str, Callable[[Use], str]] = {
    "Requests": lambda use: f"{use.requests:,}",
    "Errors": lambda use: f"{use.errors:,}",
    "Input": lambda use: _tokens(use, use.input_tokens),
    "Cached": lambda use: f"{use.cached_tokens:,}",
    "Output": lambda use: _tokens(use, use.output_tokens),
    "Reasoning": lambda use: f"{use.reasoning_tokens:,}",
    "Searches": lambda use: f"{use.searches:,}",
    "Tools": lambda use: f"{use.tool_calls:,}",
    "Cost": _cost,
    "Mean": lambda use: f"{use.milliseconds / use.requests / 1000:.2f} s",
}
"""The columns of the table, after what use is told apart by."""

_SHORTER_BARS = "bars"

_LEFT_OUT_FIRST = (
    "Mean",
    _SHORTER_BARS,
    _SHORTER_BARS,
    "Reasoning",
    "Tools",
    "Searches",
    "Cached",
    "Errors",
)

_WHERE_THERE_ARE_ANY: Mapping[str, Callable[[Use], int]] = {
    "Cached": lambda use: use.cached_tokens,
    "Reasoning": lambda use: use.reasoning_tokens,
    "Searches": lambda use: use.searches,
    "Tools": lambda use: use.tool_calls,
}


def _is_of_use(title: str, uses: Sequence[Use]) -> bool:
    count = _WHERE_THERE_ARE_ANY.get(title)
    return count is None or any(map(count, uses))


def _say_what_is_not_known(uses: Sequence[Use]) -> None:
    estimated, unpriced = sum(use.estimated for use in uses), sum(use.unpriced for use in uses)
    if estimated:
        print_(f"~ The tokens of {estimated:,} requests are estimated: nobody counted them.")
    if unpriced:
        print_(
            f"+ {unpriced:,} requests have no known price; `price:` in a template's model gives it."
        )


def _nothing(since: Since, until: Since | None) -> str:
    then = f" and before {_moment(until)}" if until is not None else ""
    return f"No requests were recorded since {_moment(since)}{then}."


def _moment(since: Since) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(since.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
