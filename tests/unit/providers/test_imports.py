"""The collector and imports: it leaves them alone, and is on again whatever becomes of them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.imports import importing


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Nothing stays frozen for the tests that come."""
    before = gc.isenabled()
    yield
    gc.unfreeze()
    assert gc.isenabled() == before


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported and is not yet."""
    name = "imported_by_a_test"
    (tmp_path / f"{name}.py").write_text("import gc\nIS_ON = gc.isenabled()\nSTAYS = [[]]\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def frozen(object_: object) -> bool:
    """Whether the collector leaves it alone for good."""
    return not any(each is object_ for each in gc.get_objects())


def test_what_is_imported_is_left_alone_then_and_later(module: str) -> None:
    with importing():
        imported = __import__(module)
    assert not imported.IS_ON
    assert gc.isenabled()
    assert frozen(imported.STAYS)
    later: list[list[int]] = [[]]
    assert not frozen(later)


def test_without_an_import_nothing_is_frozen() -> None:
    here: list[list[int]] = [[]]
    with importing():
        import gc as _again

        del _again
    assert not frozen(here)


def test_it_is_on_again_after_an_import_that_failed() -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        __import__("there_is_no_such_module")
    assert gc.isenabled()


def test_who_turned_it_off_still_has_it_off(module: str) -> None:
    gc.disable()
    try:
        with importing():
            __import__(module)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_one_within_another(module: str) -> None:
    with importing():
        with importing():
            __import__(module)
        assert not gc.isenabled()
    assert gc.isenabled()
