"""What requests cost, as each vendor counts tokens."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.catalog.facts import Price
from llama_compat.catalog.listed import listed_vendors
from llama_compat.catalog.prices import Rate, Rates, known_rates
from llama_compat.catalog.vendors import VENDORS
from llama_compat.dialects.anthropic_messages.usage import Counts
from llama_compat.dialects.gemini.replies import parse_usage as parse_gemini
from llama_compat.dialects.openai.usage import parse_usage as parse_openai
from llama_compat.dialects.openai_responses.output.response_object import (
    parse_usage as parse_responses,
)
from llama_compat.distribution import (
    Distribution,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
    TargetSettings,
)
from llama_compat.types import Usage
from providers.registry import provider_types
from routing.observability.records import prices as prices_module
from routing.observability.records.prices import Prices

RATES = Rates(Rate(1.0), Rate(10.0), cached_input=Rate(0.25), cache_write=Rate(2.0))
"""Dollars a million: so that 1 token of input is 1,000 billionths."""


def anthropic(usage: dict[str, Any]) -> Usage:
    return Counts(usage).usage()


@pytest.mark.parametrize(
    ("parse", "usage", "cost"),
    [
        pytest.param(
            parse_openai, {"prompt_tokens": 100, "completion_tokens": 10}, 200, id="plain"
        ),
        pytest.param(
            parse_openai,
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 40},
            },
            60 + 10 + 100,
            id="OpenAI's cached tokens are part of the prompt's",
        ),
        pytest.param(
            parse_openai,
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_cache_hit_tokens": 40,
                "prompt_cache_miss_tokens": 60,
            },
            60 + 10 + 100,
            id="so are DeepSeek's",
        ),
        pytest.param(
            anthropic,
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 40,
                "cache_creation_input_tokens": 20,
                "output_tokens": 10,
            },
            100 + 10 + 40 + 100,
            id="Anthropic's are beside the input's",
        ),
        pytest.param(
            parse_responses,
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 20},
                "output_tokens": 10,
                "output_tokens_details": {"reasoning_tokens": 4},
            },
            40 + 10 + 40 + 100,
            id="the Responses API's are part of the input's",
        ),
        pytest.param(
            parse_openai,
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "total_tokens": 110,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            200,
            id="OpenAI's reasoning is part of the completion",
        ),
        pytest.param(
            parse_openai,
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "total_tokens": 114,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            240,
            id="xAI's is beside it",
        ),
        pytest.param(
            parse_gemini,
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 40,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 4,
            },
            60 + 10 + 140,
            id="Gemini's thoughts are beside the candidates",
        ),
        pytest.param(
            parse_gemini,
            {"promptTokenCount": 60, "toolUsePromptTokenCount": 40, "candidatesTokenCount": 10},
            200,
            id="Gemini's tool results are beside the prompt",
        ),
    ],
)
def test_cost_as_each_vendor_counts(parse: Any, usage: dict[str, Any], cost: int) -> None:
    assert RATES.cost(parse(usage)) == cost * 1000


def test_caches_cost_as_other_input_where_no_price_is_given() -> None:
    rates = Rates(Rate(1.0), Rate(10.0))
    assert rates.cost(Usage(100, 10, cached_tokens=40, cache_write_tokens=20)) == 200_000


def test_a_vendor_that_has_read_more_from_its_cache_than_it_read_costs_nothing_less() -> None:
    assert RATES.cost(Usage(10, 0, cached_tokens=40)) == 10_000


def test_costs_are_rounded_once() -> None:
    rates = Rates(Rate(0.0375), Rate(0.15))
    assert rates.cost(Usage(1, 1)) == round(37.5 + 150)
    assert rates.cost(Usage(3, 0)) == round(112.5)


@pytest.mark.parametrize(("prompt", "price"), [(0, 1.0), (100, 1.0), (101, 2.0), (201, 3.0)])
def test_a_tier_is_for_all_tokens_of_a_longer_prompt(prompt: int, price: float) -> None:
    assert Rate(1.0, ((100, 2.0), (200, 3.0))).at(prompt) == price


def test_all_kinds_of_tokens_have_the_tier_of_the_prompt() -> None:
    rate = Rate(1.0, ((100, 2.0),))
    rates = Rates(rate, rate, rate, rate)
    usage = Usage(101, 10, cached_tokens=40, cache_write_tokens=20)
    assert rates.cost(usage) == (101 + 10) * 2000


# Which price it is --------------------------------------------------------------------------------


def distribution(price: PriceSettings | None = None, type: str = "remote::openai") -> Distribution:
    return Distribution(
        providers=[ProviderSettings(id="up", type=type)],
        models=[
            ModelSettings(
                id="m", provider="up", provider_model="gpt-4.1", aliases=["a"], price=price
            )
        ],
    )


def test_the_template_s_price_wins() -> None:
    prices = Prices(distribution(PriceSettings(input=1, output=10, cached_input=0.5)))
    assert prices.cost("m", "up", "gpt-4.1", Usage(100, 10, cached_tokens=100)) == 150_000


def test_each_target_has_a_price() -> None:
    served = Distribution(
        providers=[ProviderSettings(id=id, type="local::echo") for id in ("a", "b", "c")],
        models=[
            ModelSettings(id="cheap", provider="c", price=PriceSettings(input=1, output=1)),
            ModelSettings(
                id="m",
                price=PriceSettings(input=2, output=2),
                targets=[
                    TargetSettings(provider="a"),
                    TargetSettings(provider="b", price=PriceSettings(input=3, output=3)),
                    TargetSettings(model="cheap"),
                ],
            ),
        ],
    )
    prices = Prices(served)
    targets = (("a", "m"), ("b", "m"), ("c", "cheap"))
    costs = [prices.cost("m", provider, model, Usage(1, 0)) for provider, model in targets]
    assert costs == [2000, 3000, 1000]
    assert prices.cost("m", "c", "m", Usage(1, 0)) is None


async def test_what_one_s_own_server_is_like_is_looked_up_at_the_start_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first request would have the list read, and all others wait for it."""
    own = {"id": "own", "type": "remote::passthrough", "config": {"base_url": "http://h/v1"}}
    like = {"id": "m", "provider": "own", "facts": {"like": "openai/gpt-4.1"}}
    prices = Prices(Distribution.model_validate({"providers": [own], "models": [like]}))
    await prices.start()
    monkeypatch.setattr(prices_module, "known_rates", None)
    assert prices.cost("m", "own", "m", Usage(1_000_000, 0))


def test_a_price_of_nothing_is_a_price() -> None:
    prices = Prices(distribution(PriceSettings(input=0, output=0)))
    assert prices.cost("m", "up", "gpt-4.1", Usage(100, 10)) == 0


async def test_the_list_has_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = Prices(distribution())
    await prices.start()
    asked: list[str] = []
    monkeypatch.setattr(prices_module, "known_rates", lambda *names: asked.append(str(names)))
    cost = prices.cost("m", "up", "gpt-4.1", Usage(1_000_000, 0))
    assert cost is not None
    assert cost > 0
    assert asked == []  # it was looked up at the start


@pytest.mark.parametrize(
    ("type", "provider", "model"),
    [
        ("remote::openai", "up", "no-such-model"),
        ("remote::passthrough", "up", "gpt-4.1"),
        ("local::echo", "up", "gpt-4.1"),
        ("remote::openai", "another", "gpt-4.1"),
    ],
)
def test_what_is_not_known_has_no_price(type: str, provider: str, model: str) -> None:
    prices = Prices(distribution(type=type))
    assert prices.cost("x", provider, model, Usage(100, 10)) is None


@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("openai", "gpt-4.1"),
        ("anthropic", "claude-sonnet-4-5"),
        ("google", "gemini-2.5-pro"),
        ("deepseek", "deepseek-chat"),
        ("xai", "grok-4"),
        ("groq", "llama-3.3-70b-versatile"),
        ("openai", "text-embedding-3-small"),
    ],
)
@pytest.mark.parametrize(
    "usage",
    [
        Usage(1000, 100),
        Usage(1000, 100, cached_tokens=400),
        Usage(1000, 100, cached_tokens=400, cache_write_tokens=300),
        Usage(250_000, 1000, cached_tokens=1000),
    ],
)
def test_the_list_s_own_sums_are_the_same(vendor: str, model: str, usage: Usage) -> None:
    genai_prices = pytest.importorskip("genai_prices")
    rates = known_rates(vendor, model)
    assert rates is not None
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.prompt_tokens,
            cache_read_tokens=usage.cached_tokens or 0,
            cache_write_tokens=usage.cache_write_tokens or 0,
            output_tokens=usage.completion_tokens,
        ),
        model_ref=model,
        provider_id="x-ai" if vendor == "xai" else vendor,
    ).total_price
    assert rates.cost(usage) == pytest.approx(float(expected) * 1e9, abs=1)


def test_every_vendor_of_the_table_is_one_here_and_one_of_the_list() -> None:
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    assert set(VENDORS) <= set(provider_types())
    priced = {each.priced for each in VENDORS.values() if each.priced}
    assert priced <= {each.id for each in snapshot.providers}
    assert {each.listed for each in VENDORS.values()} <= set(listed_vendors())


def test_what_genai_prices_lacks_has_the_price_of_models_dev() -> None:
    listed = Price(input=1, output=2)
    assert known_rates("huggingface", "some/model", listed) == Rates(Rate(1), Rate(2))
    assert known_rates("huggingface", "some/model") is None


def test_a_vendor_s_own_batch_costs_less() -> None:
    usage = Usage(1_000_000, 1_000_000)
    provider = ProviderSettings(id="v", type="remote::openai")
    models = [
        ModelSettings(id="a", provider="v", price=PriceSettings(input=1, output=3)),
        ModelSettings(id="b", provider="v", price=PriceSettings(input=1, output=3, batch=0.25)),
    ]
    prices = Prices(Distribution(providers=[provider], models=models))
    assert prices.cost("a", "v", "a", usage) == 4_000_000_000
    assert prices.cost("a", "v", "a", usage, batch=True) == 2_000_000_000
    assert prices.cost("b", "v", "b", usage, batch=True) == 1_000_000_000


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("anthropic", "claude-haiku-4-5"), ("openai", "gpt-4o-mini"), ("google", "gemini-2.5-flash")],
)
def test_the_list_knows_what_batches_cost(vendor: str, model: str) -> None:
    usual, batch = known_rates(vendor, model), known_rates(vendor, model, batch=True)
    assert usual is not None
    assert batch is not None
    assert batch.input.base == pytest.approx(usual.input.base / 2)
    assert batch.output.base == pytest.approx(usual.output.base / 2)


def test_what_the_list_does_not_know_is_a_share() -> None:
    listed = Price(input=2, output=4, cached_input=1)
    batch = known_rates("mistral", "nobody-has-this", listed, batch=True)
    assert batch == Rates(Rate(1.0), Rate(2.0), Rate(0.5))
    assert known_rates("togetherai", "nobody-has-this", listed, batch=True) == known_rates(
        "togetherai", "nobody-has-this", listed
    )
