"""The page of measured speed."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.measured import engines, gateway, parts, placement
from scripts.measured.results import link, names, result
from scripts.measured.section import Section
from scripts.reference.markdown import code, table
from scripts.reference.markdown import page as page_of

NOTE = (
    "<!-- Made by `make measured` from bench/results. What is changed here is lost:"
    " measure it again. -->"
)

INTRODUCTION = """\
What is claimed of speed, and by which measurement. Machines differ and are noisy, so everything was
run in turn with what it stands beside, in one run: ratios count, other figures are those of one
machine on one day. A figure is of the tree of its date; what has changed since then is not in it.
What has not been measured is not here. How each benchmark works is in `bench/README.md`."""


def page() -> str:
    """The page."""
    return page_of(
        "Measured speed",
        INTRODUCTION,
        *(each.text() for each in sections()),
        "## Which results are there?",
        _all(),
        note=NOTE,
    )


def sections() -> Iterator[Section]:
    """All questions, in order."""
    yield from gateway.sections()
    yield from placement.sections()
    yield from engines.sections()
    yield from parts.sections()


def _all() -> str:
    used = {name: each.question for each in sections() for name in each.results}
    rows = []
    for name in names():
        machine = result(name)["machine"]
        tree = code(machine["commit"].partition("-")[0])
        rows.append((link(name), machine["date"], machine["cpu"], tree, used.get(name, "not here")))
    return table(("file", "date", "machine", "tree", "where"), rows)
