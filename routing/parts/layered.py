"""What the layers of the chain are given: memories, caches, tools, guardrails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llama_compat.distribution import Distribution, ServerSettings
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.reasoning.memory import ReasoningMemory
from providers.base import Provider, ProviderStartError
from providers.shared import Shared

if TYPE_CHECKING:
    from routing.cache.exact import ExactCache
    from routing.layers.guardrails import Guardrails
    from routing.parts.parts import Parts
    from routing.tools.toolbox import ServerTools
    from routing.vector_stores.service import VectorStores


def goes_on(server: ServerSettings) -> bool:
    """Whether a response can be gone on from."""
    has_websockets = server.websockets is not None and "responses" in server.apis
    return server.responses_store is not None or has_websockets


def reasoning_of(
    server: ServerSettings, providers: Iterable[Provider], earlier: Parts | None
) -> ReasoningMemory | None:
    """Where is kept what has to come back; None where no vendor wants anything back."""
    settings = server.reasoning_memory
    if settings is None or not any(each.wants_reasoning_back for each in providers):
        return None
    before = None if earlier is None else earlier.reasoning
    if before is not None and earlier and earlier.distribution.server.reasoning_memory == settings:
        return before
    return ReasoningMemory(settings.max_turns, settings.max_bytes, settings.seconds)


def caches_of(
    distribution: Distribution, earlier: Parts | None
) -> dict[str, ExactCache | None] | None:
    """The caches of replies by model, those of `earlier` where they are to be the same; None where
    no model has one."""
    wanted = distribution.caches
    if not any(wanted.values()):
        return None
    from routing.cache.exact import ExactCache

    before = (earlier.caches if earlier else None) or {}
    server, was = distribution.server, earlier.distribution.server if earlier else None
    is_same_place = was is not None and (server.storage, server.counting) == (
        was.storage,
        was.counting,
    )
    caches: dict[str, ExactCache | None] = {}
    for name, settings in wanted.items():
        kept = before.get(name)
        if settings is None:
            caches[name] = None
        elif kept is not None and kept.is_as(settings) and is_same_place:
            caches[name] = kept
        else:
            caches[name] = ExactCache.of(settings, distribution.server, name)
    return caches


def tools_of(
    distribution: Distribution, stores: VectorStores | None, earlier: Parts | None
) -> Shared[ServerTools] | None:
    """What is run for models, that of `earlier` where it is to be the same. Where there is nothing,
    but some key may not have all tools run, vendors must not run them for it."""
    settings = distribution.server.tools
    if settings is None:
        names_tools = any(key.tools is not None for key in distribution.keys)
        if not (names_tools or distribution.server.stored_keys):
            return None
        settings = ToolsSettings()
    before = None if earlier is None else earlier.tools
    if before is not None and before.value.is_for(settings, stores):
        return before
    from routing.tools.toolbox import ServerTools

    tools = ServerTools(settings, stores)
    return Shared(tools, tools.stop)


def guardrails_of(distribution: Distribution) -> Guardrails | None:
    """What is looked through; None where neither the template nor a key can want that."""
    if not distribution.has_guardrails and not distribution.server.stored_keys:
        return None
    from routing.layers.guardrails import Guardrails

    by_model = {each.id: each.guardrails for each in distribution.models if each.guardrails}
    return Guardrails(distribution.guardrails, by_model)


async def load_checks(distribution: Distribution) -> None:
    """Load what the template's checks need, but for those that ask somebody else.

    Raises:
        ProviderStartError: it can't be had.
    """
    from llama_compat.guardrails.asked.loading import UnusableCheck, load

    try:
        await asyncio.to_thread(load, list(distribution.checks))
    except UnusableCheck as error:
        raise ProviderStartError(str(error)) from None
