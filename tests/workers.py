"""The processes in which pytest-xdist runs tests, forked from one that has imported all tests.

To import them takes a process seventeen seconds of CPU, and as many more where nothing is compiled
yet. xdist is told a Python for its workers that asks for a fork of such a process. What a fork does
is then xdist's own matter: it collects the tests, whose modules are there.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.forked import RUN, TORCH, be_forked, become_what_is_asked_for

ROOT = Path(__file__).parents[1]

ARGUMENTS = "LLAMA_COMPAT_IMPORTED_TESTS"
"""The variable with which tests are imported, as JSON: arguments for pytest."""


def set_up(config: pytest.Config) -> None:
    """Have xdist fork its workers, if it is to start some on this machine, from the root of the
    repository."""
    specs: list[str] = config.getoption("tx", [])
    if specs:
        # Where a process for each core runs tests, torch's own threads only wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.platform != "linux" or Path.cwd() != ROOT or set(specs) != {"popen"}:
        return
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return  # no fork can use CUDA where its parent asked so much as whether there is a GPU
    light = ["--light"] if config.getoption("--light") else []
    os.environ[ARGUMENTS] = json.dumps([*light, *config.args])
    asks = shlex.join([sys.executable, "-c", f"from {__name__} import ask; ask()"])
    config.option.tx = [f"popen//python={asks}"] * len(specs)


def note_failures_here(config: pytest.Config) -> None:
    """Have a worker note by itself which tests are tried again, as a process without xdist does.

    Its plugin would tell and ask the process that started the workers before each test, in two
    packets, of which the second waits for the first to be acknowledged: forty milliseconds. All
    that comes of it is that a test whose worker died can be put back, which xdist does not do where
    a worker has whole modules.
    """
    reruns = sys.modules.get("pytest_rerunfailures")
    asks = getattr(config, "failures_db", None)
    if reruns is None or not hasattr(config, "workerinput") or asks is None:
        return
    asks.sock.close()
    config.failures_db = reruns.StatusDB()  # type: ignore[attr-defined]


def ask() -> None:
    """Be what xdist takes for its worker: a process that lasts as long as the fork does."""
    # All who ask for one run of tests were started by the same process.
    os.environ[RUN] = str(os.getppid())
    arguments = tuple(json.loads(os.environ.pop(ARGUMENTS)))
    be_forked(sys.argv, os.environ, imported=arguments, parent=__name__)


def main() -> None:
    """Import all tests, and become each process that is asked for."""
    if os.fork():
        return  # as in `tests.forked`
    plugins = ["no:cacheprovider", "no:rerunfailures", "no:terminal", "no:xdist"]
    options = ["-oaddopts=-pno:schemathesis", *(f"-p{plugin}" for plugin in plugins)]
    pytest.main(["--collect-only", "-s", *options, *sys.argv[2:]], plugins=[_Imports()])
    if "transformers" in sys.modules:
        for name in TORCH:  # what models run on, which is imported as the first of them is made
            importlib.import_module(name)
    if documented := sys.modules.get("tests.integration.documented"):
        documented.document()  # answers are held against it; to make it takes two seconds
    gc.disable()  # until a worker has collected, as in `tests/conftest.py`
    become_what_is_asked_for(int(sys.argv[1]))
    command = sys.argv[-1]
    sys.argv[:] = ["-c"]
    main_module = sys.modules["__main__"]
    del main_module.__file__
    exec(command, vars(main_module))


class _Imported(pytest.Module):
    """A module of tests that is imported, and not looked at further: pytest would note the tests'
    names in it, and make others of them the next time."""

    def collect(self) -> list[pytest.Item]:
        assert self.obj
        return []


class _Imports:
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module:
        return _Imported.from_parent(parent, path=module_path)


if __name__ == "__main__":
    main()
