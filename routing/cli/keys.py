"""The commands about keys: create, list, change, revoke, rotate those that are stored; hash any."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from llama_compat.text.durations import seconds_of
from routing.cli.storages import StorageOption, storage_address
from routing.cli.terminal import fail, print_, table

if TYPE_CHECKING:
    from pydantic import ValidationError

    from llama_compat.distribution import KeyGrant
    from routing.access.keys.store import StoredKey

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
Name = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, its prefix or its name.")]
AsJSON = Annotated[bool, typer.Option("--json", help="For programs.")]

LIMITS = {
    "requests_per_minute": "rpm",
    "tokens_per_minute": "tpm",
    "concurrent": "at a time",
}
"""What a key may be limited in, with its unit, in the order of the commands' options."""

NONE = "none"
"""Takes away what a key has."""

LimitOption = Annotated[str | None, typer.Option(metavar="COUNT", help="How many; or none.")]


Team = Annotated[str | None, typer.Option(help="One of the template's.")]
Expires = Annotated[
    str | None, typer.Option(metavar="WHEN", help="A date, or a time from now: 30d, 12h.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="PATTERN", help="What it opens, as in 'gpt-*'; all."),
]
Budget = Annotated[
    str | None, typer.Option(metavar="DOLLARS/PERIOD", help="As in 10/month, 1.50/day, 99/ever.")
]
Metadata = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Anything you want to note.")
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="PATTERN",
        help="What the server may run for it, as in 'web_*' or 'mcp.docs.*'; all.",
    ),
]
NoTools = Annotated[bool, typer.Option("--no-tools", help="The server may run nothing for it.")]
Checks = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="What its requests and replies are checked for: a template's `guardrails`, in YAML.",
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    team: Team = None,
    expires: Expires = None,
    models: Models = None,
    budget: Budget = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="How many it may begin.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Of prompts and replies together.")
    ] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    metadata: Metadata = None,
    tools: Tools = None,
    no_tools: NoTools = False,
    guardrails: Checks = None,
    template: Template = None,
    storage: StorageOption = None,
    as_json: AsJSON = False,
) -> None:
    """Make a key. It is shown this once, and kept as a hash."""
    limits = dict(zip(LIMITS, (requests_per_minute, tokens_per_minute, concurrent), strict=True))
    grant = _grant(
        name=name,
        team=team,
        expires=_time_of(expires),
        models=models or [],
        limits=limits if any(limits.values()) else None,
        budget=_budget_of(budget),
        metadata=dict(_pair_of(each) for each in metadata or ()),
        tools=[] if no_tools else tools or None,
        guardrails=[] if guardrails is None else _checks_in(guardrails),
    )
    key, secret = _with_store(template, storage, lambda store: store.create(grant))
    _show_secret(key.shown(), secret, as_json)


@app.command()
def change(
    key: Name,
    name: Annotated[str | None, typer.Option(help="What to call it from now on.")] = None,
    team: Team = None,
    expires: Expires = None,
    models: Models = None,
    budget: Budget = None,
    requests_per_minute: LimitOption = None,
    tokens_per_minute: LimitOption = None,
    concurrent: LimitOption = None,
    metadata: Metadata = None,
    tools: Tools = None,
    no_tools: NoTools = False,
    guardrails: Checks = None,
    template: Template = None,
    storage: StorageOption = None,
    as_json: AsJSON = False,
) -> None:
    """Change what a key opens; what is not named stays, and `none` takes away what is.

    Running servers know within seconds."""
    limits = dict(zip(LIMITS, (requests_per_minute, tokens_per_minute, concurrent), strict=True))
    changed_limits = {
        limit: None if text == NONE else _limit_of(limit, text)
        for limit, text in limits.items()
        if text is not None
    }
    given: dict[str, Any] = {} if name is None else {"name": name}
    for option, text, read in (
        ("team", team, str),
        ("expires", expires, _time_of),
        ("budget", budget, _budget_of),
    ):
        if text is not None:
            given[option] = None if text == NONE else read(text)
    if models:
        given["models"] = [] if models == [NONE] else models
    if tools or no_tools:
        given["tools"] = [] if no_tools else None if tools == [NONE] else tools
    if guardrails is not None:
        given["guardrails"] = [] if guardrails == NONE else _checks_in(guardrails)
    noted = None if not metadata else {} if metadata == [NONE] else dict(map(_pair_of, metadata))
    if not given and not changed_limits and noted is None:
        fail("Nothing to change: name what is to be other, as in --budget 20/month.")

    def members(grant: KeyGrant) -> dict[str, Any]:
        return given | _limited(grant, changed_limits) | _with_notes(grant, noted)

    found = _with_store(template, storage, lambda store: store.change(key, members))
    if as_json:
        typer.echo(json.dumps(found.shown(), indent=2))
    else:
        _show_keys([found])


def _limited(grant: KeyGrant, changed: dict[str, int | None]) -> dict[str, Any]:
    if not changed:
        return {}
    before = {} if grant.limits is None else grant.limits.model_dump()
    after = {**before, **changed}
    return {"limits": after if any(after.values()) else None}


def _with_notes(grant: KeyGrant, noted: dict[str, str] | None) -> dict[str, Any]:
    if noted is None:
        return {}
    return {"metadata": {**grant.metadata, **noted} if noted else {}}


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
    _show_keys(keys)


def _show_keys(keys: Sequence[StoredKey]) -> None:
    now = datetime.now(UTC)
    shown = table("Key", "Name", "Team", "Models", "Limits", "State")
    shown.columns[0].no_wrap = True
    for key in keys:
        grant = key.grant
        state = "good"
        if key.revoked is not None:
            state = "revoked"
        elif not key.is_readable:
            state = "of a newer version"
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
    from pydantic import ValidationError

    from routing.access.keys.store import KEYS, KeyRefused, KeyStore, NoSuchKey
    from routing.storage.storage import StorageError, open_storage

    address, distribution = storage_address(template, storage)
    teams = None if distribution is None else {each.id for each in distribution.teams}

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
    except ValidationError as error:
        fail(_wrong(error))


def _grant(**values: Any) -> KeyGrant:
    from pydantic import ValidationError

    from llama_compat.distribution import KeyGrant

    try:
        return KeyGrant(**values)
    except ValidationError as error:
        fail(_wrong(error))


def _wrong(error: ValidationError) -> str:
    first = error.errors()[0]
    option, *place = map(str, first["loc"])
    where = f" at {'.'.join(place)}" if place else ""
    return f"--{option}{where}: {first['msg']}"


def _limits_of(grant: KeyGrant) -> Sequence[str]:
    words = []
    if grant.limits is not None:
        limits = grant.limits.model_dump(exclude_none=True)
        words = [f"{limit} {LIMITS[name]}" for name, limit in limits.items()]
    if grant.budget is not None:
        period = "" if grant.budget.period == "ever" else f" a {grant.budget.period}"
        words.append(f"${grant.budget.amount:g}{period}")
    return words


def _time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    with suppress(ValueError):
        seconds = seconds_of(text)
        try:
            return datetime.now(UTC) + timedelta(seconds=seconds)
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


def _limit_of(limit: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        fail(f"--{limit.replace('_', '-')}: '{text}' is no number from 1 on, and not 'none'.")
    return int(text)


def _checks_in(file: str) -> Any:
    import yaml

    try:
        found = yaml.safe_load(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail(f"--guardrails: {file} can't be read: {error}")
    # All of a template's member may stand there, its name included.
    return found.get("guardrails") if isinstance(found, dict) else found


def _pair_of(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        fail(f"--metadata: '{text}' is no NAME=VALUE.")
    return name, value
