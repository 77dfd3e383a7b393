"""A target that is drained gets no request, whatever else there is, until it is opened again."""

from __future__ import annotations

import pytest

from llama_compat.distribution import ProviderSettings
from llama_compat.errors import APIError
from routing.policy.targets import States
from tests.unit.routing.policy.test_dispatch import Model, answers, hangs, is_down

PIN = [(b"x-llama-compat-target", b"a/m")]


async def refused(model: Model, headers: object = ()) -> APIError:
    with pytest.raises(APIError) as refusal:
        await model.reply(headers=headers)
    return refusal.value


@pytest.mark.parametrize("balance", ["weighted", "least_busy", "round_robin", "sticky", "prefix"])
async def test_the_others_get_its_requests(balance: str) -> None:
    model = Model(answers, answers, balance=balance)
    model.targets[0].state.cooldown.drain()
    for _ in range(5):
        await (await model.reply()).aclose()
    assert model.asked == ["b"] * 5
    model.targets[0].state.cooldown.open()
    await (await model.reply()).aclose()
    assert model.asked[-1] == "a"


async def test_it_is_no_fallback_and_no_hedge_either() -> None:
    model = Model(is_down, answers, answers)
    model.targets[1].state.cooldown.drain()
    await (await model.reply()).aclose()
    assert model.asked == ["a", "c"]
    hedged = Model(hangs, answers, hedge_after=0.01, deadline=0.2)
    hedged.targets[1].state.cooldown.drain()
    with pytest.raises(APIError):
        await hedged.reply(stream=True)
    assert "b" not in hedged.asked


async def test_where_all_are_drained_nobody_is_asked() -> None:
    model = Model(answers, answers)
    for each in model.targets:
        each.state.cooldown.drain()
    error = await refused(model)
    assert (error.status, error.code, error.was_sent) == (503, "targets_drained", False)
    assert "a/m, b/m" in error.message
    assert model.asked == []
    # One that cools is still better than none, as it was before.
    model.targets[1].state.cooldown.open()
    model.targets[1].state.cooldown.learn(1e12)
    await (await model.reply()).aclose()
    assert model.asked == ["b"]


async def test_a_client_that_names_it_is_refused() -> None:
    model = Model(answers, answers, pin=True)
    model.targets[0].state.cooldown.drain()
    assert (await refused(model, PIN)).code == "targets_drained"
    assert model.asked == []


async def test_the_only_target_of_a_model_without_policies_can_be_drained() -> None:
    model = Model(answers)
    model.policy = None  # type: ignore[assignment]
    model.targets[0].state.cooldown.drain()
    assert (await refused(model)).code == "targets_drained"
    model.targets[0].state.cooldown.open()
    await (await model.reply()).aclose()
    assert model.asked == ["a"]


async def test_what_runs_goes_on_and_says_nothing_of_it() -> None:
    model = Model(answers)
    reply = await model.reply()
    model.targets[0].state.cooldown.drain()
    await reply.aclose()
    assert model.targets[0].state.cooldown.is_drained
    assert model.outcomes == ["answered"]


def test_a_reload_keeps_what_is_drained() -> None:
    settings = [
        ProviderSettings(id=name, type="local::echo", config=None)  # type: ignore[arg-type]
        for name in "ab"
    ]
    before = States(settings)
    for name in "ab":
        before.provider(name).target("m").cooldown.drain()
    before.provider("b").target("other")
    changed = settings[1].model_copy(update={"max_concurrent": 3})
    after = States([settings[0], changed], before)
    assert [each.id for each in after if each.cooldown.is_drained] == ["a/m", "b/m"]
    assert after.provider("b") is not before.provider("b")
    # One that is not there any more is forgotten with its provider.
    assert list(States([], before)) == []
