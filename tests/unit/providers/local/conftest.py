"""What renders templates for all models, and where Triton's kernels run: in Triton's interpreter,
on the CPU, and compiled where there is a GPU.

The interpreter has to be chosen before Triton is imported, as some versions of transformers do, and
it is the process's: where there is a GPU the kernels are compiled, and the tests in the interpreter
are skipped.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Choose the interpreter, before any module of the folder is imported."""
    if config.getoption("--light") or importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session", autouse=True)
def a_renderer_that_stays() -> Iterator[None]:
    """The processes that render chat templates stay while there is a renderer: without this one
    another would start with each model that a test opens, at a quarter of a second of CPU."""
    from providers.local.prompts.templates.renderer import TemplateRenderer

    renderer = TemplateRenderer()
    yield
    renderer.close()


@pytest.fixture(
    params=["interpreter", pytest.param("cuda", marks=pytest.mark.cuda)],
    ids=str,
)
def device(request: pytest.FixtureRequest) -> Any:
    """Where the kernels run."""
    import torch

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if request.param == "interpreter":
        if not interpreted:
            pytest.skip("kernels are compiled in this process; TRITON_INTERPRET=1 interprets them")
        return torch.device("cpu")
    if not torch.cuda.is_available() or interpreted:
        pytest.skip(f"needs a CUDA GPU; torch {torch.__version__} sees none on this machine")
    return torch.device("cuda")
