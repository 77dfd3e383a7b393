"""Which storage a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from routing.cli.terminal import load

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution

StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="ADDRESS",
        help="The storage itself, sqlite:PATH or postgres://...; without both, the usual file.",
    ),
]


def storage_address(template: str | None, storage: str | None) -> tuple[str, Distribution | None]:
    """Where it is, and what the template says, if one is named: the storage that is named itself,
    else that of the template, else this user's own. Or all that is wrong with the template, and the
    end."""
    from llama_compat.distribution import default_storage

    distribution = None if template is None else load(template)
    if storage is not None:
        return storage, distribution
    usual = default_storage() if distribution is None else distribution.server.storage
    return usual.get_secret_value(), distribution
