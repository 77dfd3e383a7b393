"""What a safetensors file says of its tensors, and of itself if it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.local.torch_engine.formats.header import header_of


def test_a_header(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    said = b'{"w":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}'
    file.write_bytes(len(said).to_bytes(8, "little") + said + b"ab")
    start, header = header_of(file)
    assert start == 8 + len(said)
    assert header["w"]["data_offsets"] == [0, 2]


@pytest.mark.parametrize(
    "written", [b"", b"1234567", (99).to_bytes(8, "little") + b"{}", b"\xff" * 8]
)
def test_a_damaged_one(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(written)
    with pytest.raises(ValueError, match=r"a\.safetensors is damaged"):
        header_of(file)
