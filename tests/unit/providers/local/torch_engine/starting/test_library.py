"""torch's library, loaded ahead: as torch would, and with Python left to others."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.starting import library

CPU_ALONE = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"


@pytest.mark.skipif(
    torch.version.cuda is not None or not CPU_ALONE.is_file(), reason="another build of torch"
)
def test_it_is_loaded_ahead_as_torch_would() -> None:
    code = """
import os, sys
from pathlib import Path
from providers.local.torch_engine import provider
from providers.local.torch_engine.starting.library import library
before = dict(os.environ)
provider.TorchProvider.load_ahead()
library().join()
mapped = Path("/proc/self/maps").read_text()
assert "libtorch_cpu.so" in mapped and "libgomp" in mapped
assert dict(os.environ) == before
assert "torch" not in sys.modules
import torch
print(torch.ones(3).sum().item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3.0"


@pytest.mark.parametrize("kind", ["not installed", "cuda", "broken"])
def test_one_that_is_not_loaded_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "lib").mkdir()
    for each in ("libtorch_global_deps.so", "libtorch_cpu.so"):
        (tmp_path / "lib" / each).write_text("no library")
    if kind == "cuda":
        (tmp_path / "lib" / "libtorch_cuda.so").touch()
    there = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(library, "find_spec", lambda _: None if kind == "not installed" else there)
    tried = []
    load = library.load

    def watched(file: Path, mode: int) -> bool:
        tried.append(file.name)
        return load(file, mode)

    monkeypatch.setattr(library, "load", watched)
    library.load_library()
    assert tried == (["libtorch_global_deps.so"] if kind == "broken" else [])


def test_python_is_left_to_others_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader is called as a function of a library, which `ctypes` gives Python up for."""
    assert isinstance(ctypes.CDLL(None).dlopen, ctypes._CFuncPtr)
    assert not ctypes.CDLL(None).dlopen._flags_ & ctypes._FUNCFLAG_PYTHONAPI
    monkeypatch.setattr(library.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not library.load(tmp_path / "any.so", 0)
