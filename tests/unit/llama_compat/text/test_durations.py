"""How long something is, as people write it."""

from __future__ import annotations

import pytest

from llama_compat.text.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("200ms", 0.2),
        ("2d", 172800),
        ("2w", 1209600),
    ],
)
def test_a_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-5m", "1 h", "1e3s", "5y", "1..5s", "9" * 50 + "s"]
)
def test_something_else(text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        seconds_of(text)
