"""Answers taken apart: the same whatever way they are cut, and bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.remote.http1.errors import ProtocolError
from providers.remote.http1.parser import MAX_HEADERS, MAX_INTERIM_ANSWERS, ResponseParser

BODY = b'{"id":"1","text":"w\xc3\xb6rld"}'


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


# Name: the bytes, whether the connection is closed after them, status, body, whether another
# request may follow.
ANSWERS: dict[str, tuple[bytes, bool, int, bytes, bool]] = {
    "length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: b\r\n\r\n%b" % (len(BODY), BODY),
        False, 200, BODY, True,
    ),
    "no body": (b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 0\r\n\r\n", False, 200, b"", True),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
        + chunked(BODY[:3], BODY[3:4], BODY[4:]),
        False, 200, BODY, True,
    ),
    "extensions and trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nX-A: b\r\n\r\n"
        b"5;a=b\r\nhello\r\n0;c\r\nX-A: trailer\r\nX-B: c\r\n\r\n",
        False, 200, b"hello", True,
    ),
    "until the end": (
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n" + BODY, True, 200, BODY, False,
    ),
    "nothing until the end": (b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n", True, 200, b"", False),
    "closing": (
        b"HTTP/1.1 429 Slow\r\nConnection: close\r\nContent-Length: 2\r\nX-A: b\r\n\r\nno",
        False, 429, b"no", False,
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi",
        False, 200, b"hi", False,
    ),
    "HTTP/1.0, kept alive": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi",
        False, 200, b"hi", True,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", False, 204, b"", True),
    "304": (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\nX-A: b\r\n\r\n", False, 304, b"", True),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-A: c\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi",
        False, 200, b"hi", True,
    ),
    "bare line feeds": (
        b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nhi", False, 200, b"hi", True,
    ),
    "no reason, odd case": (
        b"HTTP/1.1 200\r\ncontent-LENGTH:2\r\nx-a:b \t\r\n\r\nhi", False, 200, b"hi", True,
    ),
    "blank lines before": (
        b"\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi",
        False, 200, b"hi", True,
    ),
    "another one behind": (
        b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nX-A: c\r\n"
        b"Content-Length: 3\r\n\r\nbad",
        False, 200, b"hi", False,
    ),
    "nonsense behind": (
        b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhinonsense",
        False, 200, b"hi", False,
    ),
}  # fmt: skip

Seen = tuple[bool, int, bytes, bool, str | None]


def parsed(pieces: list[bytes], *, closed: bool) -> Seen:
    parser = ResponseParser()
    for piece in pieces:
        if piece:
            parser.feed(piece)
    if closed:
        parser.end()
    body = b"".join(parser.body)
    return parser.complete, parser.status, body, parser.keep_alive, parser.headers.get("x-a")


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *sorted(marks), len(data)])]


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_in_one_piece_and_byte_by_byte(name: str) -> None:
    data, closed, status, body, keep_alive = ANSWERS[name]
    expected = (True, status, body, keep_alive, "b")
    assert parsed([data], closed=closed) == expected
    assert parsed([bytes([each]) for each in data], closed=closed) == expected


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 250), max_size=30))
def test_an_answer_is_the_same_however_it_is_cut(name: str, marks: list[int]) -> None:
    data, closed, *_ = ANSWERS[name]
    assert parsed(cut(data, marks), closed=closed) == parsed([data], closed=closed)


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    st.lists(st.integers(0, 3000), max_size=30),
)
def test_any_body_comes_through_in_chunks(parts: list[bytes], marks: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
    pieces = cut(head + chunked(*parts), marks)
    assert parsed(pieces, closed=False) == (True, 200, b"".join(parts), True, "b")


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_any_bytes_are_an_answer_or_an_error(data: bytes, marks: list[int]) -> None:
    for start in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        outcomes = []
        for pieces in ([start + data], cut(start + data, marks)):
            try:
                outcomes.append(parsed(pieces, closed=True))
            except ProtocolError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1] or None in outcomes


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - {"another one behind", "nonsense behind"}))
def test_an_answer_that_is_cut_short_is_not_complete(name: str) -> None:
    data, closed, *_ = ANSWERS[name]
    head = data.find(b"\r\n\r\n", data.find(b" 200 ")) if closed else len(data) - 1
    for end in range(head):
        assert not parsed([data[:end]], closed=True)[0] or data[:end].endswith(b"\n\n")


def test_answers_follow_each_other_on_a_connection() -> None:
    parser = ResponseParser()
    for name in ("chunks", "length", "304", "interim", "no body", "length"):
        data, _, status, body, _ = ANSWERS[name]
        parser.expect()
        assert (parser.begun, parser.has_head, parser.complete) == (False, False, False)
        parser.feed(data)
        assert (parser.complete, parser.status, parser.body) == (
            True, status, [each for each in parser.body if each]
        )  # fmt: skip
        assert b"".join(parser.body) == body


def test_headers_that_come_twice_are_joined() -> None:
    parser = ResponseParser()
    parser.feed(
        b"HTTP/1.1 200 OK\r\nVary: a\r\nvary: b\r\nContent-Length: 0\r\nX: caf\xc3\xa9\r\n\r\n"
    )
    assert parser.headers == {"vary": "a, b", "content-length": "0", "x": "caf\u00c3\u00a9"}


HEAD = b"HTTP/1.1 200 OK\r\n"
REFUSED = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "length that is none": HEAD + b"Content-Length: 1e3\r\n\r\n",
    "length past 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "coding behind chunks": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
    "chunk size that is none": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "chunk size past 64 bits": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
    "blank before a colon": HEAD + b"A : b\r\n\r\n",
    "zero byte": HEAD + b"A: b\x00c\r\n\r\n",
    "status below 100": b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
    "other protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "bare 101": b"HTTP/1.1 101 Switching\r\n\r\n",
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM_ANSWERS + 1),
    "many headers": HEAD + b"A: b\r\n" * (MAX_HEADERS + 2),
    "long header": HEAD + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
    "long name": HEAD + b"a" * 70_000 + b": b\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_answer_is_refused(name: str) -> None:
    for pieces in ([REFUSED[name]], [bytes([each]) for each in REFUSED[name]]):
        with pytest.raises(ProtocolError):
            parsed(pieces, closed=False)


ENDLESS = {
    "header's value": (HEAD + b"A: ", b"b"),
    "header's name": (HEAD, b"a"),
    "reason": (b"HTTP/1.1 200 ", b"a"),
    "blank lines": (b"", b"\r\n"),
    "trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
    "a trailer's value": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", b"b"),
    "a chunk's extension": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;a=", b"b"),
    "interim headers": (b"HTTP/1.1 100 Continue\r\n", b"A: b\r\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("size", [1, 1000, 30_000])
def test_what_never_ends_is_refused(name: str, size: int) -> None:
    begin, again = ENDLESS[name]
    parser = ResponseParser()
    parser.feed(begin) if begin else None
    piece = again * (size // len(again) or 1)

    def go_on() -> None:
        for _ in range(200_000 // len(piece)):
            parser.feed(piece)

    with pytest.raises(ProtocolError):
        go_on()


def test_headers_of_the_size_that_is_allowed() -> None:
    lines = b"".join(b"X-%03d: %b\r\n" % (number, b"v" * 300) for number in range(MAX_HEADERS - 1))
    data = HEAD + lines + b"Content-Length: 2\r\n\r\nok"
    for pieces in ([data], cut(data, list(range(0, len(data), 1000)))):
        assert parsed(pieces, closed=False)[:3] == (True, 200, b"ok")
