"""Kernels compiled for this CPU, and the threads that run them."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch
from llvmlite import ir

from providers.local.own_code import digest_of
from providers.local.torch_engine.cpu_kernels import machine_code
from providers.local.torch_engine.cpu_kernels.code import INT64, Code, Pointer, Value
from providers.local.torch_engine.model import kv_cache

BARRIER, RUN = "GOMP_barrier", "GOMP_parallel"
SYMBOLS = (BARRIER, RUN, "omp_get_num_threads", "omp_get_thread_num")

ENTRY = "entry"

WRITERS = (*Path(__file__).parent.glob("*.py*"), Path(kv_cache.__file__))
"""The files that write kernels; of `kv_cache` they have what it looks like."""

GENERATION = digest_of(WRITERS)
"""Of these as they are imported: what is compiled later is not that of files that came since."""

Call = Callable[..., None]
"""A compiled kernel. Its arguments are integers, addresses or numbers, by position. All threads of
torch's team run it; when it returns, all have."""


@cache
def openmp() -> ctypes.CDLL | None:
    """The OpenMP library that this torch computes with; None where that is not GNU's.

    Another copy would have a team of threads of its own, which take the cores from torch's.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    torch_folder = Path(torch.__file__).parent
    folders = (torch_folder / "lib", torch_folder.parent / "torch.libs")
    shipped = [str(path) for folder in folders for path in folder.glob("libgomp*.so*")]
    for path in [*shipped, "libgomp.so.1"]:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue
        if all(hasattr(library, symbol) for symbol in SYMBOLS):
            return library
    return None


def possible() -> bool:
    """Whether kernels can run: on x86 with AVX2, beside a torch with GNU's OpenMP (on Linux)."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx2") and features.get("fma")) and openmp() is not None


class Kernel:
    """A kernel to be compiled, or to be called by another one.

    Args:
        write: its code; takes a `Code`, its parameters, and by name what is constant in it.
        parameters: in order, for a pointer the type of the numbers there, for an integer None.
    """

    def __init__(self, write: Callable[..., None], parameters: dict[str, ir.Type | None]) -> None:
        self._write = write
        self._parameters = parameters
        self._compiled: dict[tuple[tuple[str, Any], ...], Call] = {}

    def compiled(self, **constants: Any) -> Call:
        """The kernel for these constants; it is compiled once."""
        key = tuple(sorted(constants.items()))
        with _compiling:
            if key not in self._compiled:
                self._compiled[key] = self._compile(constants)
            return self._compiled[key]

    def _compile(self, constants: dict[str, Any]) -> Call:
        _add_symbols()
        origin = self._origin(constants)
        write = partial(self._module, constants)
        if origin is None:
            origin = write()
            write = partial(str, origin)
        return _call(machine_code.address_of(ENTRY, origin, write), len(self._parameters))

    def _origin(self, constants: dict[str, Any]) -> str | None:
        """All that the module is made of; None if that can't be said: of what is around a function
        within another, and of what other files have."""
        module, name = self._write.__module__, self._write.__qualname__
        if module.rpartition(".")[0] != __package__ or not name.isidentifier():
            return None
        try:
            return json.dumps([GENERATION, module, name, constants], sort_keys=True)
        except TypeError:
            return None

    def _module(self, constants: dict[str, Any]) -> str:
        """The kernel in LLVM's IR, which takes as long to write as several files to read."""
        module = ir.Module(self._write.__name__)
        module.triple = llvm.get_process_triple()
        # It is given an array of all its arguments, 8 bytes each.
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType()])
        function = ir.Function(module, kind, ENTRY)
        code = Code(function)
        given = Pointer(code, function.args[0], INT64)
        arguments = [
            _argument(code, given.load(place), element)
            for place, element in enumerate(self._parameters.values())
        ]
        self.within(code, *arguments, **constants)
        code.builder.ret_void()
        return str(module)

    def within(self, code: Code, *arguments: Value | Pointer, **constants: Any) -> None:
        """Call the kernel in the code of another; all threads have to."""
        words = [f"{name}={value}" for name, value in sorted(constants.items())]
        name = ", ".join([self._write.__name__, *words])
        function = code.module.globals.get(name) or self._define(code.module, name, constants)
        code.builder.call(function, [_made(argument) for argument in arguments])

    def _define(self, module: ir.Module, name: str, constants: dict[str, Any]) -> ir.Function:
        types = [
            INT64 if element is None else ir.PointerType() for element in self._parameters.values()
        ]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), name)
        function.linkage = "internal"
        # Many calls of the same would be compiled as often.
        function.attributes.add("noinline")
        code = Code(function)
        arguments = [
            Value(code, given) if element is None else Pointer(code, given, element)
            for given, element in zip(function.args, self._parameters.values(), strict=True)
        ]
        self._write(code, *arguments, **constants)
        code.builder.ret_void()
        return function


def kernel(**parameters: ir.Type | None) -> Callable[[Callable[..., None]], Kernel]:
    """Make a `Kernel` of the function that writes its code; see `Kernel` for the parameters."""
    return lambda write: Kernel(write, parameters)


def _argument(code: Code, given: Value, element: ir.Type | None) -> Value | Pointer:
    if element is None:
        return given
    return Pointer(code, code.builder.inttoptr(given.made, ir.PointerType()), element)


def _made(argument: Value | Pointer) -> Any:
    return argument.made if isinstance(argument, Value) else argument.address


_compiling = threading.Lock()


@cache
def _add_symbols() -> None:
    """Kernels call these; LLVM is told where they are."""
    library = openmp()
    assert library is not None
    for symbol in SYMBOLS:
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        assert address is not None
        llvm.add_symbol(symbol, address)


def _call(address: int, parameters: int) -> Call:
    pack = struct.Struct(f"{parameters}q").pack
    library = openmp()
    assert library is not None
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint
    )
    run = signature((RUN, library))

    def call(*arguments: int) -> None:
        # No number of threads asks for as many as torch uses.
        run(address, pack(*arguments), 0, 0)

    return call
