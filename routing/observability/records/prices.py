"""What requests cost: by the template's prices, or by those that the catalogue knows.

The vocabulary's `Usage` counts the same for every vendor, whatever its own numbers mean: tokens
read from a cache and written to one are part of the prompt, reasoning is part of the completion. So
one sum prices them all. What is not known has no price, which is not the same as none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llama_compat.catalog import Catalog
from llama_compat.catalog.facts import Price
from llama_compat.catalog.prices import Rates, flat_rates, known_rates
from llama_compat.types import Usage

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, PriceSettings

KNOWN_SECONDS = 3600.0
"""A price of the list counts for so long: some depend on the date and the time of day."""


class Prices:
    """The prices of a distribution's models.

    Args:
        distribution: whose `price:` come first.
        catalog: has the facts of its vendors' models; it is read if there is none.
    """

    def __init__(self, distribution: Distribution, catalog: Catalog | None = None) -> None:
        self._catalog = Catalog.of(distribution) if catalog is None else catalog
        targets = [
            (model.id, each)
            for model in distribution.models
            for each in distribution.targets_of(model)
        ]
        self._own = {
            (route, each.provider, each.model): _from_settings(each.price)
            for route, each in targets
            if each.price is not None
        }
        self._wanted = [(each.provider, each.model) for _, each in targets if each.price is None]
        self._facts = {
            (each.provider, each.model): each.facts for _, each in targets if each.facts is not None
        }
        self._known: dict[tuple[str, str, bool], tuple[float, Rates | None]] = {}
        self._batch_shares = {
            (route, each.provider, each.model): each.price.batch
            for route, each in targets
            if each.price is not None
        }

    async def start(self) -> None:
        """Look up what the template's models cost; the list is large, so in a thread."""
        if any(self._listed_as(*each)[0] is not None for each in self._wanted):
            await asyncio.to_thread(self._look_up_all, self._wanted)

    def cost(
        self, route: str, provider: str, model: str, usage: Usage, *, batch: bool = False
    ) -> int | None:
        """What a request cost, in billionths of a dollar; None where the price is not known.

        Args:
            route: the public model's id in the template.
            provider: the id of the provider that answered.
            model: what that calls the model.
            usage: what was counted.
            batch: whether in the vendor's own batch.
        """
        rates = self._own.get((route, provider, model))
        if rates is not None and batch:
            rates = rates.times(self._batch_shares[route, provider, model])
        rates = rates or self._listed(provider, model, batch)
        return None if rates is None else rates.cost(usage)

    def _listed(self, provider: str, model: str, batch: bool = False) -> Rates | None:
        known = self._known.get((provider, model, batch))
        if known is None or known[0] < time.monotonic():
            known = time.monotonic() + KNOWN_SECONDS, self._look_up(provider, model, batch)
            self._known[provider, model, batch] = known
        return known[1]

    def _look_up(self, provider: str, model: str, batch: bool) -> Rates | None:
        vendor, model = self._listed_as(provider, model)
        if vendor is None:
            return None
        return known_rates(vendor, model, self._catalog.facts(vendor, model).price, batch=batch)

    def _listed_as(self, provider: str, model: str) -> tuple[str | None, str]:
        return self._catalog.listed_as(provider, model, self._facts.get((provider, model)))

    def _look_up_all(self, models: Iterable[tuple[str, str]]) -> None:
        for provider, model in models:
            self._listed(provider, model)


def _from_settings(price: PriceSettings) -> Rates:
    return flat_rates(
        Price(
            input=price.input,
            output=price.output,
            cached_input=price.cached_input,
            cache_write=price.cache_write,
            thousand_searches=price.thousand_searches,
            image=price.image,
            million_characters=price.million_characters,
            hour=price.hour,
        )
    )
