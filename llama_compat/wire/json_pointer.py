"""Where a reference leads within its document: JSON Pointer (RFC 6901)."""

from __future__ import annotations

from collections.abc import Sequence


def steps_of(reference: str) -> Sequence[str]:
    """The names on the way from the root; `reference` begins with `#`."""
    return [step.replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:]]


def step_to(name: str) -> str:
    """How a name is written in a reference."""
    return name.replace("~", "~0").replace("/", "~1")
