"""Which files are made, and by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from scripts.measured import conformance, speed
from scripts.measured.plots import PLOTS, SCHEMES

FILES: Mapping[str, Callable[[], str]] = {
    "docs/reference/conformance.md": conformance.page,
    "docs/reference/speed.md": speed.page,
}

IMAGES: Mapping[str, Callable[[], str]] = {
    f"docs/reference/plots/{name}-{scheme}.svg": partial(plot, colours)
    for name, plot in PLOTS.items()
    for scheme, colours in SCHEMES.items()
}
"""What needs matplotlib, of the extra `docs`."""


def generated() -> dict[str, str]:
    """The text of every file, by its path from the repository's root."""
    return {path: make() for path, make in {**FILES, **IMAGES}.items()}
