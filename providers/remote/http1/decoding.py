"""Undoes what a body was compressed with, step by step: what comes out of a step is bounded."""

from __future__ import annotations

import zlib

from providers.remote.http1.errors import ContentEncodingError
from providers.remote.http1.headers import shown

STEP_BYTES = 1 << 16
"""No more than this comes out at a time, however much it will be in the end."""

MAX_MEMBERS = 100
"""A gzip file may be many behind each other."""

_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


class ContentDecoder:
    """Decompresses one body.

    Args:
        gzip: whether it is gzip; otherwise it is zlib or, as some servers have it, bare deflate.
    """

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(_GZIP) if gzip else None
        self._pending = b""
        self._members = 1
        self._begun = False

    def feed(self, data: bytes) -> None:
        """Take what has come of the body; only once `take` has given all that came before."""
        self._pending = data
        self._begun = True

    def take(self) -> bytes:
        """The next piece of what was fed, at least a byte; empty if nothing is left of it.

        Raises:
            ContentEncodingError: it is not what the headers say.
        """
        while self._pending:
            if self._inflate is None:
                # The first byte of zlib's header names deflate in its lower half.
                is_zlib = self._pending[0] & 0x0F == 8
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else _RAW)
            elif self._inflate.eof:
                self._begin_member()
            try:
                piece = self._inflate.decompress(self._pending, STEP_BYTES)
            except zlib.error as error:
                raise ContentEncodingError(f"the body can't be decompressed: {error}") from None
            self._pending = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """The body has come to its end.

        Raises:
            ContentEncodingError: the compressed data has not.
        """
        if self._begun and (self._inflate is None or not self._inflate.eof):
            raise ContentEncodingError("the compressed body is cut short")

    def _begin_member(self) -> None:
        self._members += 1
        if not self._gzip or self._members > MAX_MEMBERS:
            raise ContentEncodingError("something follows the compressed body")
        self._inflate = zlib.decompressobj(_GZIP)


def decoder_for(coding: str) -> ContentDecoder:
    """What undoes a content encoding.

    Raises:
        ContentEncodingError: it is not known here.
    """
    match coding.strip().lower():
        case "gzip" | "x-gzip":
            return ContentDecoder(gzip=True)
        case "deflate":
            return ContentDecoder(gzip=False)
    raise ContentEncodingError(f"the content-encoding {shown(coding)} is not known")
