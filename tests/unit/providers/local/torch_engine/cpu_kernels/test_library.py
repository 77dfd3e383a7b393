"""Kernels that are compiled: found by what they are made of, and written where that is new."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import ast
import importlib
import pkgutil
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model import linear

if not linear.kernels_possible():
    pytest.skip("needs x86 with AVX2, Linux and llvmlite", allow_module_level=True)

from providers.local import own_code
from providers.local.torch_engine import cpu_kernels
from providers.local.torch_engine.cpu_kernels import attention, layer, library, products, rows
from providers.local.torch_engine.cpu_kernels.code import INT64, LANES, Code, Pointer
from providers.local.torch_engine.cpu_kernels.library import Kernel, kernel
from providers.local.torch_engine.model import kv_cache

ROOT = Path(__file__).parents[6]

SIZES = {"kv_heads": 2, "head_dim": 16}
CACHE = {"heads": 4, "block_size": 16, "scale": 0.25, "packed": True}
EVERY = (
    (rows.norm, {"epsilon": 1e-5, "adds": True}),
    (rows.gate, {"activation": "silu"}),
    (
        rows.turn_and_write,
        {**SIZES, "query_heads": 4, "pairs": 8, "head_epsilon": 1e-5, "packed": True},
    ),
    (attention.attend, {**SIZES, **CACHE}),
    (products.product, {"bits": 4}),
    (products.product, {"bits": 8}),
    (
        layer.layer,
        {
            **SIZES,
            **CACHE,
            "size": 64,
            "intermediate": 96,
            "pairs": 8,
            "epsilon": 1e-5,
            "norms_heads": True,
            "norms_results": True,
            "activation": "gelu_pytorch_tanh",
            "bits": 8,
        },
    ),
)


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which kernels were written; the store is empty."""
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    names = []
    module = Kernel._module

    def watched(self: Kernel, constants: dict[str, Any]) -> str:
        names.append(self._write.__name__)
        return module(self, constants)

    monkeypatch.setattr(Kernel, "_module", watched)
    return names


def next_start(kernel: Kernel) -> Kernel:
    """The kernel as another process has it, which compiled nothing yet."""
    return Kernel(kernel._write, kernel._parameters)


def normed(kernel: Kernel, epsilon: Any = 0.0, *, adds: bool = False) -> torch.Tensor:
    """What `rows.norm` makes of a row of threes, to which ones may be added."""
    hidden, into = torch.full((LANES,), 3.0), torch.empty(LANES)
    ones = torch.ones(LANES)
    given = (each.data_ptr() for each in (hidden, ones, ones, into))
    kernel.compiled(epsilon=epsilon, adds=adds)(*given, 1, LANES)
    return into


def test_what_is_kept_is_not_written_again(tmp_path: Path, written: list[str]) -> None:
    first = normed(next_start(rows.norm))
    assert written == ["norm"]
    assert torch.equal(first, torch.ones(LANES))
    assert torch.equal(normed(next_start(rows.norm)), first)
    assert written == ["norm"]
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_another_constant_is_another_kernel(written: list[str]) -> None:
    norm = next_start(rows.norm)
    assert torch.allclose(normed(norm), torch.ones(LANES))
    assert torch.allclose(normed(norm, 16.0), torch.full((LANES,), 0.6))
    assert torch.allclose(normed(norm, 9.0, adds=True), torch.full((LANES,), 0.8))
    assert written == ["norm"] * 3
    assert torch.allclose(normed(next_start(rows.norm), 16.0), torch.full((LANES,), 0.6))
    assert written == ["norm"] * 3


def test_kernels_of_other_code_are_written_anew(
    written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    normed(next_start(rows.norm))
    with monkeypatch.context() as changed:
        changed.setattr(library, "GENERATION", "of other files")
        normed(next_start(rows.norm))
    assert written == ["norm"] * 2
    normed(next_start(rows.norm))
    assert written == ["norm"] * 2


def test_a_damaged_file_is_written_anew(tmp_path: Path, written: list[str]) -> None:
    normed(next_start(rows.norm))
    [file] = (tmp_path / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert torch.equal(normed(next_start(rows.norm)), torch.ones(LANES))
    assert written == ["norm"] * 2


def test_what_is_around_a_function_is_in_its_kernel(written: list[str]) -> None:
    found = torch.zeros(1, dtype=torch.int64)
    for number in (3, 4, 3):

        @kernel(found=INT64)
        def stored(code: Code, found: Pointer, number: int = number) -> None:
            found.store(0, code.integer(number))

        stored.compiled()(found.data_ptr())
        assert found.item() == number
    assert written == ["stored"] * 3


def test_a_constant_that_can_not_be_spelled_out(written: list[str]) -> None:
    for _ in range(2):
        found = normed(next_start(rows.norm), numpy.float32(16))
        assert torch.allclose(found, torch.full((LANES,), 0.6))
    assert written == ["norm"] * 2


# What kernels are written by -------------------------------------------------------------------


def modules() -> list[ModuleType]:
    """Those of the kernels."""
    names = (each.name for each in pkgutil.iter_modules(cpu_kernels.__path__))
    return [importlib.import_module(f"{cpu_kernels.__name__}.{name}") for name in names]


def test_every_kernel_is_asked_below() -> None:
    found = (each for module in modules() for each in vars(module).values())
    kernels = {each._write for each in found if isinstance(each, Kernel)}
    # That one is written by `product`.
    assert kernels == {each._write for each, _ in EVERY} | {products._multiply._write}


@pytest.fixture(scope="module")
def run() -> set[CodeType]:
    """This project's code that runs as kernels are written, that of modules included."""
    found: set[CodeType] = set()

    def look(frame: FrameType, *_: object) -> None:
        if Path(frame.f_code.co_filename).is_relative_to(ROOT / "providers"):
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        for each, constants in EVERY:
            each._module(constants)
    finally:
        sys.setprofile(before)
    return found


def test_the_files_that_write_kernels_are_known(run: set[CodeType]) -> None:
    files = {Path(each.co_filename) for each in run}
    assert Path(rows.__file__) in files
    assert files <= set(library.WRITERS)


def imported(tree: ast.Module) -> Iterator[tuple[str, Path]]:
    """Each name in a module of this project that is from another one, and where that is."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module[:9] == "providers":
            for alias in node.names:
                whole = sys.modules.get(f"{node.module}.{alias.name}", sys.modules[node.module])
                assert whole.__file__ is not None
                yield alias.asname or alias.name, Path(whole.__file__)


def named(source: str) -> set[str]:
    """What is used of a module as it is imported, outside its functions."""
    symbols = symtable.symtable(source, "source", "exec").get_symbols()
    return {each.get_name() for each in symbols if each.is_referenced()}


def test_what_they_take_from_elsewhere_is_known_too(run: set[CodeType]) -> None:
    used = {Path(each.co_filename): set[str]() for each in run} | {Path(kv_cache.__file__): set()}
    for each in run:
        used[Path(each.co_filename)].update(each.co_names)
    taken: set[Path] = set()
    for file, names in used.items():
        source = file.read_text("utf-8")
        names |= named(source)
        taken |= {where for name, where in imported(ast.parse(source)) if name in names}
    assert Path(kv_cache.__file__) in taken
    # It says which files they are, and nothing in a kernel.
    assert taken - set(library.WRITERS) == {Path(own_code.__file__)}
