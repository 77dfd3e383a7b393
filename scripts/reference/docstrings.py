"""What docstrings say: those under the fields of a class, and Google's sections as Markdown."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from itertools import pairwise

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


@cache
def of_fields(cls: type) -> dict[str, str]:
    """What stands under each field of a class, those that it inherits among them."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith(("llama_compat", "providers", "routing")):
            found.update(_own(each))
    return found


def _own(cls: type) -> dict[str, str]:
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return {}  # made while the program runs, as the classes of vendors are
    assert isinstance(body, ast.ClassDef)
    return of_assignments(body.body)


def of_assignments(body: list[ast.stmt]) -> dict[str, str]:
    """What stands under each name that is assigned to."""
    found = {}
    for one, other in pairwise(body):
        if isinstance(one, ast.AnnAssign):
            target: ast.expr = one.target
        elif isinstance(one, ast.Assign):
            target = one.targets[0]
        else:
            continue
        if (
            isinstance(target, ast.Name)
            and isinstance(other, ast.Expr)
            and isinstance(other.value, ast.Constant)
            and isinstance(other.value.value, str)
        ):
            found[target.id] = inspect.cleandoc(other.value.value)
    return found


def as_markdown(docstring: str) -> str:
    """A docstring, its `Args:` and the like as lists."""
    blocks = re.split(rf"^({'|'.join(SECTIONS)})(?: \(([^)]*)\))?:\n", docstring, flags=re.M)
    pieces = [blocks[0].strip()]
    for name, more, body in zip(blocks[1::3], blocks[2::3], blocks[3::3], strict=True):
        items, rest = _items(body)
        pieces.append(f"**{name}**{f' ({more})' if more else ''}")
        pieces.append("\n".join(f"- `{item}`: {what}" for item, what in items))
        if rest:
            pieces.append(rest)
    return "\n\n".join(each for each in pieces if each)


def split_attributes(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring without its `Attributes:`, and what that says of each."""
    match = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", docstring, flags=re.M)
    if match is None:
        return docstring, {}
    told = {
        name.strip("* "): what for names, what in _items(match[1])[0] for name in names.split(",")
    }
    return docstring[: match.start()] + docstring[match.end() :], told


def _items(body: str) -> tuple[list[tuple[str, str]], str]:
    """The items of a section, and what stands behind it."""
    indented, behind = [], []
    for line in body.splitlines():
        (behind if behind or (line and not line.startswith(" ")) else indented).append(line)
    text = textwrap.dedent("\n".join(indented))
    starts = re.split(r"^([A-Za-z_*][^:\n]*): ", text, flags=re.M)
    pairs = zip(starts[1::2], starts[2::2], strict=True)
    items = [(name, re.sub(r"\s+", " ", what).strip()) for name, what in pairs]
    if not items and text.strip():
        items = [("returned", re.sub(r"\s+", " ", text).strip())]
    return items, "\n".join(behind).strip()
