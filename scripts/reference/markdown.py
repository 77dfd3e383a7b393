"""Pieces of Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

GENERATED = "<!-- Made by `make reference` from the code. What is changed here is lost. -->"


def page(title: str, *pieces: str, note: str = GENERATED) -> str:
    """A page of paragraphs, tables and sections; `note`, in its source, tells what makes it."""
    return "\n\n".join([f"# {title}", note, *(each for each in pieces if each)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what is in its cells may be of several lines."""
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: object) -> str:
    """`text` as code; nothing for nothing."""
    return f"`{text}`" if str(text) else ""


def codes(texts: Iterable[object]) -> str:
    """Several, in order."""
    return ", ".join(code(each) for each in texts)


def sentence(text: str) -> str:
    """A docstring as running text, on one line."""
    return re.sub(r"\s+", " ", text).strip()


def _cell(text: str) -> str:
    # GitHub would end the cell at a bar inside of code, and Python-Markdown show a backslash there.
    with_bars = re.sub(r"`([^`]*\|[^`]*)`", _code_with_bars, sentence(text))
    return with_bars.replace("|", "\\|")


def _code_with_bars(match: re.Match[str]) -> str:
    return f"<code>{html.escape(match[1]).replace('|', '&#124;')}</code>"
