"""A question of the page of speed, and how it is answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts.measured.results import link, result, when_and_where
from scripts.reference.markdown import table

Table = tuple[Sequence[str], Iterable[Sequence[str]]]


@dataclass(frozen=True)
class Section:
    """One question.

    Attributes:
        question: the heading.
        answer: a sentence, of the figures.
        table: its head and its rows.
        results: the files of `bench/results/` that it is made of, without their ending.
        command: what measures it again.
        plot: the name of its plot, and what one sees on it.
        more: what else there is to know.
    """

    question: str
    answer: str
    table: Table
    results: Sequence[str]
    command: str
    plot: tuple[str, str] | None = None
    more: str = ""

    def text(self) -> str:
        """The section in Markdown."""
        measured = [
            f"Measured on {when_and_where(result(name)['machine'])}: {link(name)}."
            for name in self.results
        ]
        pieces = [f"## {self.question}", self.answer]
        if self.plot is not None:
            pieces.append(shown(*self.plot))
        pieces += [table(*self.table), self.more, *measured]
        pieces.append(f"Again: `{self.command}`.")
        return "\n\n".join(each for each in pieces if each)


def shown(name: str, what: str) -> str:
    """A plot on a page, for both of its colour schemes."""
    return "\n".join(
        f"![{what}](plots/{name}-{scheme}.svg#only-{scheme})" for scheme in ("light", "dark")
    )
