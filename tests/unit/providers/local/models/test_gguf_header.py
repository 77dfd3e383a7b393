"""What a GGUF file says of itself, and how damaged ones are told."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf", reason="needs the extra 'torch'")

from providers.local.models.gguf_header import parts_of, read_header


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(7)
    writer.add_context_length(4096)
    writer.add_head_count_kv([2, 8, 4])
    writer.add_rope_freq_base(0.5)
    writer.add_token_list(["a", "b", "ü"])
    writer.add_chat_template("{{ x }}")
    writer.add_add_bos_token(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_it_says(file: Path) -> None:
    header = read_header(file)
    assert header["general.architecture"] == "llama"
    assert header["llama.block_count"] == 7
    assert header["llama.context_length"] == 4096
    # Layers may differ: what they take at most is what counts.
    assert header["llama.attention.head_count_kv"] == 8
    assert header["llama.rope.freq_base"] == 0.5
    assert header["tokenizer.chat_template"] == "{{ x }}"
    assert header["tokenizer.ggml.add_bos_token"] is True
    assert "tokenizer.ggml.tokens" not in header


@pytest.mark.parametrize("keep", [0, 3, 4, 10, 24, 40, 100])
def test_one_that_is_cut_off_is_told(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"no GGUF|cut off|has a text"):
        read_header(file)


@pytest.mark.parametrize(("at", "wrong"), [(4, b"\1\0\0\0"), (16, b"\xff" * 8), (24, b"\xff" * 8)])
def test_one_that_claims_too_much_is_told_at_once(file: Path, at: int, wrong: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[at : at + len(wrong)] = wrong
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"version|bytes"):
        read_header(file)


def test_the_parts_of_one_that_was_cut_up(tmp_path: Path) -> None:
    first = tmp_path / "big-00001-of-00003.gguf"
    assert [each.name for each in parts_of(first)] == [
        "big-00001-of-00003.gguf",
        "big-00002-of-00003.gguf",
        "big-00003-of-00003.gguf",
    ]
    assert parts_of(tmp_path / "small.gguf") == [tmp_path / "small.gguf"]
