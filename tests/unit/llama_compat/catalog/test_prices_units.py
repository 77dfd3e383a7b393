"""What is not paid by the token alone."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.catalog.facts import Price
from llama_compat.catalog.prices import (
    MAX_COST,
    Rate,
    Rates,
    UnitRates,
    flat_rates,
    known_rates,
)
from llama_compat.types import Units, Usage


def rates(**prices: Any) -> Rates:
    return flat_rates(Price(**{"input": 0, "output": 0, **prices}))


@pytest.mark.parametrize(
    ("prices", "usage", "cost"),
    [
        ({"thousand_searches": 2}, Usage(5, units=Units(searches=3)), 6_000_000),
        ({"image": 0.04}, Usage(5, units=Units(images=2)), 80_000_000),
        ({"million_characters": 15}, Usage(units=Units(characters=1000)), 15_000_000),
        ({"hour": 0.36}, Usage(units=Units(seconds=10)), 1_000_000),
        # What nobody has counted has no price, unless tokens have one.
        ({"hour": 0.36}, Usage(5), None),
        ({"hour": 0.36}, Usage(5, units=Units(images=1)), None),
        ({"hour": 0.36, "input": 1}, Usage(5), 5_000),
        ({"input": 1}, Usage(5, units=Units(images=1)), 5_000),
    ],
)
def test_what_it_costs(prices: dict[str, float], usage: Usage, cost: int | None) -> None:
    assert rates(**prices).cost(usage) == cost


@pytest.mark.parametrize(
    "usage",
    [
        Usage(2**48, 2**48),
        Usage(units=Units(searches=1e12)),
        Usage(5, units=Units(audio_tokens=2**53 - 1)),
    ],
)
def test_numbers_that_make_no_sense_cost_no_more_than_is_kept(usage: Usage) -> None:
    """A vendor says them; the cost goes into 64 bits, beside many others."""
    absurd = Rates(Rate(75), Rate(600), units=UnitRates(searches=1, audio_tokens=0.1))
    assert absurd.cost(usage) == MAX_COST
    assert MAX_COST * 1000 < 2**63


def test_no_part_of_a_prompt_makes_it_cost_less_than_nothing() -> None:
    cheap = Rates(Rate(10), Rate(10), units=UnitRates(audio_tokens=1e-6))
    assert cheap.cost(Usage(5, units=Units(audio_tokens=1000))) == 0


def test_a_part_of_a_long_prompt_is_at_the_price_of_long_prompts() -> None:
    tiered = Rates(Rate(1, ((1000, 2.0),)), Rate(1), units=UnitRates(audio_tokens=5e-6))
    usage = Usage(2000, units=Units(audio_tokens=2000))
    assert tiered.cost(usage) == 2000 * 5 * 1000


def test_what_genai_prices_knows() -> None:
    whisper, speech = known_rates("openai", "whisper-1"), known_rates("openai", "tts-1")
    assert whisper is not None
    assert whisper.cost(Usage(units=Units(seconds=3600))) == 360_000_000
    assert speech is not None
    assert speech.cost(Usage(3, units=Units(characters=1_000_000))) == 15_000_000_000
    listening = known_rates("openai", "gpt-4o-transcribe")
    assert listening is not None
    heard = listening.cost(Usage(1_000_000, units=Units(audio_tokens=1_000_000)))
    read = listening.cost(Usage(1_000_000))
    assert heard is not None
    assert read is not None
    assert heard > read


@pytest.mark.parametrize(
    ("vendor", "model", "dollars"),
    [
        ("openai", "gpt-5", 10),
        ("anthropic", "claude-sonnet-4-5", 10),
        ("google", "gemini-2.5-flash", 35),
        ("google", "gemini-3-pro-preview", 14),
    ],
)
def test_what_genai_prices_knows_of_vendors_searches(vendor: str, model: str, dollars: int) -> None:
    """Beside the tokens, in batches as elsewhere."""
    for batch in (False, True):
        rates = known_rates(vendor, model, batch=batch)
        assert rates is not None
        plain = rates.cost(Usage(1000, 1000))
        searched = rates.cost(Usage(1000, 1000, units=Units(searches=2)))
        assert plain is not None
        assert searched is not None
        assert searched - plain == 2 * dollars * 1_000_000
