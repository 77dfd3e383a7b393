"""The body of a request: how much of it is held, and what is made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from llama_compat.errors import APIError
from llama_compat.wire import json_size
from routing.ingress.body import SMALL_BYTES, Bodies, parse_body, read_body
from routing.ingress.disconnect import ClientGone


def receiving(*messages: dict[str, Any]) -> Any:
    left = list(messages)

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    return receive


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(length: int | str | None = None) -> dict[str, Any]:
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return {"headers": headers}


async def read(bodies: Bodies, *messages: dict[str, Any], limit: int = 10**9) -> bytes:
    with bodies.one() as held:
        return await read_body(scope(), receiving(*messages), limit, held, 30)


async def test_a_body_is_put_together_from_its_parts() -> None:
    bodies = Bodies(10**9)
    assert await read(bodies, part(b"a"), part(b""), part(b"b", more=False)) == b"ab"
    assert await read(bodies, part(b"whole", more=False)) == b"whole"


async def test_a_body_has_a_limit() -> None:
    bodies = Bodies(10**9)
    assert await read(bodies, part(b"ab"), part(b"c", more=False), limit=3) == b"abc"
    with pytest.raises(APIError, match="larger than the 3 bytes") as caught:
        await read(bodies, part(b"ab"), part(b"cd"), limit=3)
    assert caught.value.status == 413
    with bodies.one() as held, pytest.raises(APIError, match="larger than the 3 bytes"):
        await read_body(scope(4), receiving(), 3, held, 30)


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 21, "4", "0004"])
async def test_a_length_that_is_too_much_however_many_digits_it_has(length: str) -> None:
    with Bodies(10**9).one() as held, pytest.raises(APIError, match="larger than the 3 bytes"):
        await read_body(scope(length), receiving(), 3, held, 30)


@pytest.mark.parametrize("length", ["", "-1", "+2", "many", "1e400", "1_0"])
async def test_what_is_no_length_says_nothing(length: str) -> None:
    with Bodies(10**9).one() as held:
        assert await read_body(scope(length), receiving(part(b"a", False)), 3, held, 30) == b"a"


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"GZIP, identity", b"x" * 100])
async def test_a_compressed_body_is_not_read(coding: bytes) -> None:
    compressed = {"headers": [(b"content-encoding", coding)]}
    with Bodies(10**9).one() as held, pytest.raises(APIError, match="uncompressed") as caught:
        await read_body(compressed, receiving(), 3, held, 30)
    assert caught.value.status == 415
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("coding", [b"", b"identity", b"Identity"])
async def test_a_body_may_say_that_it_is_as_it_is(coding: bytes) -> None:
    plain = {"headers": [(b"content-encoding", coding)]}
    with Bodies(10**9).one() as held:
        assert await read_body(plain, receiving(part(b"a", more=False)), 3, held, 30) == b"a"


def test_an_empty_body_is_called_so() -> None:
    with pytest.raises(APIError, match="it is empty"):
        parse_body(b"")


async def test_a_client_that_leaves_or_stops_is_told_apart() -> None:
    bodies = Bodies(10**9)
    with pytest.raises(ClientGone):
        await read(bodies, part(b"a"), {"type": "http.disconnect"})
    with pytest.raises(APIError, match="within 30 seconds, as `body_seconds`") as caught:
        await read(bodies, part(b"a"), {"type": "http.disconnect", "late": True})
    assert caught.value.status == 408


def test_all_bodies_together_have_a_limit() -> None:
    bodies = Bodies(10 * SMALL_BYTES)
    with bodies.one() as first, bodies.one() as second:
        first.grow_to(4 * SMALL_BYTES)
        first.grow_to(6 * SMALL_BYTES)
        assert bodies.held == 6 * SMALL_BYTES
        second.grow_to(4 * SMALL_BYTES)
        with pytest.raises(APIError, match="max_bodies_bytes") as caught:
            second.grow_to(4 * SMALL_BYTES + 1)
        assert (caught.value.status, caught.value.headers) == (
            503,
            {
                "retry-after": "1",
                "retry-after-ms": "1000",
            },
        )
        with bodies.one() as small:
            small.grow_to(SMALL_BYTES)
        assert bodies.held == 10 * SMALL_BYTES
    assert bodies.held == 0


def test_only_what_is_large_is_held_against_the_limit() -> None:
    bodies = Bodies(10 * SMALL_BYTES)
    with bodies.one() as one:
        one.grow_to(SMALL_BYTES)
        assert bodies.held == 0
        one.grow_to(SMALL_BYTES + 1)
        assert bodies.held == SMALL_BYTES + 1


def test_members_are_what_was_sent() -> None:
    assert parse_body(b'{"a": 1.0, "b": "x"}') == {
        "a": msgspec.Raw(b"1.0"),
        "b": msgspec.Raw(b'"x"'),
    }
    with pytest.raises(APIError, match="must be a JSON object") as caught:
        parse_body(b"[1]")
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_a_number_that_is_too_long_is_refused_by_name() -> None:
    digits = b"9" * json_size.MAX_DIGITS
    assert set(parse_body(b'{"a":1,"b":[%b]}' % digits)) == {"a", "b"}
    with pytest.raises(APIError, match=r"Invalid 'b'.*4300 digits") as caught:
        parse_body(b'{"a":1,"b":[%b9]}' % digits)
    assert (caught.value.status, caught.value.param) == (400, "b")


def test_a_body_of_too_many_values_is_refused() -> None:
    body = b'{"a":[%b1]}'
    fits = body % (b"1, " * (json_size.MAX_VALUES - 2))
    assert set(parse_body(fits)) == {"a"}
    with pytest.raises(APIError, match="more than 500000 values") as caught:
        parse_body(body % (b"1, " * (json_size.MAX_VALUES + 2)))
    assert (caught.value.status, caught.value.code) == (400, "too_many_values")
