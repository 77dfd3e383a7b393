"""A tiny model, and what has Triton's interpreter get through kernels soon."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=1)


@pytest.fixture
def quick_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time."""
    from providers.local.torch_engine.loading import self_check

    monkeypatch.setattr(self_check, "SEQUENCES", ((1, 1), (1, 40), (20, 25), (18, 18)))
    monkeypatch.setattr(self_check, "ROWS_OF_AN_EXPERT", (1, 20))


@pytest.fixture(scope="session")
def known_faults() -> dict[Any, str | None]:
    """Of kernels that were tried, by the model's shapes."""
    return {}


@pytest.fixture
def tried_once(monkeypatch: pytest.MonkeyPatch, known_faults: dict[Any, str | None]) -> None:
    """Kernels are tried for the first model of its shapes alone, where that is not the subject."""
    from providers.local.torch_engine.loading import kernel_choice

    tried = kernel_choice._fault

    def fault(kernels: str, decoder: Any, *, cached: Any) -> str | None:
        size = decoder.embedding.shape
        heads = (decoder.heads, decoder.kv_heads, decoder.head_dim, len(decoder.layers))
        key = (kernels, cached, decoder.embedding.device, decoder.embedding.dtype, size, heads)
        if key not in known_faults:
            known_faults[key] = tried(kernels, decoder, cached=cached)
        return known_faults[key]

    monkeypatch.setattr(kernel_choice, "_fault", fault)


@pytest.fixture(scope="session", autouse=True)
def language_put_in_place_once() -> Iterator[None]:
    """Functions that a kernel calls find the language as the kernel found it.

    The interpreter puts its own in the place of every member of Triton's language when a kernel is
    launched, and goes through all of them again for each call of a function by that kernel, where
    nothing is left to replace: half of the time that a kernel of small functions takes.
    """
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    if not hasattr(interpreter, "_patch_lang"):  # another version, which does it otherwise
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", _once_a_launch(interpreter))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_computed_in_vain() -> Iterator[None]:
    """What the interpreter works out and does not use, or works out again each time.

    Whether a sum, difference or product of integers overflows it finds out by a dozen operations of
    Triton's language, a quarter of a kernel's time, and does not look at unless its `debug` is on.
    It makes a table of all types each time that it wants one of them.
    """
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    semantic = pytest.importorskip("triton.language.semantic").TritonSemantic
    overflows, types = "binary_op_sanitize_overflow_impl", "_get_np_dtype"
    known = hasattr(semantic, overflows) and hasattr(interpreter, types)
    if os.environ.get("TRITON_INTERPRET") != "1" or not known:  # or another version's
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        if not interpreter.InterpreterOptions().debug:
            patch.setattr(semantic, overflows, lambda *_: None)
        patch.setattr(interpreter, types, _looked_up(getattr(interpreter, types)))
        yield


@pytest.fixture(scope="session", autouse=True)
def rounded_to_fp8_as_a_gpu_does() -> Iterator[None]:
    """The interpreter loses what is carried where it rounds up to a power of 2: 1.99 becomes 1."""
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    if not hasattr(interpreter, "_convert_float"):  # another version, which may know better
        yield
        return
    import torch

    own = interpreter._convert_float

    def convert(numbers: Any, kind: Any, to: Any, rounding: Any) -> Any:
        if to.name != "fp8e4nv" or kind.name != "fp32":
            return own(numbers, kind, to, rounding)
        rounded = torch.tensor(numbers).to(torch.float8_e4m3fn)
        return rounded.view(torch.uint8).numpy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_convert_float", convert)
        yield


def _looked_up(made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As `made`, once for each name of a type of single values."""
    known: dict[str, Any] = {}

    def looked_up(of: Any) -> Any:
        kind = of.scalar
        if kind.name not in known:
            known[kind.name] = made(kind)
        return known[kind.name]

    return looked_up


def _once_a_launch(interpreter: Any) -> Callable[[Any], Any]:
    whole, scope_of = interpreter._patch_lang, interpreter._LangPatchScope
    in_place: set[str] = set()

    @cache
    def languages_of(fn: Any) -> frozenset[str]:
        names = {value.__name__ for value in fn.__globals__.values() if inspect.ismodule(value)}
        return frozenset(names & {"triton.language", "triton.language.core"})

    class Launch(scope_of):  # type: ignore[misc, valid-type]
        """What a launch replaced, with what the functions it calls replaced beside that."""

        def restore(self) -> None:
            super().restore()
            in_place.clear()

    def patch_lang(fn: Any) -> Any:
        languages = languages_of(fn)
        if languages and languages <= in_place:
            return scope_of()
        first, scope = not in_place, whole(fn)
        in_place.update(languages)
        if first:
            launch = Launch()
            launch._changes = scope._changes
            return launch
        return scope

    return patch_lang
