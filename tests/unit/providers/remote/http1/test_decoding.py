"""Compressed bodies, step by step."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.remote.http1.decoding import MAX_MEMBERS, STEP_BYTES, decoder_for
from providers.remote.http1.errors import ContentEncodingError

BODY = b"Hello, w\xc3\xb6rld! " * 50


def bare_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


CODINGS = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    " Deflate ": bare_deflate,
}


def decoded(coding: str, pieces: list[bytes]) -> bytes:
    decoder = decoder_for(coding)
    out = bytearray()
    for piece in pieces:
        decoder.feed(piece)
        while part := decoder.take():
            assert len(part) <= STEP_BYTES
            out += part
    decoder.end()
    return bytes(out)


@pytest.mark.parametrize("coding", CODINGS)
@given(body=st.binary(max_size=300), size=st.integers(1, 50))
def test_a_body_is_the_same_however_it_is_cut(coding: str, body: bytes, size: int) -> None:
    data = CODINGS[coding](body)
    assert decoded(coding, [data[at : at + size] for at in range(0, len(data), size)]) == body


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_that_is_cut_short_is_an_error(coding: str) -> None:
    data = CODINGS[coding](BODY)
    for end in range(1, len(data) - 1):
        with pytest.raises(ContentEncodingError):
            decoded(coding, [data[:end]])


@pytest.mark.parametrize("coding", CODINGS)
def test_no_body_is_no_error(coding: str) -> None:
    assert decoded(coding, []) == b""


def test_a_bomb_comes_out_in_steps() -> None:
    size = 300 * STEP_BYTES
    bomb = gzip.compress(b"\x00" * size)
    assert len(bomb) < STEP_BYTES
    decoder = decoder_for("gzip")
    decoder.feed(bomb)
    taken = 0
    while part := decoder.take():
        assert len(part) <= STEP_BYTES
        taken += len(part)
    assert taken == size


def test_several_files_behind_each_other() -> None:
    data = b"".join(gzip.compress(part) for part in (b"Hello", b"", b", world"))
    assert decoded("gzip", [data]) == b"Hello, world"
    assert decoded("gzip", [bytes([each]) for each in data]) == b"Hello, world"
    with pytest.raises(ContentEncodingError):
        decoded("gzip", [gzip.compress(b"") * (MAX_MEMBERS + 1)])


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", b"\x00nonsense"),
        ("gzip", gzip.compress(BODY, mtime=0) + b"behind"),
        ("deflate", b"\x78nonsense"),
        ("deflate", b"\xff\xff\xff\xff"),
        ("deflate", zlib.compress(BODY) + b"behind"),
    ],
)
def test_nonsense_is_an_error(coding: str, data: bytes) -> None:
    with pytest.raises(ContentEncodingError):
        decoded(coding, [data])


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_other_codings_are_not_known(coding: str) -> None:
    with pytest.raises(ContentEncodingError, match="not known"):
        decoder_for(coding)
