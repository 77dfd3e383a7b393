"""Versions of llama-cpp-python: one that lacks something is told what it lacks."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from providers.local.llama_cpp_engine.bindings import fit, library
from providers.local.llama_cpp_engine.media import mtmd

BINDINGS = Path(fit.__file__).parent


def test_the_version_that_is_there_fits() -> None:
    assert fit.misfit(library.lib, library.FUNCTIONS, library.FIELDS) is None
    assert fit.misfit(mtmd.library(), mtmd.FUNCTIONS, mtmd.FIELDS) is None


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"llama_decode": None}, "it has no llama_decode"),
    ({"llama_memory_seq_cp": lambda: None}, "its llama_memory_seq_cp does not take 5 arguments"),
    ({"llama_batch": object}, "its llama_batch has no n_tokens"),
]


@pytest.mark.parametrize(("change", "lacking"), CHANGES)
def test_a_version_that_does_not_fit_is_named(change: dict[str, Any], lacking: str) -> None:
    other = types.SimpleNamespace(**{**vars(library.lib), **change})
    with pytest.raises(ImportError) as caught:
        fit.fitting(lambda: other, library.FUNCTIONS, library.FIELDS, mends="take another")
    version = fit.installed_version()
    assert str(caught.value) == f"llama-cpp-python {version} does not fit: {lacking}; take another"


def test_one_that_can_t_be_loaded_is_named() -> None:
    def load() -> Any:
        raise OSError("no libllama.so")

    with pytest.raises(ImportError, match=r"is torn \(no libllama\.so\); take another$"):
        fit.fitting(load, {}, {}, failed="is torn", mends="take another")


def test_every_function_that_is_called_is_looked_for() -> None:
    source = "".join(path.read_text() for path in BINDINGS.glob("*.py"))
    others = {"llama_adapter_lora_p_ctypes", "llama_log_callback", *library.FIELDS}
    assert called("llama", source) - others == set(library.FUNCTIONS)
    of_pictures = called("mtmd", Path(mtmd.__file__).read_text())
    assert of_pictures - {*mtmd.FIELDS} == set(mtmd.FUNCTIONS)


def called(prefix: str, source: str) -> set[str]:
    return set(re.findall(rf"(?:lib|mtmd_cpp)\.({prefix}_\w+)", source))
