"""Machine code for this CPU, made of LLVM's IR by LLVM, and kept for the next start."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from providers.local.models.folders import store_folder

log = logging.getLogger(__name__)

SPEED_LEVEL = 3
"""Of LLVM's optimisations, as in `-O3`."""

DIGEST = 32
"""Bytes in front of the code in a file, which say whether it is whole."""

# The memory with the machine code is theirs.
_engines: list[llvm.ExecutionEngine] = []


def address_of(function: str, origin: str, write: Callable[[], str]) -> int:
    """Where a function of a module is in memory.

    Args:
        function: its name.
        origin: all that the module is made of, by which the code that is kept of it is found; the
            module itself, where nothing else says it.
        write: the module. What it calls from elsewhere is known to `llvm.add_symbol`.
    """
    file = folder() / f"{_name(origin)}.o"
    code = _read(file)
    if code is None:
        code = _compile(write())
        _keep(file, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(function))


def folder() -> Path:
    """Where the code is kept: `kernels` in the store."""
    return store_folder() / "kernels"


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=SPEED_LEVEL,
    )


def _compile(source: str) -> bytes:
    machine = _machine()
    module = llvm.parse_assembly(source)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _name(origin: str) -> str:
    """Of all that the code depends on."""
    known = (
        llvmlite.__version__,
        llvm.llvm_version_info,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        SPEED_LEVEL,
        origin,
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _read(file: Path) -> bytes | None:
    try:
        kept = file.read_bytes()
    except OSError:
        return None
    digest, code = kept[:DIGEST], kept[DIGEST:]
    # A torn file would end the process.
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(file: Path, code: bytes) -> None:
    """Whole or not at all; a start that can't keep it goes on without."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as unfinished:
            written = Path(unfinished, file.name)
            written.write_bytes(hashlib.sha256(code).digest() + code)
            written.replace(file)
    except OSError as error:
        log.debug("a kernel's code can't be kept in %s: %s", file.parent, error)
