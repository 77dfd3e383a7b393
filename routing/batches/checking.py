"""A batch's input is looked at, line by line, before any of it is asked."""

from __future__ import annotations

from hashlib import blake2b
from typing import BinaryIO

from routing.batches.journal.journal import ROWS_TOGETHER
from routing.batches.journal.rows import LineRow
from routing.batches.wires import LineProblem, model_of, read_line

MAX_PROBLEMS = 10
"""Of a file that is refused so many are told."""


class Check:
    """Reads an input from its beginning; all of it blocks.

    Args:
        file: the input.
        endpoint: of the batch.
        max_lines: that it may have.
        max_line_bytes: that each may have.

    Attributes:
        problems: what is wrong with it, ten at most; more are not looked for.
        lines: how many there were so far, empty ones aside.
        models: that they ask for, two at most.
    """

    def __init__(
        self, file: BinaryIO, endpoint: str, *, max_lines: int, max_line_bytes: int
    ) -> None:
        self._file = file
        self._endpoint = endpoint
        self._max_lines = max_lines
        self._max_line_bytes = max_line_bytes
        self._place = 0
        self._at_line = 0
        self._seen: set[bytes] = set()
        self.problems: list[dict[str, object]] = []
        self.lines = 0
        self.models: set[str] = set()

    @property
    def model(self) -> str | None:
        """The model that all lines ask for; None where there are several."""
        return next(iter(self.models)) if len(self.models) == 1 else None

    def more(self) -> list[LineRow]:
        """The next lines; none at the end, or where no more is looked at."""
        rows: list[LineRow] = []
        while len(rows) < ROWS_TOGETHER and len(self.problems) < MAX_PROBLEMS:
            data = self._file.readline(self._max_line_bytes + 2)
            if not data:
                break
            begins, self._place = self._place, self._place + len(data)
            self._at_line += 1
            if len(data) > self._max_line_bytes + 1:
                self._problem("line_too_long", f"A line may have {self._max_line_bytes} bytes.")
                self._stop()
                break
            stripped = data.strip()
            if stripped.startswith(_BOM) and self._at_line == 1:
                stripped = stripped[len(_BOM) :]
            if not stripped:
                continue
            self.lines += 1
            if self.lines > self._max_lines:
                self._problem(
                    "too_many_lines", f"A batch may have {self._max_lines} lines. Split the file."
                )
                self._stop()
                break
            row = self._row(stripped, begins + data.index(stripped[:1]))
            if row is not None:
                rows.append(row)
        if not (rows or self.lines or self.problems):
            self.problems.append(
                LineProblem("empty_file", "The input file has no lines.").shown(None)
            )
        return rows

    def _row(self, data: bytes, begins: int) -> LineRow | None:
        try:
            line = read_line(data, self._endpoint)
            digest = blake2b(line.custom_id.encode(), digest_size=16).digest()
            if digest in self._seen:
                raise LineProblem(
                    "duplicate_custom_id",
                    f"The custom_id '{line.custom_id[:100]}' is that of an earlier line.",
                    "custom_id",
                )
        except LineProblem as problem:
            self.problems.append(problem.shown(self._at_line))
            return None
        self._seen.add(digest)
        model = model_of(line.body)
        if len(self.models) < 2:
            self.models.add(model)
        return LineRow(self._at_line, begins, len(data), model)

    def _problem(self, code: str, message: str) -> None:
        self.problems.append(LineProblem(code, message).shown(self._at_line))

    def _stop(self) -> None:
        self._file.seek(0, 2)


_BOM = b"\xef\xbb\xbf"
