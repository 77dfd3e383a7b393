"""The commands about keys: create, list, revoke, rotate those that are stored; hash any."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from routing.cli.terminal import fail, load, print_, table

if TYPE_CHECKING:
    from llama_compat.distribution import KeyGrant

Found = TypeVar("Found")

app = typer.Typer(help="Make, show and revoke the keys that let people in.", no_args_is_help=True)

Template = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE",
        help="The template whose `server.storage` has the keys.",
        show_default=False,
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The storage itself, sqlite:PATH or postgres://...; without both, the usual file.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, its prefix or its name.")]
AsJSON = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    team: Annotated[str | None, typer.Option(help="One of the template's.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="A date, or a time from now: 30d, 12h.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="PATTERN", help="What it opens, as in 'gpt-*'; all."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="DOLLARS/PERIOD", help="As in 10/month, 1.50/day, 99/ever."),
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Anything you want to note.")
    ] = None,
    template: Template = None,
    storage: StorageOption = None,
    as_json: AsJSON = False,
) -> None:
    """Make a key. It is shown this once, and kept as a hash."""
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "concurrent": concurrent,
    }
    grant = _grant(
        name=name,
        team=team,
        expires=_time_of(expires),
        models=models or [],
        limits=limits if any(limits.values()) else None,
        budget=_budget_of(budget),
        metadata=dict(_pair_of(each) for each in metadata or ()),
    )
    key, secret = _with_store(template, storage, lambda store: store.create(grant))
    _show_secret(key.shown(), secret, as_json)


@app.command("list")
def list_(
    template: Template = None,
    storage: StorageOption = None,
    as_json: AsJSON = False,
) -> None:
    """Show all keys, without the keys themselves."""
    keys = _with_store(template, storage, lambda store: store.list())
    if as_json:
        typer.echo(json.dumps([key.shown() for key in keys], indent=2))
        return
    if not keys:
        print_("No keys yet. Make one:  llama-compat keys create NAME")
        return
    now = datetime.now(UTC)
    shown = table("Key", "Name", "Team", "Models", "Limits", "State")
    shown.columns[0].no_wrap = True
    for key in keys:
        grant = key.grant
        state = "good"
        if key.revoked is not None:
            state = "revoked"
        elif grant.expires is not None:
            state = f"{'until' if grant.expires > now else 'expired'} {grant.expires:%Y-%m-%d}"
        shown.add_row(
            key.prefix,
            grant.name,
            grant.team or "",
            ", ".join(grant.models) or "all",
            ", ".join(_limits_of(grant)),
            state,
        )
    print_(shown)


@app.command()
def revoke(key: Name, template: Template = None, storage: StorageOption = None) -> None:
    """Let nobody in with a key any more. Running servers know within seconds."""
    revoked = _with_store(template, storage, lambda store: store.revoke(key))
    print_(f"{revoked.id} ({revoked.grant.name}) is revoked.")


@app.command()
def rotate(
    key: Name, template: Template = None, storage: StorageOption = None, as_json: AsJSON = False
) -> None:
    """Make a new key in the place of one, which opens nothing any more."""
    rotated, secret = _with_store(template, storage, lambda store: store.rotate(key))
    _show_secret(rotated.shown(), secret, as_json)


@app.command("hash")
def hash_() -> None:
    """Read a key, and show what a template may hold in its place."""
    from routing.access.keys.secret import digest_of

    if sys.stdin.isatty():
        key = typer.prompt("Key", hide_input=True)
    else:
        key = sys.stdin.readline().strip()
    if not key:
        fail("That was no key; write it on a line of its own.")
    typer.echo(f"sha256:{digest_of(key.encode())}")


def _show_secret(shown: dict[str, Any], secret: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**shown, "key": secret}, indent=2))
        return
    typer.echo(secret)
    typer.echo(f"This is the key of {shown['id']}; it is not shown again.", err=True)


def _with_store(
    template: str | None, storage: str | None, work: Callable[[Any], Awaitable[Found]]
) -> Found:
    """What `work` finds in the `KeyStore`; or what went wrong, and the end."""
    from llama_compat.distribution import default_storage
    from routing.access.keys.store import KEYS, KeyRefused, KeyStore, NoSuchKey
    from routing.storage.storage import StorageError, open_storage

    address = storage or default_storage().get_secret_value()
    teams = None
    if template is not None:
        distribution = load(template)
        teams = {each.id for each in distribution.teams}
        if storage is None:
            address = distribution.server.storage.get_secret_value()

    async def run() -> Found:
        opened = open_storage(address, [KEYS])
        await opened.start()
        try:
            return await work(KeyStore(opened, teams=teams))
        finally:
            await opened.stop()

    try:
        return asyncio.run(run())
    except (KeyRefused, NoSuchKey, StorageError) as error:
        fail(error)


def _grant(**values: Any) -> KeyGrant:
    from pydantic import ValidationError

    from llama_compat.distribution import KeyGrant

    try:
        return KeyGrant(**values)
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"--{first['loc'][0]}: {first['msg']}")


def _limits_of(grant: KeyGrant) -> Sequence[str]:
    words = []
    if grant.limits is not None:
        units = {
            "requests_per_minute": "rpm",
            "tokens_per_minute": "tpm",
            "concurrent": "at a time",
        }
        limits = grant.limits.model_dump(exclude_none=True)
        words = [f"{limit} {units[name]}" for name, limit in limits.items()]
    if grant.budget is not None:
        period = "" if grant.budget.period == "ever" else f" a {grant.budget.period}"
        words.append(f"${grant.budget.amount:g}{period}")
    return words


_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    if match := _SPAN.fullmatch(text):
        try:
            return datetime.now(UTC) + timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            fail(
                f"--expires: in '{text}' is after the year 9999. Leave it out for a key that stays."
            )
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        fail(f"--expires: '{text}' is no date such as 2027-01-31, and no time such as 30d or 12h.")
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _budget_of(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    amount, _, period = text.removeprefix("$").partition("/")
    return {"amount": amount, "period": period or "month"}


def _pair_of(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        fail(f"--metadata: '{text}' is no NAME=VALUE.")
    return name, value
