"""A table whose cells may be anybody's."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from routing.cli.terminal import in_a_line

UNBROKEN = 20
"""Words of so many columns are not broken, numbers and ids among them; longer ones may be."""


class PlainTable(Table):
    """A table whose cells can do nothing to the terminal, and of which no number is cut.

    Where there is too little room, names go on in the next line; where there is none for what may
    not be broken, the table is wider than the terminal.

    Args:
        columns: their titles.
    """

    def __init__(self, *columns: str) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            self.add_column(column)

    def add_column(self, header: RenderableType = "", *parts: Any, **options: Any) -> None:
        """As rich's; what is too long is folded."""
        super().add_column(header, *parts, **{"overflow": "fold", **options})
        self._leave_room(len(self.columns) - 1, Text(str(header)))

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """As rich's; a text is shown as it is, on one line."""
        shown = [_shown(cell) for cell in cells]
        super().add_row(*shown, **options)
        for place, cell in enumerate(shown):
            if isinstance(cell, Text):
                self._leave_room(place, cell)

    @property
    def least_width(self) -> int:
        """The columns that it takes where nothing is broken that may not be."""
        widths = [column.width or column.min_width or 0 for column in self.columns]
        return sum(widths) + 3 * len(widths)

    def _leave_room(self, place: int, text: Text) -> None:
        longest = max(map(_columns, text.plain.split()), default=0)
        column = self.columns[place]
        column.min_width = max(column.min_width or 0, min(longest, UNBROKEN))


def _columns(word: str) -> int:
    return Text(word).cell_len


def _shown(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        return Text(in_a_line(cell))
    if isinstance(cell, Text) and not cell.plain.isprintable():
        return Text(in_a_line(cell.plain), cell.style)
    return cell
