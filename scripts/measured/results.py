"""What the benchmarks have written down."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results"


@cache
def result(name: str) -> dict[str, Any]:
    """What `bench/results/NAME.json` has."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def names() -> list[str]:
    """All results that there are."""
    return sorted(path.stem for path in RESULTS.glob("*.json"))


def link(name: str) -> str:
    """What a result is called on a page: the site has the pages alone, so it is no link."""
    return f"`bench/results/{name}.json`"


def when_and_where(machine: dict[str, Any]) -> str:
    """The date and the machine of a result, in a few words."""
    python = f", Python {machine['python']}" if "python" in machine else ""
    commit = machine.get("commit", "").partition("-dirty")
    tree = f", of the tree {commit[0]}" if commit[0] else ""
    if commit[1]:
        tree += " with changes that were not committed yet"
    return (
        f"{machine['date']}, on {machine['cores']} cores of an {machine['cpu']} with"
        f" {machine['memory_gib']:.0f} GiB{python}{tree}"
    )


def times(ratio: float) -> str:
    """A ratio as text: what is far from one needs no decimals."""
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}"


def number(value: float) -> str:
    """A figure with as many digits as say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
