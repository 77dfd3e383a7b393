"""Whatever a client is told of a model of this machine says which model that is.

What the template calls a model may be a path. An error that names one has to say so (`about`), or
its client would read that in place of the name by which it asked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LOCAL = Path(__file__).parents[3] / "providers" / "local"

TOLD = {
    "APIError",
    "UnsupportedHere",
    "invalid_parameter",
    "unsupported_capability",
    "unsupported_parameter",
    "unsupported_whoever_answers",
}
"""What makes errors for clients."""

A_MODEL = re.compile(r"model\s*'\{")


def errors_in(tree: ast.AST) -> Iterator[tuple[ast.Call, bool]]:
    """Each call that makes an error of a model by name, and whether it says so."""
    about = {
        id(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "about"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TOLD:
            words = "".join(map(text_of, node.args))
            if A_MODEL.search(words):
                yield node, id(node) in about


def text_of(node: ast.expr) -> str:
    """The text of an f-string, with `{` for each of its expressions."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{" for part in parts)


@pytest.mark.parametrize("path", sorted(LOCAL.rglob("*.py")), ids=lambda path: path.stem)
def test_an_error_that_names_a_model_says_which_that_is(path: Path) -> None:
    found = errors_in(ast.parse(path.read_text("utf-8")))
    assert [node.lineno for node, says in found if not says] == []


def test_errors_that_name_models_are_found() -> None:
    source = "raise APIError(429, f\"The model '{name}' is busy.\")"
    assert [says for _, says in errors_in(ast.parse(source))] == [False]
    assert [says for _, says in errors_in(ast.parse(f"{source}.about(name)"))] == [True]
