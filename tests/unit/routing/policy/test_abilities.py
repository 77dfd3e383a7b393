from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llama_compat.catalog.facts import Facts
from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.exchange import Target
from llama_compat.fitting.fit import fit_of
from providers.base import ProviderConfig
from routing.policy.abilities import NOTHING
from routing.policy.group import Targets
from routing.policy.plan import Plan
from routing.policy.targets import LiveTarget
from routing.policy.wanted import Wanted
from tests.unit.calls import call_of
from tests.unit.routing.policy.models import policy, target

HI: list[Any] = [{"role": "user", "content": "hi"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def known(name: str, mode: Any = None, relays: bool = False, **facts: Any) -> LiveTarget:
    live = target(name)
    live.provider.config = ProviderConfig(unsupported=mode)
    if relays:
        live.provider.relays = frozenset({"chat"})
    return replace(live, target=Target("m", fit=fit_of(Facts(**facts))))


def lacking(*targets: LiveTarget, operation: Any = CHAT, **asked: Any) -> dict[str, str]:
    call = call_of({"messages": HI, **asked}, operation)
    return {**Targets(targets).abilities.lacking(call)}


@pytest.mark.parametrize(
    ("facts", "asked", "what"),
    [
        ({"tools": False, "output": 1}, {"tools": [{}]}, "tools"),
        (
            {"forced_tools": False},
            {"tools": [{}], "tool_choice": "required"},
            "forced_tools",
        ),
        ({"forced_tools": False}, {"tools": [{}], "tool_choice": "auto"}, ""),
        ({"json_object": False}, {"response_format": {"type": "json_object"}}, "json_object"),
        ({"json_object": False}, {"response_format": {"type": "json_schema"}}, ""),
        (
            {"structured_output": False},
            {"response_format": {"type": "json_schema"}},
            "json_schema",
        ),
        (
            {"structured_output": False, "tools": True},
            {"response_format": {"type": "json_schema"}},
            "",
        ),
        ({"refuses": ("logprobs",)}, {"logprobs": True}, "logprobs"),
        ({"refuses": ("logprobs",)}, {}, ""),
        ({"sampling": "default"}, {"temperature": 0.5}, ""),  # it is left out there
        (
            {"input": ("text",), "output": 1},
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "image",
        ),
        (
            {"input": ("text",), "output": 1},
            {"messages": [{"role": "user", "content": 'say {"type": "image_url"}'}]},
            "",
        ),
    ],
    ids=str,
)
def test_what_a_target_would_refuse(facts: Any, asked: Any, what: str) -> None:
    found = lacking(known("a", **facts), target("b"), **asked)
    assert found == ({"a/m": what} if what else {})


def test_a_wish_counts_where_it_would_be_refused() -> None:
    for target_of in (
        known("a", "refuse", sampling="default"),
        known("a", relays=True, sampling="default"),
    ):
        assert lacking(target_of, target("b"), temperature=0.5) == {"a/m": "temperature"}
        assert lacking(target_of, target("b"), temperature=1) == {}
    adapted = known("a", "adapt", relays=True, sampling="default")
    assert lacking(adapted, target("b"), temperature=0.5) == {}


def test_where_none_of_them_can_all_are_asked() -> None:
    both = known("a", refuses=("logprobs",)), known("b", refuses=("logprobs",))
    assert lacking(*both, logprobs=True) == {}
    mixed = known("a", refuses=("logprobs",)), known("b", refuses=("logprobs", "stop"))
    assert lacking(*mixed, logprobs=True, stop="x") == {"b/m": "stop"}


def test_where_nothing_is_known_nothing_is_looked_at() -> None:
    targets = Targets([target("a"), target("b")])
    unread = call_of({"messages": HI})
    assert targets.abilities.lacking(unread) is NOTHING
    assert lacking(known("a", tools=False, output=1), target("b"), operation=EMBEDDINGS) == {}


def test_messages_have_their_own_words() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
    said = [{"role": "user", "content": [image]}]
    text = known("a", input=("text",), output=1)
    found = lacking(text, target("b"), operation=MESSAGES, messages=said, max_tokens=5)
    assert found == {"a/m": "image"}


def test_the_plan_passes_over_them() -> None:
    targets = Targets([target("a"), target("b", priority=1)])
    plan = Plan(policy(), targets, Wanted(unable={"a/m": "image"}), 0.0)
    assert plan.first(0.0).target.id == "b/m"
    assert plan.passed_over == ["a/m (image)"]


def test_but_not_over_the_one_that_is_pinned_or_the_last() -> None:
    targets = Targets([target("a"), target("b")])
    for wanted in (
        Wanted(pinned="a/m", unable={"a/m": "image"}),
        Wanted(unable={"a/m": "image", "b/m": "image"}),
    ):
        plan = Plan(policy(), targets, wanted, 0.0)
        assert plan.first(0.0).target.id == "a/m"
        assert not plan.passed_over
