"""When to come back, as headers say it."""

from __future__ import annotations

import pytest

from llama_compat.wire.retry_after import is_never, read_retry_after, retry_after, retry_never


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


@pytest.mark.parametrize(
    "said",
    [
        *("", "soon", "-5", "NaN", "Infinity", "1e9", "9" * 400, "5, 10"),
        "Wed, 21 Oct 9999 07:28:00 GMT",
        "Wed, 21 Oct 9999 07:28:00 -9999",
        "Wed, 31 Feb 2026 25:61:61 GMT",
    ],
)
def test_what_makes_no_sense_is_not_waited_for(said: str) -> None:
    assert read_retry_after({"retry-after": said}) is None
    assert read_retry_after({"retry-after": said, "retry-after-ms": "nan"}) is None


def test_a_day_that_is_over_is_now() -> None:
    assert read_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


def test_who_is_never_let_in_is_told_so_as_openai_s_clients_read_it() -> None:
    assert retry_never() == {"x-should-retry": "false"}
    assert is_never(retry_never())
    assert not is_never({**retry_after(1), "x-should-retry": "true"})
    assert not is_never({})
