"""Weights of 8 bits kept beside the model: the same as those made, and never another model's."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from filelock import FileLock

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import SamplingParams
from providers.local.block_manager import BLOCK_SIZE
from providers.local.engine import Generation
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.loading import loader, reading
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import (
    ARCHITECTURES,
    UNUSUAL,
    make_architecture,
)

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local.torch_engine.loading import weight_cache


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For each time that a model's own weights were read, what they became."""
    kinds = []
    decoder_of = loader.decoder_of

    def watched(module: object, make: linear.Make, make_head: linear.Make | None) -> object:
        kinds.append(next(kind for kind, each in linear.MAKES.items() if each is make))
        return decoder_of(module, make, make_head)

    monkeypatch.setattr(loader, "decoder_of", watched)
    return kinds


def logits(folder: Path, quantization: str = "auto", context_length: int = 32) -> torch.Tensor:
    """Of the last of as many tokens as there can be, once the model is loaded."""
    config = TorchConfig.model_validate(
        {"device": "cpu", "quantization": quantization, "max_sequences": 1}
    )
    runner = load("tiny", folder, config, context_length).runner
    tokens = tuple(range(7, 7 + context_length))
    sequence = TorchSequence(Generation(tokens, SamplingParams(), 1), lambda _: None)
    sequence.blocks = list(range(context_length // BLOCK_SIZE))
    return on_cpu_thread(runner.forward, [Chunk(sequence, len(tokens))])


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """As a part of what was expected."""
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    "name", [*ARCHITECTURES, *UNUSUAL, "granite", "qwen2_moe", "deepseek_v3", "gemma4_text"]
)
def test_what_is_kept_computes_the_same_to_the_bit(
    tmp_path: Path, name: str, made: list[str]
) -> None:
    make_architecture(tmp_path, name)
    first = logits(tmp_path)
    assert made == ["int8"]
    assert weight_cache.file_in(tmp_path, "int8").stat().st_mode & 0o444 == 0o444
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8"]
    # With another number of positions.
    longer = logits(tmp_path, context_length=96)
    assert made == ["int8"]
    weight_cache.file_in(tmp_path, "int8").unlink()
    assert torch.equal(logits(tmp_path, context_length=96), longer)
    assert made == ["int8", "int8"]


def test_those_of_4_bits_are_kept_beside_those_of_8(tmp_path: Path, made: list[str]) -> None:
    make_model(tmp_path)
    found = {kind: logits(tmp_path, kind) for kind in ("int8", "int4")}
    assert not torch.equal(*found.values())
    for kind, first in found.items():
        assert torch.equal(logits(tmp_path, kind), first)
    assert made == ["int8", "int4"]
    sizes = [weight_cache.file_in(tmp_path, kind).stat().st_size for kind in found]
    assert sizes[1] < sizes[0]


def test_other_weights_are_made_anew(tmp_path: Path, made: list[str]) -> None:
    make_model(tmp_path)
    first = logits(tmp_path)
    exact = logits(tmp_path, "none")
    torch.manual_seed(5)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    second = logits(tmp_path)
    assert distance(first, exact) < 0.1
    assert distance(second, logits(tmp_path, "none")) < 0.1
    assert distance(second, first) > 0.5
    assert torch.equal(logits(tmp_path), second)
    assert made == ["int8", "none", "int8", "none"]


def test_a_touched_file_or_other_code_make_them_anew(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    logits(tmp_path)
    os.utime(tmp_path / "config.json", ns=(1, 1))
    logits(tmp_path)
    assert len(made) == 2
    monkeypatch.setattr(reading, "version", lambda package: "5.999.0")
    logits(tmp_path)
    assert len(made) == 3
    changed = tmp_path.with_suffix(".py")
    changed.write_text("# other code")
    monkeypatch.setattr(weight_cache.products, "__file__", str(changed))
    logits(tmp_path)
    assert len(made) == 4
    logits(tmp_path)
    assert len(made) == 4


@pytest.mark.parametrize("size", [0, 7, 3000, -1])
def test_a_torn_file_is_made_anew(tmp_path: Path, made: list[str], size: int) -> None:
    make_model(tmp_path)
    first = logits(tmp_path)
    file = weight_cache.file_in(tmp_path, "int8")
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8", "int8"]
    assert file.stat().st_size == len(whole)
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8", "int8"]


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path)
    (tmp_path / ".llama-compat").write_text("in the way")
    with caplog.at_level(logging.INFO):
        assert torch.equal(logits(tmp_path), logits(tmp_path))
    assert made == ["int8", "int8"]
    assert "can't be kept in" in caplog.text
    assert str(tmp_path) in caplog.text


def files_kept(folder: Path) -> set[str]:
    """But for the lock, which filelock may remove or leave."""
    files = weight_cache.file_in(folder, "int8").parent.iterdir()
    return {file.name for file in files} - {"int8.lock"}


def test_what_a_process_left_that_was_killed_is_written_over(tmp_path: Path) -> None:
    make_model(tmp_path)
    unfinished = weight_cache.file_in(tmp_path, "int8").with_suffix(".unfinished")
    unfinished.mkdir(parents=True)
    (unfinished / "int8.safetensors").write_bytes(b"half of it")
    first = logits(tmp_path)
    assert files_kept(tmp_path) == {"int8.safetensors", "reading.json"}
    assert torch.equal(logits(tmp_path), first)


def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path)

    def save(file: Path, tensors: object, metadata: object) -> None:
        file.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(weight_cache, "write_weights", save)
    with caplog.at_level(logging.INFO):
        logits(tmp_path)
    assert "No space left on device" in caplog.text
    assert not files_kept(tmp_path)


def test_two_processes_do_not_write_at_once(
    tmp_path: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path)
    file = weight_cache.file_in(tmp_path, "int8")
    file.parent.mkdir()
    with FileLock(file.with_suffix(".lock")), caplog.at_level(logging.INFO):
        first = logits(tmp_path)
    assert "another process" in caplog.text
    assert not file.exists()
    assert torch.equal(logits(tmp_path), first)
    assert file.exists()
    assert made == ["int8", "int8"]


@pytest.mark.parametrize("quantization", ["none", "float16"])
def test_weights_of_more_bits_are_not_kept(tmp_path: Path, quantization: str) -> None:
    make_model(tmp_path)
    logits(tmp_path, quantization)
    assert not (tmp_path / ".llama-compat").exists()


@pytest.mark.parametrize("place", [0.3, 0.6, 0.999])
def test_damaged_numbers_are_made_anew(
    tmp_path: Path, made: list[str], place: float, caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path)
    first = logits(tmp_path)
    file = weight_cache.file_in(tmp_path, "int8")
    whole = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(whole[:8], "little")
    at = start + int(place * (len(whole) - start))
    whole[at] ^= 0x40
    file.write_bytes(whole)
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8", "int8"]
    assert "damaged" in caplog.text
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8", "int8"]


def test_a_damaged_description_is_made_anew(tmp_path: Path, made: list[str]) -> None:
    make_model(tmp_path)
    first = logits(tmp_path)
    file = weight_cache.file_in(tmp_path, "int8")
    whole = file.read_bytes()
    assert b"epsilon" in whole
    file.write_bytes(whole.replace(b"1e-06", b"9e-01"))
    assert file.read_bytes() != whole
    assert torch.equal(logits(tmp_path), first)
    assert made == ["int8", "int8"]
