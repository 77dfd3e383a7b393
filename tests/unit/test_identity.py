"""Nothing is known by its address: when it is gone, another may lie there.

What has to be found by an object is kept by that object, or in it.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOORS = ("llama_compat", "providers", "routing")

ADDRESSES = ("id", "hash")
"""What takes an address; `hash` does of whatever does not say what it is equal to."""

SPELLED_OUT = ("object.__hash__", "object.__repr__", "builtins.id", "builtins.hash")

LAST_NAMES = {name.rpartition(".")[2] for name in SPELLED_OUT}


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from scopes(child)


def taken(source: str) -> list[int]:
    """The lines of the functions in which an address is taken, whatever is done with it."""
    module = symtable.symtable(source, "source", "exec")
    lines = [
        table.get_lineno()
        for table in scopes(module)
        for name in ADDRESSES
        if name in table.get_identifiers()
        and (symbol := table.lookup(name)).is_referenced()
        and (symbol.is_global() or table is module)
        and not symbol.is_assigned()
    ]
    if not any(name in source for name in LAST_NAMES):
        return lines  # to take it apart takes long
    spelled_out = (
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in LAST_NAMES
        and ast.unparse(node) in SPELLED_OUT
    )
    return [*lines, *spelled_out]


@pytest.mark.parametrize("floor", FLOORS)
def test_nothing_is_known_by_its_address(floor: str) -> None:
    found = sorted((ROOT / floor).rglob("*.py"))
    assert found
    addresses = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in found
        for line in taken(path.read_text("utf-8"))
    ]
    assert addresses == []


@pytest.mark.parametrize(
    "source",
    [
        "seen[id(reply)] = 1",
        "def key(name, source): return name, id(source)",
        "def key(those): return {id(each): each for each in those}",
        "class Keys:\n def of(self, those): return list(map(id, those))",
        "those.sort(key=id)",
        "address_of = id",
        "known = hash(counter)",
        "known = object.__hash__(counter)",
    ],
)
def test_the_check_sees_an_address_wherever_it_is_taken(source: str) -> None:
    assert len(taken(source)) == 1


def test_the_check_passes_over_names_and_attributes() -> None:
    assert not taken("def of(those): return {piece: id for id, piece in those}")
    assert not taken("def call(id, name): return make(id, name, principal.id)")
    assert not taken("class Target:\n def id(self): return ''\n hash: str = ''")
