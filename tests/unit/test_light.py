"""What `make check` leaves out: modules that import an engine, and tests that start a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import COLLECTED_ENGINES, ENGINES, imports_engine

ROOT = Path(__file__).parents[2]

FOLDERS = (
    "tests/unit/providers/local",
    "tests/unit/providers/remote/http1",
    "tests/unit/routing/access/limits",
)
"""Some that hold both kinds; elsewhere `make check` sees to it itself."""


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import torch.nn as nn",
        "from transformers import AutoModel",
        "from providers.local.torch_engine.engine import Engine",
        "from providers.local import torch_engine",
        "from tests.tiny_models import make_model",
        "if True:\n    import triton",
        "class C:\n    import llama_cpp",
        "from tests import tiny_models",
        "try:\n    pass\nexcept ValueError:\n    import torch",
        "import pytest\n\npytest.importorskip('triton', reason='')",
        "import pytest\n\ntriton = pytest.importorskip('triton')",
    ],
)
def test_a_module_that_imports_an_engine_is_left_out(tmp_path: Path, source: str) -> None:
    (module := tmp_path / "test_it.py").write_text(source)
    assert imports_engine(module)


@pytest.mark.parametrize(
    "source",
    [
        "import torchlike",
        "from tests.conftest import ROOT",
        "def f():\n    import torch",
        "import pytest\n\ndef f():\n    pytest.importorskip('torch')",
        "import pytest\n\npytest.importorskip('schemathesis')",
        "async def f():\n    from transformers import AutoModel",
        "from providers.local.echo import EchoProvider",
    ],
)
def test_one_that_does_not_is_not(tmp_path: Path, source: str) -> None:
    (module := tmp_path / "test_it.py").write_text(source)
    assert not imports_engine(module)


def test_no_module_of_make_check_has_imported_an_engine(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--light"):
        pytest.skip("this is not make check")
    assert pytestconfig.stash[COLLECTED_ENGINES] == []


@pytest.mark.program
def test_no_engine_is_imported_and_no_server_is_asked_for() -> None:
    """Folders are collected in a process that can't import an engine."""
    code = (
        "import sys, pytest\n"
        f"sys.modules.update(dict.fromkeys({[*ENGINES]!r}))\n"
        f"sys.exit(pytest.main([*{FOLDERS}, '--light', '--collect-only', '-q']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:]
    tests = done.stdout.splitlines()
    assert len([test for test in tests if "::" in test]) > 500
    assert not [test for test in tests if "test_shared_away" in test or "client_soak" in test]
