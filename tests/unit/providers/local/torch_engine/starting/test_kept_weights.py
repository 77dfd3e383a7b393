"""Kept weights, read ahead: the same numbers, by whichever threads, and none of a damaged file."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("safetensors", reason="needs the extra 'torch'")

from safetensors import safe_open
from safetensors.torch import save_file

from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.formats.header import header_of
from providers.local.torch_engine.starting import kept_weights
from providers.local.torch_engine.starting.kept_weights import (
    KeptWeights,
    Numbers,
    file_in,
    likely_weights,
    write_weights,
)

TENSORS = {
    "large": torch.arange(5000, dtype=torch.int32),
    "small": torch.tensor([[1.5, -2.0]]),
    "empty": torch.empty(0, 3),
}


def written(folder: Path, kind: str = "int8") -> Path:
    file = file_in(folder, kind)
    file.parent.mkdir(exist_ok=True)
    save_file(TENSORS, file, {"source": "here"})
    return file


@pytest.mark.parametrize("is_begun", [False, True])
def test_tensors_are_read(tmp_path: Path, is_begun: bool) -> None:
    with ThreadPoolExecutor(1) as aside, closing(KeptWeights(written(tmp_path))) as kept:
        if is_begun:
            kept.begin(aside)
        assert kept.open() == {"source": "here"}
        memory, tensors, sums = kept.read()
        assert tensors.keys() == TENSORS.keys() == sums.keys()
        for name, (_, shape, offset, size) in tensors.items():
            expected = TENSORS[name].numpy().tobytes()
            assert memory[offset : offset + size] == expected
            assert sums[name] == zlib.crc32(expected)
            assert shape == tuple(TENSORS[name].shape)
            assert offset % 64 == 0


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("size", [0, 7, 100, -4])
def test_a_torn_file(tmp_path: Path, size: int, is_begun: bool) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:size])
    with ThreadPoolExecutor(1) as aside, closing(KeptWeights(file)) as kept:
        if is_begun:
            kept.begin(aside)
        with pytest.raises((OSError, ValueError)):
            kept.read()


@pytest.mark.parametrize("said", ['{"a":1}', '{"a":{"dtype":"I8","shape":[1]}}', "[]", '{"a'])
def test_a_header_that_says_something_else(tmp_path: Path, said: str) -> None:
    file = tmp_path / "any.safetensors"
    file.write_bytes(len(said).to_bytes(8, "little") + said.encode() + b"numbers")
    with closing(KeptWeights(file)) as kept, pytest.raises(ValueError, match=r"."):
        kept.open()


def test_what_was_begun_in_vain_ends(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as aside:
        kept = KeptWeights(written(tmp_path))
        kept.begin(aside)
        kept.close()
        never = KeptWeights(tmp_path / "absent")
        never.begin(aside)
        never.close()


@pytest.mark.parametrize(
    ("settings", "kinds", "expected"),
    [
        ({}, ["int8"], "int8"),
        ({}, ["int4"], "int4"),
        ({}, [], None),
        ({}, ["int4", "int8"], None),
        ({"quantization": "int4"}, ["int4", "int8"], "int4"),
        ({"quantization": "int4"}, ["int8"], None),
        ({"quantization": "none"}, ["int8"], None),
        ({"device": "cuda"}, ["int8"], None),
        ({"dtype": "float32"}, ["int8"], None),
    ],
)
def test_which_a_start_is_likely_to_read(
    tmp_path: Path, settings: dict[str, Any], kinds: list[str], expected: str | None
) -> None:
    for kind in kinds:
        written(tmp_path, kind)
    found = likely_weights(tmp_path, TorchConfig.model_validate(settings))
    assert (found and found.path) == (expected and file_in(tmp_path, expected))


def test_it_is_read_in_pieces_that_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = 0

    @contextmanager
    def piece() -> Iterator[None]:
        nonlocal pieces
        pieces += 1
        yield

    monkeypatch.setattr(kept_weights, "piece", piece)
    monkeypatch.setattr(kept_weights, "_PIECE", 512)
    with closing(KeptWeights(written(tmp_path))) as kept:
        memory, tensors, sums = kept.read()
    large = tensors["large"]
    expected = TENSORS["large"].numpy().tobytes()
    assert memory[large.offset : large.offset + large.size] == expected
    assert sums["large"] == zlib.crc32(expected)
    assert pieces == -(-20_000 // 512) + 1


def test_what_is_written_is_a_safetensors_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_disk: list[int] = []

    def fsync(number: int) -> None:
        on_the_disk.append(os.fstat(number).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    file = tmp_path / "any.safetensors"
    names = {torch.int32: "I32", torch.float32: "F32"}
    tensors = {
        name: Numbers(
            names[each.dtype],
            tuple(each.shape),
            memoryview(each.flatten().view(torch.uint8).numpy()),
        )
        for name, each in TENSORS.items()
    }
    write_weights(file, tensors, {"said": "Größe"})
    assert on_the_disk == [file.stat().st_size]
    assert header_of(file)[0] % 8 == 0  # as a reader that maps it into memory wants
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"said": "Größe"}
        assert set(opened.keys()) == set(TENSORS)
        for name, expected in TENSORS.items():
            assert torch.equal(opened.get_tensor(name), expected)
    with closing(KeptWeights(file)) as kept:
        assert kept.open() == {"said": "Größe"}
        assert kept.read()[1].keys() == TENSORS.keys()
