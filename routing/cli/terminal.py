"""What all commands do at the terminal: load a template, show a table, say why not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from llama_compat.text.one_line import one_line
from routing.cli import completion

if TYPE_CHECKING:
    from rich.console import Console

    from llama_compat.distribution import Distribution
    from routing.cli.plain_table import PlainTable

TEMPLATE_PROBLEM = 2
"""The exit code for a template that can't be used; anything else that goes wrong is 1."""


TemplateArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE",
        help="The name of a shipped template, or a YAML file.",
        autocompletion=completion.templates,
    ),
]
"""What a command is about."""


def load(template: str) -> Distribution:
    """The validated template; or all that is wrong with it, and the end."""
    from llama_compat.distribution import load_distribution
    from llama_compat.distribution.problems import TemplateError
    from providers.registry import config_model

    try:
        return load_distribution(template, config_model)
    except TemplateError as error:
        fail(error, TEMPLATE_PROBLEM)


def fail(error: Exception | str, code: int = 1) -> NoReturn:
    """Say what went wrong, and end with `code`."""
    typer.echo(harmless(str(error)), err=True)
    raise typer.Exit(code)


_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What moves a terminal's cursor, changes its colours, rings, turns the order of letters round, or
is no character at all. Lines and tabs are left."""


def harmless(text: str) -> str:
    """Somebody's text as a terminal may be given it: what would do something there is spelt out."""
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text)


def in_a_line(text: str) -> str:
    """The same for a name, or what else has one line."""
    return one_line(text, len(text))


def stripped(text: str) -> str:
    """The same without what would do something there."""
    return _HARMFUL.sub("", text)


def console() -> Console:
    """The terminal, or what is in its place: texts are shown as they are, `:cat:` too."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def table(*columns: str) -> PlainTable:
    """A table with these columns, and no rows."""
    from routing.cli.plain_table import PlainTable

    return PlainTable(*columns)


def print_(renderable: object) -> None:
    """Show text, or a table; in a pipe that is as wide as it needs to be."""
    from routing.cli.plain_table import PlainTable

    shown = console()
    if isinstance(renderable, str):
        shown.print(harmless(renderable), soft_wrap=True)
        return
    if not shown.is_terminal:
        shown.width = max(shown.width, width_of(shown, renderable))
    elif isinstance(renderable, PlainTable):
        shown.width = max(shown.width, renderable.least_width)
    shown.print(renderable)


def width_of(shown: Console, renderable: Any) -> int:
    """The columns that something takes where there is no end of them."""
    return shown.measure(renderable, options=shown.options.update(width=UNBOUNDED)).maximum


UNBOUNDED = 10_000
"""As many columns as any table here can use: a pipe has no width."""
