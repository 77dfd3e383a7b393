"""Steps of references, as RFC 6901 writes them."""

from __future__ import annotations

import pytest

from llama_compat.wire.json_pointer import step_to, steps_of


@pytest.mark.parametrize(
    ("reference", "steps"),
    [
        ("#", []),
        ("#/", [""]),
        ("#/$defs/a", ["$defs", "a"]),
        ("#/a~1b/m~0n", ["a/b", "m~n"]),
        # `~01` is a tilde before a one, and no slash.
        ("#/~01", ["~1"]),
    ],
)
def test_steps_are_those_of_the_rfc(reference: str, steps: list[str]) -> None:
    assert steps_of(reference) == steps
    assert "/".join(["#", *map(step_to, steps)]) == reference
