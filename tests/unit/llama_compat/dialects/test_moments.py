"""Moments as APIs write them."""

from __future__ import annotations

import pytest

from llama_compat.dialects.moments import exact_utc_text, utc_text


@pytest.mark.parametrize(
    ("seconds", "text", "exact"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1764007200.25, "2025-11-24T18:00:00Z", "2025-11-24T18:00:00.250000Z"),
        (1764007199.9999995, "2025-11-24T17:59:59Z", "2025-11-24T17:59:59.999999Z"),
        (253402300800, "10000-01-01T00:00:00Z", "10000-01-01T00:00:00.000000Z"),
    ],
)
def test_a_moment_to_the_second_and_exactly(seconds: float, text: str, exact: str) -> None:
    assert utc_text(seconds) == text
    assert exact_utc_text(seconds) == exact
