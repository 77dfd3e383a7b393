"""The providers of a distribution, started and stopped together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from providers import registry
from providers.base import Provider, ProviderStartError
from routing.runtime import Runtime


class Starter(Provider):
    """Notes what becomes of it; starts when all of `together` have begun to."""

    together = asyncio.Barrier(1)
    fails: frozenset[str] = frozenset()
    events: tuple[str, ...] = ()

    def _note(self, what: str) -> None:
        type(self).events = (*self.events, f"{self.id} {what}")

    async def start(self) -> None:
        try:
            await self.together.wait()
            if self.id in self.fails:
                raise ProviderStartError(f"{self.id} can't")
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._note("cancelled")
            raise
        self._note("started")

    async def stop(self) -> None:
        self._note("stopped")


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch) -> type[Starter]:
    monkeypatch.setattr(registry, "provider_class", lambda type: Starter)
    monkeypatch.setattr(Starter, "events", ())
    return Starter


def distribution(*ids: str, **models: Any) -> Distribution:
    return Distribution.model_validate(
        {
            "providers": [{"id": id, "type": "local::echo"} for id in ids],
            "models": [
                {"id": name, "provider": ids[0], "provider_model": "one", "context_length": length}
                for name, length in models.items()
            ],
        }
    )


async def test_providers_start_side_by_side(
    starter: type[Starter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "together", asyncio.Barrier(3))
    runtime = Runtime(distribution("a", "b", "c"))
    async with asyncio.timeout(5):
        await runtime.start()
    assert runtime.ready
    assert sorted(starter.events) == ["a started", "b started", "c started"]
    await runtime.stop()
    assert not runtime.ready
    assert sorted(starter.events[3:]) == ["a stopped", "b stopped", "c stopped"]


async def test_where_one_can_not_start_nobody_is_left_half_way(
    starter: type[Starter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "together", asyncio.Barrier(2))
    monkeypatch.setattr(starter, "fails", frozenset({"b"}))
    runtime = Runtime(distribution("a", "b"))
    with pytest.raises(ProviderStartError, match="b can't"):
        await runtime.start()
    assert not runtime.ready
    assert len(asyncio.all_tasks()) == 1
    await runtime.stop()
    assert {"a stopped", "b stopped"} <= set(starter.events)


@pytest.mark.parametrize(
    ("lengths", "most"), [((100, 200), 200), ((100, None), None), ((None, 100), None), ((7,), 7)]
)
def test_a_model_holds_as_much_as_any_public_one_of_it_wants(
    starter: type[Starter], lengths: tuple[int | None, ...], most: int | None
) -> None:
    models = {f"m{index}": length for index, length in enumerate(lengths)}
    runtime = Runtime(distribution("a", **models))
    [model] = runtime.providers["a"].models
    assert (model.name, model.context_length) == ("one", most)
