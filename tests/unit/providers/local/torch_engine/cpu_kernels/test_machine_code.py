"""Machine code: compiled once, kept whole, and never that of another CPU or of other options."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

llvm = pytest.importorskip("llvmlite.binding", reason="needs the extra 'torch'")

from providers.local.torch_engine.cpu_kernels import machine_code

SOURCE = "define i64 @plus(i64 %x) {{ %y = add i64 %x, {} ret i64 %y }}"


def plus(number: int) -> int:
    """What the compiled function makes of 10."""
    source = SOURCE.format(number)
    address = machine_code.address_of("plus", source, lambda: source)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(10))


@pytest.fixture(autouse=True)
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which sources were compiled; the store is empty."""
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    sources = []
    compile_ = machine_code._compile

    def watched(source: str) -> bytes:
        sources.append(source)
        return compile_(source)

    monkeypatch.setattr(machine_code, "_compile", watched)
    return sources


def test_what_was_compiled_is_not_compiled_again(tmp_path: Path, compiled: list[str]) -> None:
    assert plus(1) == plus(1) == 11
    assert plus(5) == 15
    assert compiled == [SOURCE.format(1), SOURCE.format(5)]
    assert len(list((tmp_path / "kernels").iterdir())) == 2


@pytest.mark.parametrize("damage", ["torn", "changed", "empty"])
def test_a_damaged_file_is_replaced(tmp_path: Path, compiled: list[str], damage: str) -> None:
    plus(1)
    [file] = (tmp_path / "kernels").iterdir()
    whole = file.read_bytes()
    broken = {"torn": whole[:-9], "changed": whole[:-9] + b"?" + whole[-8:], "empty": b""}
    file.write_bytes(broken[damage])
    assert plus(1) == 11
    assert len(compiled) == 2
    assert file.read_bytes() == whole


def test_code_for_another_cpu_is_not_taken(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plus(1)
    with monkeypatch.context() as patched:
        patched.setattr(machine_code.llvm, "get_host_cpu_name", lambda: "x86-64")
        plus(1)
    with monkeypatch.context() as patched:
        patched.setattr(machine_code, "SPEED_LEVEL", 1)
        plus(1)
    assert len(compiled) == 3
    plus(1)
    assert len(compiled) == 3


def test_a_store_that_cannot_be_written(tmp_path: Path, compiled: list[str]) -> None:
    (tmp_path / "kernels").write_text("in the way")
    assert plus(1) == plus(1) == 11
    assert len(compiled) == 2
