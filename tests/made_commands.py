"""The commands of `llama-compat`, which typer makes of our functions anew whenever it is called."""

from __future__ import annotations

from functools import cache

import typer.main
import typer.testing


def make_commands_once() -> None:
    """Have those that were made called again, here and in what is forked from here.

    To look at the parameters of all of them takes longer than most commands do.
    """
    made = cache(typer.main.get_command)
    typer.main.get_command = made
    typer.testing._get_command = made
