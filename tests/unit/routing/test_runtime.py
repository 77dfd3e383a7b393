"""The providers of a distribution, started and stopped together."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from providers import registry
from providers.base import Provider, ProviderConfig, ProviderStartError
from providers.remote.openai.provider import RemoteOpenAIProvider
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


CLASSES = {"local::echo": f"{__name__}:Starter", "local::torch": f"{__name__}:Loader"}


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch) -> type[Starter]:
    monkeypatch.setattr(registry, "CLASSES", CLASSES)
    monkeypatch.setattr(Starter, "events", ())
    return Starter


def distribution(*ids: str, type: str = "local::echo", **models: Any) -> Distribution:
    return Distribution.model_validate(
        {
            "providers": [{"id": id, "type": type, "config": ProviderConfig()} for id in ids],
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


# One runtime in another's place ------------------------------------------------------------------


class Loader(Starter):
    """Loads its models, and takes over what another has."""

    loads_models = True
    adopted: Provider | None = None

    def adopt(self, previous: Provider) -> None:
        self.adopted = previous


async def started(distribution: Distribution, previous: Runtime | None = None) -> Runtime:
    runtime = Runtime(distribution, previous)
    await runtime.start()
    return runtime


async def test_what_is_unchanged_passes_on_and_ends_with_the_last_that_has_it(
    starter: type[Starter],
) -> None:
    one = await started(distribution("a", "b"))
    two = await started(distribution("b", "c"), one)
    assert two.providers["b"] is one.providers["b"]
    assert starter.events == ("a started", "b started", "c started")
    await one.stop()
    assert starter.events[3:] == ("a stopped",)
    three = await started(distribution("b"), two)
    await two.stop()
    await three.stop()
    assert starter.events[4:] == ("c stopped", "b stopped")


async def test_other_settings_or_another_type_make_another_provider(starter: type[Starter]) -> None:
    one = await started(distribution("a", "b"))
    changed = distribution("a", "b")
    object.__setattr__(changed.providers[0], "config", ProviderConfig(unsupported="drop"))
    two = Runtime(changed, one)
    assert two.providers["a"] is not one.providers["a"]
    assert two.providers["b"] is one.providers["b"]
    other = distribution("a", "b", type="local::torch")
    assert Runtime(other, one).providers["b"] is not one.providers["b"]
    await one.stop()


def of_vendor(type: str) -> Distribution:
    config = registry.config_model(type).validate({"base_url": "http://127.0.0.1:1/v1"})
    return Distribution.model_validate({"providers": [{"id": "a", "type": type, "config": config}]})


async def test_another_vendor_at_the_same_address_makes_another_provider() -> None:
    one = Runtime(of_vendor("remote::vllm"))
    assert Runtime(of_vendor("remote::vllm"), one).providers["a"] is one.providers["a"]
    other = Runtime(of_vendor("remote::sglang"), one).providers["a"]
    assert isinstance(other, RemoteOpenAIProvider)
    assert other is not one.providers["a"]
    assert other.vendor.name == "SGLang"


async def test_other_models_matter_to_providers_that_load_them(starter: type[Starter]) -> None:
    one = await started(distribution("a", x=100))
    assert Runtime(distribution("a", x=200), one).providers["a"] is one.providers["a"]
    loader = partial(distribution, "a", type="local::torch")
    two = await started(loader(x=100), one)
    assert two.providers["a"].adopted is one.providers["a"]
    assert Runtime(loader(x=100), two).providers["a"] is two.providers["a"]
    assert Runtime(loader(x=200), two).providers["a"] is not two.providers["a"]
    await one.stop()
    await two.stop()


async def test_where_the_next_can_not_start_the_last_goes_on(
    starter: type[Starter], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await started(distribution("a"))
    monkeypatch.setattr(starter, "fails", frozenset({"b"}))
    two = Runtime(distribution("a", "b"), one)
    with pytest.raises(ProviderStartError):
        await two.start()
    await two.stop()
    assert starter.events == ("a started", "b stopped")
    assert one.ready
    await one.stop()
    assert starter.events[2:] == ("a stopped",)


async def test_the_store_of_responses_passes_on_with_its_settings(
    starter: type[Starter], tmp_path: Path
) -> None:
    def storing(name: str) -> Distribution:
        return Distribution.model_validate(
            {
                "server": {"responses_store": {}, "storage": f"sqlite:{tmp_path / name}"},
                "providers": [{"id": "a", "type": "local::echo", "config": ProviderConfig()}],
            }
        )

    one = await started(storing("one.sqlite"))
    two = await started(storing("one.sqlite"), one)
    assert two.responses is one.responses
    await one.stop()
    assert two.responses is not None
    with pytest.raises(APIError, match="resp_none"):  # it still answers
        await two.responses.get("anybody", "resp_none")
    three = Runtime(storing("two.sqlite"), two)
    assert three.responses is not two.responses
    assert Runtime(distribution("a"), two).responses is None
    await two.stop()


async def test_it_is_unused_when_the_last_request_has_ended(starter: type[Starter]) -> None:
    runtime = Runtime(distribution("a"))
    await runtime.unused()
    runtime.hold()
    runtime.hold()
    waiting = asyncio.create_task(runtime.unused())
    runtime.release()
    await asyncio.sleep(0)
    assert not waiting.done()
    runtime.release()
    await waiting
    runtime.hold()
    waiting = asyncio.create_task(runtime.unused())
    await asyncio.sleep(0)
    assert not waiting.done()
    runtime.abandon()
    await waiting
