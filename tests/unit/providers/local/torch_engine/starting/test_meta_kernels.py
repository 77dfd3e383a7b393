"""What torch's import leaves for later is there for whoever needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.starting import meta_kernels  # noqa: E402

BEGIN = """
import sys
from providers.local.torch_engine.starting.meta_kernels import NAME, meta_kernels_later
with meta_kernels_later():
    import torch
is_there = lambda: "torch._prims" in sys.modules and "register_meta" in vars(sys.modules[NAME])
"""


RUN_FORKS = """
import json, os, traceback
for line in sys.stdin:
    if child := os.fork():
        print("ended", os.waitpid(child, 0)[1], flush=True)
        continue
    try:
        exec(json.loads(line))
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
"""

Said = Callable[[str], str]


@pytest.fixture(scope="module")
def said() -> Iterator[Said]:
    """What code prints in a process of its own that left them for later: torch is imported once,
    and each is a fork of that."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + RUN_FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asks, says = process.stdin, process.stdout
        assert asks is not None
        assert says is not None

        def run(code: str) -> str:
            asks.write(json.dumps(code) + "\n")
            asks.flush()
            lines: list[str] = []
            while not (line := says.readline()).startswith("ended"):
                assert line, lines
                lines.append(line)
            assert line == "ended 0\n"
            return "".join(lines).strip()

        yield run
        asks.close()


@pytest.mark.skipif(torch.version.cuda is not None, reason="another build of torch")
def test_the_version_that_is_here_is_known() -> None:
    """Or a start takes longer: see what of its import needs them, and add it to those."""
    assert meta_kernels._is_known()


def test_numbers_are_computed_without_them(said: Said) -> None:
    code = """
assert is_there() is (torch.version.cuda is not None)
import inspect
from torch.nn import functional
x = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0))
y = functional.scaled_dot_product_attention(x, x, x)
assert torch.allclose(y, torch.softmax(x @ x.transpose(-1, -2) / 8**0.5, -1) @ x, atol=1e-5)
inspect.getmodule(inspect.currentframe())
print("fine")
"""
    assert said(code) == "fine"


@pytest.mark.parametrize(
    "use",
    [
        "import transformers",
        "import torch._dynamo",
        "from torch._decomp import decompositions",
        "torch._meta_registrations.register_meta",
        "from torch._meta_registrations import register_meta",
    ],
)
def test_they_are_there_once_somebody_may_need_them(said: Said, use: str) -> None:
    code = f"""
{use}
assert is_there()
assert torch._meta_registrations is sys.modules[NAME]
with torch.device("meta"):
    print(torch.linspace(0, 1, 5).shape[0], torch.Generator("cpu").device)
"""
    assert said(code) == "5 cpu"


@pytest.mark.parametrize("name", ["torch._decomp", "torch._refs", "torch._prims.rng_prims"])
def test_what_comes_with_them_is_made_once(said: Said, name: str) -> None:
    code = f"""
from importlib.machinery import SourceFileLoader
executed, execute = [], SourceFileLoader.exec_module
SourceFileLoader.exec_module = lambda self, module: [
    executed.append(module.__name__), execute(self, module)
]
import {name} as found
assert found is sys.modules["{name}"] and found.__spec__.origin == found.__file__
assert len(torch._decomp.decomposition_table) > 1000
print(sorted({{name for name in executed if executed.count(name) > 1}}))
"""
    assert said(code) == "[]"


def test_several_threads_that_need_them_at_once(said: Said) -> None:
    pytest.importorskip("accelerate", reason="needs the extra 'torch'")
    code = """
from concurrent.futures import ThreadPoolExecutor
def load(name):
    __import__(name)
    return is_there()
with ThreadPoolExecutor(3) as threads:
    assert all(threads.map(load, ["transformers", "accelerate", "transformers"]))
print(is_there())
"""
    assert said(code) == "True"


def test_another_version_is_imported_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(meta_kernels, "version", lambda _: "2.99.1")
    before = list(sys.meta_path)
    with meta_kernels.meta_kernels_later():
        assert sys.meta_path == before


def test_torch_that_is_there_is_left_alone() -> None:
    before = list(sys.meta_path)
    with meta_kernels.meta_kernels_later():
        assert sys.meta_path == before
