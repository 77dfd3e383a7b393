"""The version that a client names of what it read."""

from __future__ import annotations

import pytest

from routing.ingress.if_match import version_in


@pytest.mark.parametrize(
    ("header", "version"),
    [('"12"', "12"), (' W/"12" ', "12"), ("12", "12"), ("*", "*"), ('""', ""), (None, None)],
)
def test_a_version_is_read_however_it_is_written(header: str | None, version: str | None) -> None:
    assert version_in(header) == version
