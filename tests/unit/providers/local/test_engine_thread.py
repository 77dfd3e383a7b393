"""The thread of models that generate, apart from any model."""

from __future__ import annotations

import threading
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from providers.local.engine_thread import EngineThread
from providers.local.threads import giving_way


class Nothing:
    """A scheduler that never holds a sequence."""

    waiting = 0
    running: Collection[Any] = ()

    def drop(self, sequences: set[Any]) -> None: ...

    def clear(self) -> list[Any]:
        return []


class Steps(EngineThread[Any]):
    """Notes for each step whether others are to give way to it."""

    def __init__(self) -> None:
        model: Any = SimpleNamespace(name="m")
        scheduler: Any = Nothing()
        super().__init__(model, scheduler, waiting=1)
        self.noted: list[bool] = []
        self.over = threading.Event()

    def _step(self) -> None:
        self.noted.append(giving_way.computed_lately())
        self.over.set()


def test_others_give_way_to_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_way, "_LATELY", 0)
    engine = Steps()
    engine.start()
    try:
        engine._between_steps(lambda: None)
        assert engine.over.wait(30)
    finally:
        engine.stop()
    assert engine.noted == [True]
    assert not giving_way.computed_lately()
