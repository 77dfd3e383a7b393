"""What waits for the rest of its line or event."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from providers.remote.relaying import held
from providers.remote.relaying.held import HeldBytes


def test_pieces_come_out_whole_and_once() -> None:
    waiting = HeldBytes("up", "a line")
    for piece in (b"", b"ab", b"", b"c"):
        waiting.hold(piece)
    assert waiting.last == b"c"
    assert waiting.take(b"d") == b"abcd"
    assert (waiting.last, waiting.take()) == (b"", b"")


def test_there_is_a_bound_on_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MAX_BYTES", 8)
    waiting = HeldBytes("up", "a line")
    for _ in range(2):
        waiting.hold(b"12345678")
        waiting.take()
    waiting.hold(b"12345678")
    with pytest.raises(APIError, match="Provider 'up': a line is larger than 8 bytes") as refused:
        waiting.hold(b"9")
    assert refused.value.status == 502
