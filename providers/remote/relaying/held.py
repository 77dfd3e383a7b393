"""Bytes of a stream that wait for the rest of their line or event."""

from __future__ import annotations

from llama_compat.errors import upstream_error

MAX_BYTES = 1 << 25


class HeldBytes:
    """What has come of a line or an event that is not whole, up to a bound.

    Args:
        provider: its id, for messages.
        what: waits, for messages.
    """

    __slots__ = ("_pieces", "_provider", "_size", "_what")

    def __init__(self, provider: str, what: str) -> None:
        self._provider = provider
        self._what = what
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def last(self) -> bytes:
        """The last byte; empty where nothing is held."""
        return self._pieces[-1][-1:] if self._pieces else b""

    def hold(self, piece: bytes) -> None:
        """Keep a piece behind what is held.

        Raises:
            APIError: 502, that is too much.
        """
        self._size += len(piece)
        if self._size > MAX_BYTES:
            raise upstream_error(self._provider, f"{self._what} is larger than {MAX_BYTES} bytes.")
        if piece:
            self._pieces.append(piece)

    def take(self, piece: bytes = b"") -> bytes:
        """All that is held, with its last `piece`; then nothing is."""
        whole = b"".join((*self._pieces, piece))
        self._pieces, self._size = [], 0
        return whole
