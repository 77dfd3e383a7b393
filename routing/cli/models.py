"""The command that shows the catalogue: models."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from routing.cli.commands import app
from routing.cli.pulling import size_of
from routing.cli.terminal import fail, print_, table

if TYPE_CHECKING:
    from llama_compat.catalog import Facts, KnownModel


@app.command()
def models(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]", help="VENDOR/MODEL, a part of it, or a pattern: 'claude-*-5*'."
        ),
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Those that were pulled onto this machine instead.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON in place of a table.")] = False,
) -> None:
    """Show what is known of vendors' models: what they take and hold, and when they end."""
    if local:
        _show_local(pattern, as_json=json)
        return
    from llama_compat.catalog import Catalog
    from llama_compat.catalog.listed import listed_vendors
    from llama_compat.catalog.vendors import VENDORS

    known = {each.listed for each in VENDORS.values()}
    vendor = pattern.partition("/")[0]
    vendors = {vendor} if vendor in listed_vendors() else known
    found = [each for each in Catalog(vendors).models() if _fits(each, pattern)]
    if json:
        typer.echo(_json(found))
        return
    if not found:
        fail(f"no model that is known fits '{pattern}'; without a pattern all are shown")
    shown = table("Model", "Holds", "Says", "$/M in, out", "Ends", "Takes")
    for column in shown.columns[:-1]:
        column.no_wrap = True
    for each in found:
        facts = each.facts
        shown.add_row(
            f"{each.vendor}/{each.model}",
            _tokens(facts.context),
            _tokens(facts.output),
            _price(each),
            "" if facts.shutdown is None else str(facts.shutdown),
            _takes(facts),
        )
    print_(shown)


@app.command()
def rm(
    model: Annotated[str, typer.Argument(help="As `llama-compat models --local` names it.")],
) -> None:
    """Remove a model that was pulled from this machine."""
    from providers.base import ProviderStartError
    from providers.local.models.pulled import remove

    try:
        removed = remove(model)
    except ProviderStartError as error:
        fail(error)
    typer.echo(f"{model} is removed: {size_of(removed.size)} are free again")


def _show_local(pattern: str, *, as_json: bool) -> None:
    import msgspec

    from providers.local.models.folders import store_folder
    from providers.local.models.pulled import forecast_of, pulled

    found = [each for each in pulled() if _is_like(each.name, pattern)]
    if not found and not as_json:
        fail(
            f"no model that was pulled into {store_folder()} fits '{pattern}'"
            if pattern
            else f"no model was pulled into {store_folder()} yet: llama-compat pull starter"
        )
    forecasts = [forecast_of(each) for each in found]
    if as_json:
        listed = [
            {**each._asdict(), "folder": str(each.folder), "engine": will.engine, "how": will.how}
            for each, will in zip(found, forecasts, strict=True)
        ]
        typer.echo(msgspec.json.format(msgspec.json.encode(listed)).decode())
        return
    shown = table("Model", "Size", "Holds", "Weights", "Runs on", "How")
    for each, will in zip(found, forecasts, strict=True):
        shown.add_row(
            each.name,
            size_of(each.size),
            _tokens(each.context),
            each.quantized_by or "",
            will.engine or "nothing here",
            will.how,
        )
    print_(shown)


def _fits(model: KnownModel, pattern: str) -> bool:
    whole = f"{model.vendor}/{model.model}"
    return _is_like(whole, pattern) or _is_like(model.model, pattern)


def _is_like(name: str, pattern: str) -> bool:
    """Whether a pattern fits a name, or what is none is a part of it."""
    if any(letter in pattern for letter in "*?["):
        return fnmatchcase(name, pattern)
    return pattern in name


def _takes(facts: Facts) -> str:
    """In a few words, what tells models apart."""
    words = [kind for kind in facts.input or () if kind != "text"]
    if facts.sampling is not None:
        words.append(_SAMPLING[facts.sampling])
    if facts.reasoning:
        words.append(f"thinking ({facts.thinking})" if facts.thinking else "thinking")
    words += ["tools"] * bool(facts.tools) + ["schemas"] * bool(facts.structured_output)
    words += [f"successor: {facts.successor}"] * bool(facts.successor)
    return ", ".join(words)


_SAMPLING = {
    "any": "sampling",
    "default": "no sampling",
    "unthinking": "sampling unless thinking",
    "one": "temperature or top_p unless thinking",
}


def _tokens(count: int | None) -> str:
    """`1M`, `128K`: about, as vendors say it."""
    if count is None:
        return ""
    if count < 1000:
        return str(count)
    return f"{count / 1e6:.3g}M" if count >= 1_000_000 else f"{count / 1e3:.3g}K"


def _price(model: KnownModel) -> str:
    from llama_compat.catalog.prices import known_rates

    rates = known_rates(model.vendor, model.model, model.facts.price)
    return "" if rates is None else f"{rates.input.base:g}, {rates.output.base:g}"


def _json(found: list[KnownModel]) -> str:
    import msgspec

    listed = [{"vendor": each.vendor, "model": each.model, **each.facts.known()} for each in found]
    return msgspec.json.format(msgspec.json.encode(listed)).decode()
