"""Every command, with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main

from routing.cli import app
from scripts.reference.docstrings import as_markdown
from scripts.reference.markdown import code, table
from scripts.reference.markdown import page as page_of

INTRODUCTION = """\
`llama-compat COMMAND --help` says the same in a terminal. `llama-compat --install-completion`
teaches your shell the commands, and to complete the names of templates and models.

The exit code is 2 for a template or a command line that is wrong, 1 for anything else that has to
be mended first, and 0 after Ctrl-C or SIGTERM: the server then takes no more requests and gives
those that run `shutdown_grace_seconds` to finish."""


def page() -> str:
    """The commands."""
    root = typer.main.get_command(app)
    return page_of("Commands", INTRODUCTION, *(_section(*each) for each in _commands(root)))


def _commands(group: Any, path: str = "llama-compat") -> Iterator[tuple[str, Any]]:
    """All that can be called: a group only where it does something by itself."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield f"{path} {name}", command
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _section(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and not each.hidden and each.name != "help"
    ]
    usage = " ".join([path, *("[OPTIONS]" for _ in options[:1]), *map(_metavar, arguments)])
    pieces = [f"## {path}", as_markdown(command.help or ""), f"```text\n{usage}\n```"]
    if arguments:
        rows = [(code(_metavar(each)), each.help or "") for each in arguments]
        pieces.append(table(("argument", "what it is"), rows))
    if options:
        rows = [_option(each) for each in options]
        pieces.append(table(("option", "default", "what it is"), rows))
    return "\n\n".join(pieces)


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> tuple[str, str, str]:
    names = ", ".join([*option.opts, *option.secondary_opts])
    kind = option.type_descriptor.annotation
    if not option.is_flag:
        choices = "|".join(each.value for each in kind) if issubclass(kind, Enum) else ""
        names += f" {option.metavar or choices or kind.__name__.upper()}"
    default = option.default() if callable(option.default) else option.default
    if isinstance(option.show_default, str):
        default = option.show_default
    told = option.help or ""
    if option.envvar:
        told += f" From the environment: `{option.envvar}`."
    return code(names), "" if default in (None, False) else code(_text(default)), told


def _text(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)
