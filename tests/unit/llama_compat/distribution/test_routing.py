"""Models with several targets, their policies, and what can be wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ConfigDict

from llama_compat.distribution import ConfigModel, Distribution, FlatTarget, load_distribution
from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.routing import FallBackOn, RoutingSettings, routing_of
from llama_compat.error_classes import FALLS_BACK


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")


HEAD = """\
providers:
  - {id: a, type: local::test}
  - {id: b, type: local::test}
models:
"""
TWO = "targets: [{provider: a}, {provider: b}]"


def load(path: Path, text: str) -> Distribution:
    path.write_text(text)
    return load_distribution(str(path), lambda type: ConfigModel(Config))


def problems(path: Path, text: str) -> list[str]:
    with pytest.raises(TemplateError) as raised:
        load(path, text)
    return [
        f"{each.line - 4}: {each.path}: {each.message}"  # counted from the first model
        for each in raised.value.problems
        if each.line is not None
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.yaml"


def test_everything_that_a_model_can_say(path: Path) -> None:
    distribution = load(
        path,
        HEAD
        + """\
  - id: smart
    targets:
      - {provider: a, model: x, weight: 3}
      - {provider: b, priority: 1, context_length: 50}
    routing:
      balance: sticky
      sticky_on: [header:x-session-id, user, prompt_cache_key, first_message]
      retries: {same_target: 1, attempts: 4, budget: 0.2, backoff: {first: 0.25, most: 8}}
      fall_back_on: [rate_limit, overloaded]
      cooldown: {failures: 3, within: 30, seconds: 15}
      deadline: 60
      hedge_after: null
      mirror: {model: candidate, sample: 0.05}
      pin: true
  - {id: candidate, provider: b}
""",
    )
    smart, candidate = distribution.models
    assert distribution.targets_of(smart) == [
        FlatTarget("a", "x", None, 3.0, 0),
        FlatTarget("b", "smart", 50, 1.0, 1),
    ]
    assert distribution.targets_of(candidate) == [FlatTarget("b", "candidate")]
    assert smart.routing is not None
    assert smart.routing.mirror is not None
    assert smart.routing.fall_back_on == ("rate_limit", "overloaded")
    assert smart.routing.pin


def test_what_holds_without_a_word(path: Path) -> None:
    distribution = load(
        path,
        HEAD + "  - {id: m, targets: [{provider: a}, {provider: b}]}\n  - {id: n, provider: a}\n",
    )
    m, n = distribution.models
    assert routing_of(n, distribution.routing) is None  # passed on as it is
    rules = routing_of(m, distribution.routing)
    assert rules == RoutingSettings()
    assert (rules.balance, rules.deadline, rules.hedge_after, rules.mirror) == (
        "weighted",
        60,
        None,
        None,
    )
    assert (rules.retries.same_target, rules.retries.attempts, rules.retries.budget) == (1, 4, 0.2)
    assert (rules.cooldown.failures, rules.cooldown.within, rules.cooldown.seconds) == (3, 30, 15)
    assert not rules.pin


def test_a_model_says_what_differs_from_the_rest(path: Path) -> None:
    distribution = load(
        path,
        "routing: {balance: fastest, retries: {attempts: 9, backoff: {first: 1}}, deadline: 5}\n"
        + HEAD
        + """\
  - {id: one, provider: a}
  - id: m
    targets: [{provider: a}, {provider: b}]
    routing: {retries: {same_target: 2, backoff: {most: 4}}, deadline: null}
""",
    )
    one, m = distribution.models
    rules = routing_of(m, distribution.routing)
    assert rules is not None
    assert (rules.balance, rules.deadline) == ("fastest", None)
    retries = rules.retries
    assert (retries.attempts, retries.same_target) == (9, 2)
    assert (retries.backoff.first, retries.backoff.most) == (1, 4)
    assert routing_of(one, distribution.routing) == distribution.routing


def test_the_classes_that_may_be_listed_are_those_after_which_another_may_be_asked() -> None:
    assert set(get_args(FallBackOn)) == {kind.value for kind in FALLS_BACK}


# Targets that are other models --------------------------------------------------------------------


def test_a_target_that_is_another_model_gives_its_place_to_that_models_targets(path: Path) -> None:
    distribution = load(
        path,
        HEAD
        + """\
  - id: smart
    context_length: 70
    targets: [{model: vendors, weight: 4}, {provider: b, model: z}, {model: last, priority: 5}]
  - id: vendors-1
    aliases: [vendors]
    targets:
      - {provider: a, model: x, weight: 3, context_length: 90}
      - {provider: b, model: y, context_length: 60}
      - {provider: b, model: w, priority: 2}
  - {id: last, provider: a, provider_model: z}
""",
    )
    assert distribution.targets_of(distribution.models[0]) == [
        FlatTarget("a", "x", 70, 3.0, 0),
        FlatTarget("b", "y", 60, 1.0, 0),
        FlatTarget("b", "z", 70, 1.0, 0),
        FlatTarget("b", "w", 70, 4.0, 1),
        FlatTarget("a", "z", 70, 1.0, 2),
    ]


def test_another_models_weight_counts_beside_a_direct_target(path: Path) -> None:
    """As it was found: a canary of 5 % got everything, beside a model of two targets."""
    distribution = load(
        path,
        HEAD
        + """\
  - id: canary
    targets: [{model: stable, weight: 95}, {provider: b, model: new, weight: 5}]
  - id: stable
    targets: [{provider: a, model: x}, {provider: b, model: y, priority: 3}]
  - id: outer
    targets: [{model: canary, weight: 2}, {provider: a, model: z, weight: 2}]
""",
    )
    assert distribution.targets_of(distribution.models[0]) == [
        FlatTarget("a", "x", None, 95.0, 0),
        FlatTarget("b", "new", None, 5.0, 0),
        FlatTarget("b", "y", None, 95.0, 1),
    ]
    # Through two models as through one.
    assert distribution.targets_of(distribution.models[2]) == [
        FlatTarget("a", "x", None, 1.9, 0),
        FlatTarget("b", "new", None, 0.1, 0),
        FlatTarget("a", "z", None, 2.0, 0),
        FlatTarget("b", "y", None, 2.0, 1),
    ]


def test_one_that_can_be_reached_twice_counts_once(path: Path) -> None:
    distribution = load(
        path,
        HEAD
        + """\
  - id: m
    targets: [{provider: a, model: x}, {model: n, weight: 2}, {model: o, priority: 1}]
  - {id: n, provider: a, provider_model: x}
  - {id: o, provider: a, provider_model: x}
""",
    )
    assert distribution.targets_of(distribution.models[0]) == [FlatTarget("a", "x", None, 3.0, 0)]


# What can be wrong --------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[str, list[str]]] = {
    "neither": (
        "  - {id: m}\n",
        ["1: models[0].provider: required, but missing; or list 'targets'"],
    ),
    "no targets": (
        "  - {id: m, targets: []}\n",
        ["1: models[0].targets: expected at least one, got none"],
    ),
    "both": (
        f"  - id: m\n    provider: a\n    provider_model: x\n    {TWO}\n",
        [
            "2: models[0].provider: a model with 'targets' has no 'provider': put it into one of"
            " them",
            "3: models[0].provider_model: a model with 'targets' has no 'provider_model': put it"
            " into one of them",
        ],
    ),
    "an unknown provider": (
        "  - id: m\n    targets:\n      - {provider: aa}\n",
        ["3: models[0].targets[0].provider: no provider has the id 'aa'; did you mean 'a'?"],
    ),
    "an unknown model": (
        "  - {id: model-1, provider: a}\n  - id: m\n    targets:\n      - {model: model-}\n",
        ["4: models[1].targets[0].model: no model has the id 'model-'; did you mean 'model-1'?"],
    ),
    "a target of nothing": (
        "  - id: m\n    targets:\n      - {weight: 2}\n",
        [
            "3: models[0].targets[0]: a target has a 'provider', or is another 'model' of this"
            " template"
        ],
    ),
    "itself": (
        "  - {id: m, targets: [{model: m}]}\n",
        ["1: models[0].targets[0].model: goes round in a circle: m -> m"],
    ),
    "a circle": (
        "  - {id: m, targets: [{provider: a}, {model: n}]}\n"
        "  - {id: n, targets: [{model: o}]}\n"
        "  - {id: o, targets: [{model: m}]}\n",
        ["3: models[2].targets[0].model: goes round in a circle: m -> n -> o -> m"],
    ),
    "twice": (
        "  - id: m\n    targets:\n      - {provider: a}\n      - {provider: a, model: m}\n",
        ["4: models[0].targets[1]: is listed twice; give it the weight that it should have once"],
    ),
    "room that is another model's": (
        "  - {id: n, provider: a}\n"
        "  - {id: m, targets: [{model: n, context_length: 5}, {provider: b}]}\n",
        [
            "2: models[1].targets[0].context_length: 'n' is another model: its own targets say what"
            " they hold"
        ],
    ),
    "no weight": (
        "  - {id: m, targets: [{provider: a, weight: 0}]}\n",
        ["1: models[0].targets[0].weight: expected a number above 0, got 0"],
    ),
    "a mirror of nothing": (
        f"  - id: m\n    {TWO}\n    routing:\n      mirror: {{model: x}}\n",
        ["4: models[0].routing.mirror.model: no model has the id 'x'; the ids are 'm'"],
    ),
    "a mirror of itself": (
        f"  - id: m\n    aliases: [n]\n    {TWO}\n    routing:\n      mirror: {{model: n}}\n",
        ["5: models[0].routing.mirror.model: a model can't be its own mirror"],
    ),
    "what is sticky by nothing": (
        f"  - id: m\n    {TWO}\n    routing:\n      balance: sticky\n      sticky_on: []\n",
        ["5: models[0].routing.sticky_on: 'balance: sticky' needs at least one thing to go by"],
    ),
    "sticky on what there is not": (
        f"  - id: m\n    {TWO}\n    routing: {{balance: sticky, sticky_on: [session]}}\n",
        [
            "3: models[0].routing.sticky_on[0]: expected one of user, prompt_cache_key,"
            " first_message, or header:NAME"
        ],
    ),
    "what a target has without asking for it": (
        f"  - id: m\n    {TWO}\n    routing:\n      prefix: {{keep: 60}}\n",
        [
            "4: models[0].routing.prefix: counts with 'balance: prefix' alone, and it is"
            " 'weighted' here"
        ],
    ),
    "sticky without stickiness": (
        f"  - id: m\n    {TWO}\n    routing:\n      sticky_on: [user]\n",
        [
            "4: models[0].routing.sticky_on: counts with 'balance: sticky' alone, and it is"
            " 'weighted' here"
        ],
    ),
    "a client's mistake to fall back on": (
        f"  - id: m\n    {TWO}\n    routing: {{fall_back_on: [bad_request]}}\n",
        [
            "3: models[0].routing.fall_back_on[0]: expected 'context_length', 'content_filter',"
            " 'quota', 'rate_limit', 'authentication', 'overloaded', 'timeout', 'connection',"
            " 'not_found' or 'server_error', got 'bad_request'"
        ],
    ),
    "a first wait beyond the longest": (
        f"  - id: m\n    {TWO}\n    routing:\n      retries: {{backoff: {{first: 9}}}}\n",
        [
            "4: models[0].routing.retries.backoff: the first wait (9 s) is longer than the longest"
            " (8 s)"
        ],
    ),
    "retries without room": (
        f"  - id: m\n    {TWO}\n    routing:\n      retries: {{same_target: 4}}\n",
        [
            "4: models[0].routing.retries.same_target: 4 attempts in all leave no room for 4"
            " retries of the same target"
        ],
    ),
    "a hedge that never comes": (
        f"  - id: m\n    {TWO}\n    routing:\n      deadline: 5\n      hedge_after: 5\n",
        ["5: models[0].routing.hedge_after: comes no sooner than the deadline of 5 s"],
    ),
    "a hedge that may not be sent": (
        f"  - id: m\n    {TWO}\n    routing:\n      hedge_after: 5\n"
        "      retries: {attempts: 1, budget: 0}\n",
        [
            "4: models[0].routing.hedge_after: needs a second attempt, and 'retries.attempts' is 1",
            "4: models[0].routing.hedge_after: counts against 'retries.budget', and that is 0",
        ],
    ),
    "one target to choose from": (
        "  - id: m\n    provider: a\n    routing:\n      balance: fastest\n      hedge_after: 5\n",
        [
            "4: models[0].routing.balance: 'balance' needs a second target",
            "5: models[0].routing.hedge_after: 'hedge_after' needs a second target",
        ],
    ),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(path: Path, text: str, said: list[str]) -> None:
    assert problems(path, HEAD + text) == said


def test_what_counts_for_all_is_checked_once(path: Path) -> None:
    text = HEAD + f"  - {{id: m, {TWO}}}\nrouting:\n  sticky_on: [user]\n  mirror: {{model: x}}\n"
    assert problems(path, text) == [
        "4: routing.mirror.model: no model has the id 'x'; the ids are 'm'"
    ]
    assert problems(path, text.replace("{model: x}", "null")) == [
        "3: routing.sticky_on: counts with 'balance: sticky' alone, and it is 'weighted' here"
    ]


def test_many_circles_are_told_without_end(path: Path) -> None:
    """Every model leads to every other."""
    names = [f"m{number}" for number in range(9)]
    lines: list[Any] = [
        f"  - {{id: {name}, targets: [{', '.join(f'{{model: {other}}}' for other in names)}]}}"
        for name in names
    ]
    assert any("goes round in a circle" in each for each in problems(path, HEAD + "\n".join(lines)))
