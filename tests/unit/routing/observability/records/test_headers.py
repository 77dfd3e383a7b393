"""Headers as they are kept: of what may be a key only that it was there."""

from __future__ import annotations

import pytest

from routing.observability.records.headers import (
    COVERED,
    MOST_CHARACTERS,
    MOST_HEADERS,
    kept_headers,
    read_headers,
)

SECRET = b"SECRET123"


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "proxy-authorization",
        "x-api-key",
        "x-goog-api-key",
        "api-key",
        "cookie",
        "referer",
        "x-forwarded-access-token",
        "sec-websocket-protocol",
        "x-anything-else",
        "user-agents",
        "accept-",
        "",
    ],
)
def test_what_nobody_knows_to_be_harmless_is_covered(name: str) -> None:
    assert read_headers(kept_headers([(name.encode(), SECRET)])) == [(name, COVERED)]


def test_what_a_client_is_and_wants_is_kept_in_its_order() -> None:
    sent = [
        ("user-agent", "OpenAI/Python 2.1"),
        ("x-stainless-lang", "python"),
        ("accept", "a"),
        ("accept", "b"),
        ("x-forwarded-for", "10.0.0.1"),
        ("sec-fetch-mode", "cors"),
        ("content-type", "caf\xe9"),
    ]
    assert read_headers(kept_headers((a.encode(), b.encode("latin-1")) for a, b in sent)) == sent


def test_what_the_template_names_is_not_kept() -> None:
    kept = kept_headers(
        [(b"user-agent", b"a SECRET123 b")], lambda value: value.replace(SECRET, b"[redacted]")
    )
    assert read_headers(kept) == [("user-agent", "a [redacted] b")]


def test_there_is_a_bound() -> None:
    kept = read_headers(kept_headers([(b"accept", b"x" * 10_000)] * 1000))
    assert len(kept) == MOST_HEADERS
    assert {len(value) for _, value in kept} == {MOST_CHARACTERS}


def test_of_none_there_is_nothing() -> None:
    assert read_headers("") == []
    assert read_headers(kept_headers([])) == []
