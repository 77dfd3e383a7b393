"""Vendors asked for what they list: the cheapest call there is, with the template's keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_compat.distribution import ProviderSettings

Answered = Sequence[str] | Exception
"""The models that a vendor lists, or why it does not."""


def ask_all(providers: Iterable[ProviderSettings]) -> Mapping[str, Answered]:
    """What each remote one of `providers` answers, by its id."""
    log = logging.getLogger("providers")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what fails is shown, and need not be said twice
    try:
        return asyncio.run(_ask_all(providers))
    finally:
        log.setLevel(level)


async def _ask_all(providers: Iterable[ProviderSettings]) -> Mapping[str, Answered]:
    remotes = [each for each in providers if each.type.startswith("remote::")]
    answers = await asyncio.gather(*(_ask(settings) for settings in remotes))
    return {settings.id: answer for settings, answer in zip(remotes, answers, strict=True)}


async def _ask(settings: ProviderSettings) -> Answered:
    from llama_compat.errors import APIError
    from providers.base import ProviderStartError
    from providers.registry import provider_type

    provider = provider_type(settings.type).make(settings.id, settings.config, ())
    try:
        await provider.start()
        return await provider.live_models()
    except (APIError, ProviderStartError) as error:
        return error
    finally:
        await provider.stop()
