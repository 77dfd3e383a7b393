"""Regular expressions that every Python from 3.11 on reads the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_POSSESSIVE = re.compile(r"(?<!\\)(?:[*+?}]\+|\(\?>)")
"""Python before 3.11.5 goes wrong where the inside of these has to go back (gh-106052)."""


def patterns(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every pattern that is given to `re.compile`."""
    if "compile" not in source:
        return  # to take it apart takes long
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
            for constant in ast.walk(node.args[0]):
                if isinstance(constant, ast.Constant):
                    value = constant.value
                    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
                    yield constant.lineno, re.sub(r"\[(?:\\.|[^\]\\])*\]", "[]", text)


@pytest.mark.parametrize("floor", ["llama_compat", "providers", "routing"])
def test_none_is_possessive(floor: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / floor).rglob("*.py"))
        for line, pattern in patterns(path.read_text("utf-8"))
        if _POSSESSIVE.search(pattern)
    ]
    assert found == []


def test_the_check_sees_them() -> None:
    source = r"re.compile(r'a++'); re.compile(rb'(?:b)*+'); re.compile(r'[+]+\++[*+]')"
    found = [pattern for _, pattern in patterns(source) if _POSSESSIVE.search(pattern)]
    assert found == ["a++", "(?:b)*+"]
