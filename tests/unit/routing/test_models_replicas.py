"""Replicas as targets: they come and go while requests run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llama_compat.distribution import ModelSettings
from llama_compat.distribution.routing import RoutingSettings
from providers.base import Provider, ProviderConfig
from routing.models import ModelTable
from routing.policy.balance import LeastBusy
from routing.policy.prefix.affinity import PrefixAffinity
from routing.policy.targets import States


class Moving(Provider):
    """A provider with replicas, wherever a test wants them."""

    def __init__(self) -> None:
        super().__init__("p", ProviderConfig(), ())
        self.there: Sequence[str] = ()
        self.told: list[Callable[[], None]] = []

    def places(self, model: str) -> Sequence[str]:
        return self.there

    def when_moved(self, tell: Callable[[], None]) -> Callable[[], None]:
        self.told.append(tell)
        return lambda: self.told.remove(tell)

    def move(self, *places: str) -> None:
        self.there = places
        for tell in self.told:
            tell()


ONE, TWO = "http://10.0.0.1:30000/a", "http://10.0.0.2:30000/a"


def table(
    provider: Provider, states: States | None = None, routing: RoutingSettings | None = None
) -> ModelTable:
    model = ModelSettings(id="m", provider="p", provider_model="x")
    return ModelTable([model], {"p": provider}, routing, states)


def test_replicas_are_targets_of_their_own_as_they_come_and_go() -> None:
    provider, states = Moving(), States()
    models = table(provider, states)
    leave = models.follow()
    route = models.look_up("m")
    assert [(each.id, each.target.place) for each in route.targets] == [("p/x", "")]
    provider.move(ONE, TWO)
    assert [each.id for each in route.targets] == ["p/x@10.0.0.1:30000", "p/x@10.0.0.2:30000"]
    assert [each.target.place for each in route.targets] == [ONE, TWO]
    assert [each.state.name for each in route.targets] == ["p/x", "p/x"]
    assert [each.place for each in states.snapshots(0)] == ["10.0.0.1:30000", "10.0.0.2:30000"]
    kept = route.targets[1].state
    kept.in_flight = 3
    provider.move(TWO)
    assert [each.state for each in route.targets] == [kept]
    assert [each.id for each in states.snapshots(0)] == ["p/x@10.0.0.2:30000"]
    provider.move()
    assert [each.id for each in states.snapshots(0)] == ["p/x"]
    leave()
    assert provider.told == []


def test_replicas_have_the_share_of_their_target_together() -> None:
    provider = Moving()
    provider.there = (ONE, TWO)
    assert [each.weight for each in table(provider).look_up("m").targets] == [0.5, 0.5]


def test_the_less_busy_replica_is_asked_unless_the_template_says_otherwise() -> None:
    policy = table(Moving()).look_up("m").policy
    assert policy is not None
    assert type(policy.balancer) is LeastBusy
    asked = table(Moving(), routing=RoutingSettings(balance="prefix")).look_up("m").policy
    assert asked is not None
    assert isinstance(asked.balancer, PrefixAffinity)


def test_a_model_without_replicas_has_no_policy_for_them() -> None:
    assert table(Provider("p", ProviderConfig(), ())).look_up("m").policy is None
