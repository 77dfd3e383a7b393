"""What all commands do at the terminal: load a template, show a table, say why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from llama_compat.distribution import Distribution

TEMPLATE_PROBLEM = 2
"""The exit code for a template that can't be used; anything else that goes wrong is 1."""


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
    typer.echo(str(error), err=True)
    raise typer.Exit(code)


def table(*columns: str) -> Table:
    """A table with these columns, and no rows."""
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def print_(renderable: object) -> None:
    """Show text, or a table."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=isinstance(renderable, str)).print(renderable, markup=False)
