"""Which refusals have a line of a batch asked again."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from llama_compat.wire.retry_after import retry_after, retry_never
from routing.batches.asking import _not_now


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "insufficient_quota"])
def test_a_line_that_is_never_let_in_is_not_asked_again(code: str) -> None:
    again = _not_now(APIError(429, "Later.", code="rate_limit_exceeded", headers=retry_after(3)))
    assert again is not None
    assert again.retry_after == 3
    assert _not_now(APIError(429, "Never.", code=code, headers=retry_never())) is None


def test_what_is_wrong_with_a_line_is_its_answer() -> None:
    assert _not_now(APIError(400, "No.", code="invalid_value")) is None
