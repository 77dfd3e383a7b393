"""When to come back, as headers say it."""

from __future__ import annotations

import pytest

from llama_compat.wire.retry_after import read_retry_after, retry_after


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1, ("1", "1000")), (0.0012, ("1", "2")), (2.5, ("3", "2500")), (0, ("0", "0"))],
)
def test_nobody_comes_back_too_early(seconds: float, said: tuple[str, str]) -> None:
    headers = retry_after(seconds)
    assert (headers["retry-after"], headers["retry-after-ms"]) == said
    read = read_retry_after(headers)
    assert read is not None
    assert seconds <= read < seconds + 0.001
