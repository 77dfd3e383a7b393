"""What a vendor is sent."""

from __future__ import annotations

import os
from pathlib import Path

from providers.remote.batches.base import InputEnvelope
from routing.batches.vendors.input import OrderInput


def test_an_input_is_in_its_envelope_and_leaves_nothing(tmp_path: Path) -> None:
    source = OrderInput(str(tmp_path), InputEnvelope(b"[", b",", b"]", "application/json"))
    source.add([b"1", b"2"])
    source.add([b"3"])
    body = source.finish()
    source.close()
    assert bytes(body) == b"[1,2,3]"
    assert source.lines == 3
    assert source.size >= len(body)
    assert os.listdir(tmp_path) == []
