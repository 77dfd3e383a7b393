"""A model of an engine in this process: opened and closed, and what is known of it meanwhile."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from llama_compat.distribution.residency import ModelStay
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.local.engine import (
    AdaptableEngine,
    Embedder,
    Engine,
    ParkableEngine,
    ParkedModel,
    Reranker,
    Stats,
)
from providers.local.replies.grammar import Grammars
from providers.local.residency.ledger import Sizes
from providers.local.residency.resident import ModelLease, Resident

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency

log = logging.getLogger(__name__)

AnyEngine = Engine | Embedder | Reranker

_NOW = frozenset({"waiting", "running", "used_blocks", "total_blocks", "batched"})
"""The figures of `Stats` that are of a moment; the others add up."""


class Footprint(NamedTuple):
    """What a model takes of the memory of this machine.

    Attributes:
        needs: while it is loaded, at most.
        weights: what its weights take once it is.
        kv_cache: what of it is for its KV cache; None where that is not for the template to say.
        parks: what its weights take of main memory when they wait there, about; 0 where they can't.
    """

    needs: Sizes
    weights: int = 0
    kv_cache: int | None = None
    parks: int = 0


class Wish(NamedTuple):
    """How one provider has a model.

    Attributes:
        stay: for how long; None where the memory is not shared, and the model is always there.
        adapters: the sources of those that are loaded with it.
    """

    stay: ModelStay | None
    adapters: Collection[str]


class EngineMaker(Protocol):
    """What makes engines of one provider's models. All of it is called in threads."""

    id: str

    def open_engine(self, name: str, kv_cache: int | None) -> AnyEngine:
        """An engine that runs, with so many bytes for its KV cache where that is said.

        Raises:
            ProviderStartError: a person has to mend something.
        """

    def footprint(self, name: str) -> Footprint:
        """What the model will take.

        Raises:
            ProviderStartError: it is not there, or its files make no sense.
        """

    def taken_by(self, footprint: Footprint, engine: AnyEngine) -> Sizes:
        """What it takes now that it is loaded, of which its footprint was that."""

    def freed(self) -> None:
        """An engine is gone, and nothing here refers to it any more."""

    def max_waiting(self) -> int | None:
        """How many requests may wait for a model."""


class OpenedModel(NamedTuple):
    """A model that runs, the thread in which its prompts are made, and the grammars that its
    replies can be held to."""

    engine: AnyEngine
    prompts: ThreadPoolExecutor
    grammars: Grammars | None

    async def stop(self) -> None:
        """Stop it."""
        if not isinstance(self.engine, Embedder | Reranker):
            self.engine.model.tokenizer.close()
        await asyncio.to_thread(self.engine.stop)
        # It waits for the prompt that is being tokenized, which may be a long one.
        await asyncio.to_thread(self.prompts.shutdown, cancel_futures=True)
        if self.grammars is not None:
            self.grammars.close()


class EngineHost:
    """One model of a provider, whether it is loaded or not. It is a `Loadable`.

    A reload may have two providers have it at a time. It is as the later one wants it, and as the
    other does again if that goes first, as it does where the reload fails.

    Args:
        maker: makes its engine.
        name: what the provider calls it.

    Attributes:
        opened: what runs; None while it is not loaded.
        resident: what is leased of it, where the memory is shared.
        context_length: how many tokens it holds, once it was loaded.
        inputs: what it reads, likewise.
        outputs: what it gives, likewise.
        adapters: the sources of those that are loaded with it.
    """

    def __init__(self, maker: EngineMaker, name: str) -> None:
        self._maker = maker
        self.name = name
        self.opened: OpenedModel | None = None
        self.resident: Resident | None = None
        self.context_length: int | None = None
        self.inputs: tuple[str, ...] | None = None
        self.outputs: tuple[str, ...] | None = None
        self.adapters: Collection[str] = ()
        self._wishes: dict[EngineMaker, Wish] = {}
        self._leases: dict[EngineMaker, ModelLease] = {}
        self._adapting = asyncio.Lock()
        self._footprint: Footprint | None = None
        self._past: Stats | None = None
        self._parked: ParkedModel | None = None

    @property
    def provider(self) -> str:
        """The id of the provider that has it."""
        return self._maker.id

    @property
    def stats(self) -> Stats | None:
        """What its engines have done, and the last one does; None before the first."""
        if self.opened is None:
            return self._past
        return _added(self._past, self.opened.engine.stats)

    # Who has it -----------------------------------------------------------------------------------

    def wanted(self, by: EngineMaker, wish: Wish) -> None:
        """`by` has it, and wants it like that."""
        self._wishes[by] = wish

    async def share(self, residency: Residency, stay: ModelStay) -> None:
        """Have `residency` see to it. What those ask who share no memory has no leases, so that
        there is one for each of them as long as they have it.

        Raises:
            ProviderStartError: it could never be loaded, or can't be parked.
        """
        if self.resident is None:
            self.resident = residency.add(self, stay, self.present())
            for each, wish in self._wishes.items():
                if wish.stay is None:
                    self._leases[each] = await self.resident.lease()
        residency.stays(self.resident, stay)

    async def keep(self, by: EngineMaker) -> None:
        """Have it stay as long as `by` has it, which shares no memory with others.

        Raises:
            ProviderStartError: it can't be loaded.
        """
        if self.resident is not None:
            try:
                self._leases[by] = await self.resident.lease()
            except APIError as error:
                raise ProviderStartError(error.message) from error

    def left(self, by: EngineMaker) -> None:
        """`by` has it no more."""
        self._wishes.pop(by, None)
        lease = self._leases.pop(by, None)
        if lease is not None:
            lease.release()
        if not self._wishes:
            return
        last = next(reversed(self._wishes.values()))
        self.adapters = last.adapters
        if self.resident is None:
            return
        if all(each.stay is None for each in self._wishes.values()):
            self.resident.forget()
            self.resident = None
            self._leases.clear()
        elif last.stay is not None:
            self.resident.stay = last.stay

    # As a Loadable --------------------------------------------------------------------------------

    async def survey(self) -> None:
        """Find out what it will take.

        Raises:
            ProviderStartError: it is not there, or its files make no sense.
        """
        if self._footprint is None:
            self._footprint = await asyncio.to_thread(self._maker.footprint, self.name)

    @property
    def needs(self) -> Sizes:
        """What it takes while it is loaded, at most; `survey` has found out."""
        assert self._footprint is not None
        return self._footprint.needs

    @property
    def parks(self) -> Sizes:
        """As its engine says, where it is loaded; before that as its files do."""
        size = 0 if self._footprint is None else self._footprint.parks
        if size and self.opened is not None:
            engine = self.opened.engine
            size = engine.parked_bytes if isinstance(engine, ParkableEngine) else 0
        return {"cpu": size} if size else {}

    @property
    def max_waiting(self) -> int | None:
        """As many as its engine would let wait."""
        return self._maker.max_waiting()

    async def load(self) -> Sizes:
        """Load it, in a thread, and start an engine.

        Raises:
            ProviderStartError: a person has to mend something.
        """
        kv_cache = None if self._footprint is None else self._footprint.kv_cache
        return await self._open(
            lambda: self._with_adapters(self._maker.open_engine(self.name, kv_cache))
        )

    def _with_adapters(self, engine: AnyEngine) -> AnyEngine:
        """An engine with its adapters; called in a thread."""
        try:
            for source in self.adapters:
                self._adaptable(engine).load_adapter(source)
        except BaseException:
            engine.stop()
            raise
        return engine

    def _adaptable(self, engine: AnyEngine) -> AdaptableEngine:
        if not isinstance(engine, AdaptableEngine):
            raise ProviderStartError(
                f"The model '{self.name}' of '{self.provider}' takes no adapters, as it generates"
                " nothing: leave its `adapters` out of the template."
            )
        return engine

    def has_adapter(self, source: str) -> bool:
        """Whether it is loaded, and an adapter with it."""
        return (
            self.opened is not None
            and isinstance(self.opened.engine, AdaptableEngine)
            and source in self.opened.engine.adapters
        )

    async def adapt(self, source: str) -> None:
        """Have an adapter loaded, if the model is.

        Raises:
            ProviderStartError: it can't be.
        """
        async with self._adapting:
            if self.opened is not None:
                engine = self._adaptable(self.opened.engine)
                if source not in engine.adapters:
                    await asyncio.to_thread(engine.load_adapter, source)

    async def adapt_to(self, sources: Collection[str]) -> None:
        """Have these adapters and no others, now and whenever it is loaded.

        Raises:
            ProviderStartError: one can't be loaded.
        """
        for source in sources:
            await self.adapt(source)
        self.adapters = sources
        if self.opened is not None and isinstance(self.opened.engine, AdaptableEngine):
            for source in set(self.opened.engine.adapters).difference(sources):
                await self.release_adapter(source)

    async def release_adapter(self, source: str) -> None:
        """Let go of an adapter until it is asked for, or the model is loaded again."""
        async with self._adapting:
            if self.opened is not None and isinstance(self.opened.engine, AdaptableEngine):
                await asyncio.to_thread(self.opened.engine.unload_adapter, source)

    async def unpark(self) -> Sizes:
        """Put its weights back where they were, and start an engine; its adapters are read anew.

        Raises:
            ProviderStartError: the device has no room.
        """
        parked, self._parked = self._parked, None
        assert parked is not None
        return await self._open(lambda: self._with_adapters(parked.reopened()))

    async def unload(self) -> None:
        """Break off what is running, and let go of all that there is."""
        if self.opened is not None:
            opened = self._close()
            engine = weakref.ref(opened.engine)
            await opened.stop()
            del opened
            await asyncio.to_thread(self._forget, engine)
        elif self._parked is not None:
            parked, self._parked = self._parked, None
            await asyncio.to_thread(parked.close)
            self._maker.freed()

    async def park(self) -> Sizes:
        """Stop it, and have its weights wait in main memory; nothing where that can't be done."""
        assert self.opened is not None
        opened = self._close()
        engine = weakref.ref(opened.engine)
        await opened.stop()
        assert isinstance(opened.engine, ParkableEngine)
        try:
            self._parked = await asyncio.to_thread(opened.engine.parked)
        except Exception:
            log.exception("%s: its weights can't wait in main memory", self.name)
        del opened
        await asyncio.to_thread(self._forget, engine)
        return {} if self._parked is None else {"cpu": self._parked.size}

    async def end(self) -> None:
        """Nobody has it any more."""
        if self.resident is not None:
            await self.resident.remove()
        else:
            await self.unload()

    def present(self) -> Sizes | None:
        """What it takes now; None where it is not loaded."""
        return None if self.opened is None else self._taken(self.opened.engine)

    def _taken(self, engine: AnyEngine) -> Sizes:
        if self._footprint is None:
            return {}
        return self._maker.taken_by(self._footprint, engine)

    def _forget(self, engine: weakref.ref[AnyEngine]) -> None:
        """Have its memory given back before somebody is told that it was."""
        if engine() is not None:
            gc.collect()  # what refers to itself in a circle
        self._maker.freed()

    def _close(self) -> OpenedModel:
        assert self.opened is not None
        self._past = self.stats
        opened, self.opened = self.opened, None
        if self._past is not None:
            self._past = replace(self._past, waiting=0, running=0, used_blocks=0, total_blocks=0)
        return opened

    async def _open(self, opens: Callable[[], AnyEngine]) -> Sizes:
        opening = asyncio.ensure_future(asyncio.to_thread(opens))
        try:
            engine = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on all the same, and what it opens would run for nobody.
            with suppress(ProviderStartError):
                await asyncio.to_thread((await opening).stop)
            raise
        grammars = None
        self.inputs = ("text",)
        if isinstance(engine, Embedder):
            self.outputs = ("embeddings",)
        elif isinstance(engine, Reranker):
            self.outputs = ("rerank",)
        else:
            grammars = Grammars(engine.model)
            self.context_length = engine.model.context_length
            self.inputs, self.outputs = engine.model.inputs, ("text",)
        prompts = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        self.opened = OpenedModel(engine, prompts, grammars)
        return self._taken(engine)


def _added(past: Stats | None, now: Stats) -> Stats:
    if past is None:
        return now
    summed = {
        each.name: getattr(past, each.name) + getattr(now, each.name)
        for each in fields(Stats)
        if each.name not in _NOW
    }
    return replace(now, **summed)
