"""`own.toml`: what the other sources lack or have wrong, by pattern, each row with its source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.catalog.facts import Facts
from llama_compat.catalog.makers import makers_name

FILE = Path(__file__).with_name("own.toml")


class Row(Struct, frozen=True):
    """One row of the file.

    Attributes:
        vendors: whose models it is about.
        models: patterns of their names, as their makers have them.
        but: patterns of those that it is not about, although one of `models` fits.
        source: where it says so.
        read: when that was read.
        facts: what it says.
    """

    vendors: tuple[str, ...]
    models: tuple[str, ...]
    but: tuple[str, ...]
    source: str
    read: date
    facts: Facts

    def fits(self, vendor: str, model: str) -> bool:
        """Whether it is about the model that `vendor` calls `model`."""
        if vendor not in self.vendors:
            return False
        name = makers_name(model)
        return any(fnmatchcase(name, pattern) for pattern in self.models) and not any(
            fnmatchcase(name, pattern) for pattern in self.but
        )


@cache
def own_rows() -> Sequence[Row]:
    """All rows, in the order of the file: a later one counts for more."""
    return [_row(row) for row in _file()["row"]]


def newer_models(vendor: str) -> Sequence[str]:
    """The names of a vendor's models that came after the list."""
    found: Sequence[str] = _file()["newer"].get(vendor, ())
    return found


@cache
def _file() -> dict[str, Any]:
    import tomllib  # which a gateway to no vendor does without

    return tomllib.loads(FILE.read_text("utf-8"))


def _row(row: dict[str, Any]) -> Row:
    about: dict[str, Any] = {name: row[name] for name in _ABOUT if name in row}
    facts = {name: value for name, value in row.items() if name not in _ABOUT}
    return msgspec.convert({"but": (), **about, "facts": facts}, Row)


_ABOUT = ("vendors", "models", "but", "source", "read")
