"""What requests cost: by the template's prices, or by the list of known ones (genai-prices).

The vocabulary's `Usage` counts the same for every vendor, whatever its own numbers mean: tokens
read from a cache and written to one are part of the prompt, reasoning is part of the completion. So
one sum prices them all. What is not known has no price, which is not the same as none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from llama_compat.types import Usage

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, PriceSettings

log = logging.getLogger(__name__)

NANO_DOLLARS = 1_000_000_000
"""Costs are whole numbers of a billionth of a dollar, so that sums of them are exact."""

KNOWN_SECONDS = 3600.0
"""A price of the list counts for so long: some depend on the date and the time of day."""

VENDORS: Mapping[str, str] = {
    "remote::anthropic": "anthropic",
    "remote::anthropic-messages": "anthropic",
    "remote::azure": "azure",
    "remote::cerebras": "cerebras",
    "remote::deepseek": "deepseek",
    "remote::fireworks": "fireworks",
    "remote::gemini": "google",
    "remote::gemini-native": "google",
    "remote::groq": "groq",
    "remote::mistral": "mistral",
    "remote::openai": "openai",
    "remote::openrouter": "openrouter",
    "remote::together": "together",
    "remote::xai": "x-ai",
}
"""What genai-prices calls the vendors that provider types are for."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of a kind of token, in dollars for a million of them.

    Attributes:
        base: what each costs.
        tiers: what each costs instead where the whole prompt has more than so many, by that number
            from the least on.
    """

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, prompt_tokens: int) -> float:
        """What each costs beside a prompt of so many."""
        if not self.tiers:
            return self.base
        applying = [price for above, price in self.tiers if prompt_tokens > above]
        return applying[-1] if applying else self.base


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one model; None for what costs as much as other input."""

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None

    def cost(self, usage: Usage) -> int:
        """What `usage` costs, in billionths of a dollar."""
        plain = prompt = usage.prompt_tokens
        micro_dollars = usage.completion_tokens * self.output.at(prompt)
        if cached := usage.cached_tokens:
            plain -= cached
            micro_dollars += cached * (self.cached_input or self.input).at(prompt)
        if written := usage.cache_write_tokens:
            plain -= written
            micro_dollars += written * (self.cache_write or self.input).at(prompt)
        if plain > 0:
            micro_dollars += plain * self.input.at(prompt)
        return round(micro_dollars * 1000)


class Prices:
    """The prices of a distribution's models.

    Args:
        distribution: whose `price:` come first.
    """

    def __init__(self, distribution: Distribution) -> None:
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
        self._vendors = {each.id: each.type for each in distribution.providers}
        self._known: dict[tuple[str, str], tuple[float, Rates | None]] = {}

    async def start(self) -> None:
        """Look up what the template's models cost; the list is large, so in a thread."""
        if any(self._vendors.get(provider) in VENDORS for provider, _ in self._wanted):
            await asyncio.to_thread(self._look_up_all, self._wanted)

    def cost(self, route: str, provider: str, model: str, usage: Usage) -> int | None:
        """What a request cost, in billionths of a dollar; None where the price is not known.

        Args:
            route: the public model's id in the template.
            provider: the id of the provider that answered.
            model: what that calls the model.
            usage: what was counted.
        """
        rates = self._own.get((route, provider, model)) or self._listed(provider, model)
        return None if rates is None else rates.cost(usage)

    def _listed(self, provider: str, model: str) -> Rates | None:
        vendor = VENDORS.get(self._vendors.get(provider, ""))
        if vendor is None:
            return None
        known = self._known.get((vendor, model))
        if known is None or known[0] < time.monotonic():
            known = time.monotonic() + KNOWN_SECONDS, listed_rates(vendor, model)
            self._known[vendor, model] = known
        return known[1]

    def _look_up_all(self, models: Iterable[tuple[str, str]]) -> None:
        for provider, model in models:
            self._listed(provider, model)


def _from_settings(price: PriceSettings) -> Rates:
    return Rates(
        Rate(price.input),
        Rate(price.output),
        None if price.cached_input is None else Rate(price.cached_input),
        None if price.cache_write is None else Rate(price.cache_write),
    )


def listed_rates(vendor: str, model: str) -> Rates | None:
    """What genai-prices says that a model costs now; None where it does not know it.

    Args:
        vendor: as genai-prices calls it.
        model: as the vendor calls it.
    """
    try:
        from genai_prices import Usage as Nothing
        from genai_prices import calc_price
    except ImportError:
        return None
    now = datetime.now(UTC)
    try:
        found = calc_price(
            Nothing(), model_ref=model, provider_id=vendor, genai_request_timestamp=now
        ).model_price
    except (LookupError, ValueError):
        return None
    prices = {name: _rate(getattr(found, name, None)) for name in _LISTED}
    plain = prices["input_mtok"] or (Rate(0.0) if prices["output_mtok"] else None)
    if plain is None:
        return None  # it is paid by the image, the second or the request
    return Rates(
        plain,
        prices["output_mtok"] or Rate(0.0),
        prices["cache_read_mtok"],
        prices["cache_write_mtok"],
    )


_LISTED = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    if hasattr(price, "tiers"):
        tiers = tuple((tier.start, float(tier.price)) for tier in price.tiers)
        return Rate(float(price.base), tiers)
    return Rate(float(price))
