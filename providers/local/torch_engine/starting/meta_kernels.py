"""torch's kernels for tensors without numbers, imported once somebody may need them.

`torch._meta_registrations` says in Python what shapes most operations come to, and imports their
decompositions for it: two fifths of torch's import, of which nothing is used where tensors have
numbers. It is the last but one thing that torch imports, and nothing else of torch's import asks
for it. Here it stays empty until a name in it is looked up, or something is imported that may
compute without numbers: transformers, what is built on it, and any part of torch that its own
import leaves out, such as its compiler. That is known of builds for CPUs alone, of the versions in
`KNOWN`: any other torch is imported as ever.

In 2.13 it is a part of them, `torch._prims.rng_prims`, that lets `torch.Generator` be made: with a
metaclass that torch has by then, and that is given here.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from providers.local.torch_engine.starting.library import cpu_libraries

NAME = "torch._meta_registrations"

KNOWN = ("2.13",)
"""The versions of torch that were seen to need them for nothing else."""

BUILT_ON_IT = ("transformers", "accelerate", "torchvision", "torchaudio")
MAY_NEED = ("torch", "triton", *BUILT_ON_IT)
"""The packages of which an import completes it, once torch itself is there. Those that are built on
it wait where another thread completes it, which imports nothing of theirs."""


@contextmanager
def meta_kernels_later() -> Iterator[None]:
    """Have the import of torch within leave them for later."""
    if "torch" in sys.modules or not _is_known():
        yield
        return
    later = _Later()
    sys.meta_path.insert(0, later)
    try:
        yield
        _let_generators_be_made()
    finally:
        later.torch_is_there()


def _let_generators_be_made() -> None:
    """As torch does with what is left for later; a second time changes nothing."""
    import torch
    from torch._opaque_base import OpaqueBaseMeta

    torch._C._set_generator_metaclass(OpaqueBaseMeta)


def _is_known() -> bool:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return False
    return ".".join(found.split(".")[:2]) in KNOWN and cpu_libraries() is not None


class _There(Loader):
    """Gives a module that is there already.

    Args:
        module: it.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__
        # By its own, which import finds on what is there meanwhile, it would be executed again.
        module.__spec__ = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `Loader`."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`: it says of itself again where it came from."""
        module.__spec__ = self._spec


class _Later(MetaPathFinder, Loader):
    """Finds the module, makes an empty one of it, and sees what is imported then.

    It stays among the finders: one that takes itself out while they are asked hides the next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._empty: ModuleType | None = None
        self._imports_torch = True
        self._is_whole = threading.Event()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        if self._imports_torch and name == NAME and self._empty is None:
            found = PathFinder.find_spec(name, path, target)
            if found is not None:
                found.loader = self
            return found
        package = name.partition(".")[0]
        if not self._imports_torch and package in MAY_NEED:
            self._complete()
            if package in BUILT_ON_IT:
                self._is_whole.wait()
            if (there := sys.modules.get(name)) is not None:
                # It came with them, and is not to be made a second time.
                return ModuleSpec(name, _There(there))
        return None

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`: leave it empty."""
        self._empty = module

        def look_up(name: str) -> object:
            # Whoever looks at all modules, as `inspect` does, asks for such names of each.
            if name.startswith("__"):
                raise AttributeError(name)
            self._complete()
            return getattr(importlib.import_module(NAME), name)

        vars(module)["__getattr__"] = look_up

    def torch_is_there(self) -> None:
        """Its import is over, or has failed."""
        if self._empty is None:
            self._is_whole.set()
        self._imports_torch = False

    def _complete(self) -> None:
        """Import what was left for later, if that has not begun."""
        # Nothing is imported under this lock: what imports waits for each other by locks of its
        # own, which know of circles.
        with self._lock:
            begins = self._empty is not None and sys.modules.get(NAME) is self._empty
            if begins:
                del sys.modules[NAME]
        if begins:
            try:
                importlib.import_module(NAME)
            finally:
                self._is_whole.set()
