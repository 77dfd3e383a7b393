"""What is not paid by the token alone."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.catalog.facts import Price
from llama_compat.catalog.prices import Rates, flat_rates, known_rates
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
