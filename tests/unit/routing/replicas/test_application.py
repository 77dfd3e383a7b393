"""What Ray Serve is told of a model."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.distribution import Distribution, ProviderSettings
from providers.base import ProviderModel
from providers.registry import config_model
from routing.replicas.application import DEPLOYMENT, VERSION, applications_of
from routing.replicas.replica import engine


def settings(replicas: dict[str, Any], **config: Any) -> ProviderSettings:
    return ProviderSettings.model_validate(
        {
            "id": "echo",
            "type": "local::echo",
            "config": config_model("local::echo").validate(config),
            "replicas": replicas,
        }
    )


def test_each_model_is_an_application_of_its_own() -> None:
    models = [ProviderModel("a"), ProviderModel("B/c", 100)]
    made = applications_of(settings({}), models)
    assert list(made) == ["a", "B/c"]
    assert made["a"].name == "llama-compat-echo-a"
    assert made["a"].route_prefix == "/llama-compat-echo-a"
    # Two that would be alike without what is no letter are not.
    other = applications_of(settings({}), [ProviderModel("b-c")])["b-c"]
    assert made["B/c"].name.startswith("llama-compat-echo-b-c-")
    assert made["B/c"].name != other.name == "llama-compat-echo-b-c"


def test_no_two_models_share_an_application() -> None:
    given = settings({})
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b/c"), ("a", "b_c"), ("a", "B-c"), ("A", "b-c")]
    names = [
        applications_of(given.model_copy(update={"id": provider}), [ProviderModel(model)])[
            model
        ].name
        for provider, model in pairs
    ]
    assert len(set(names)) == len(names)
    assert names[0] == "llama-compat-a-b-c"


def test_a_replica_serves_the_model_under_any_name() -> None:
    (made,) = applications_of(
        settings({}, delay_ms=3), [ProviderModel("a", context_length=9)]
    ).values()
    assert made.template == {
        "version": 1,
        "providers": [{"id": "echo", "type": "local::echo", "config": {"delay_ms": 3.0}}],
        "models": [{"id": "a", "provider": "echo", "aliases": ["*"], "context_length": 9}],
    }
    assert engine(made.template)


def test_a_fixed_number_is_not_scaled() -> None:
    (made,) = applications_of(settings({"min": 2, "gpus": 0.5}), [ProviderModel("a")]).values()
    told = made.deployment
    assert told["name"] == DEPLOYMENT
    assert told["num_replicas"] == 2
    assert "autoscaling_config" not in told
    assert (told["ray_actor_options"]["num_cpus"], told["ray_actor_options"]["num_gpus"]) == (
        1,
        0.5,
    )


def test_between_min_and_max_serve_scales() -> None:
    wanted = {"min": 0, "max": 8, "target_ongoing_requests": 4, "idle_seconds": 30}
    (made,) = applications_of(settings(wanted), [ProviderModel("a")]).values()
    told = made.deployment
    assert "num_replicas" not in told
    assert told["autoscaling_config"] == {
        "min_replicas": 0,
        "max_replicas": 8,
        "target_ongoing_requests": 4,
        "upscale_delay_s": 5,
        "downscale_delay_s": 30,
        "look_back_period_s": 30,
    }
    # With no more than `min`, none is one that is asked for when somebody asks.
    (one,) = applications_of(settings({"min": 0}), [ProviderModel("a")]).values()
    assert one.deployment["autoscaling_config"]["max_replicas"] == 1


@pytest.mark.parametrize(("idle", "back"), [(1, 10.5), (20, 20), (600, 30)])
def test_serve_looks_back_no_longer_than_a_replica_may_be_idle(idle: float, back: float) -> None:
    wanted = settings({"min": 0, "idle_seconds": idle})
    (made,) = applications_of(wanted, [ProviderModel("a")]).values()
    assert made.deployment["autoscaling_config"]["look_back_period_s"] == back


def test_its_version_is_of_what_it_serves_and_how() -> None:
    models = [ProviderModel("a")]
    (one,) = applications_of(settings({}, delay_ms=3), models).values()
    (same,) = applications_of(settings({"min": 1}, delay_ms=3), models).values()
    (other,) = applications_of(settings({}, delay_ms=4), models).values()
    (more,) = applications_of(settings({"min": 2}, delay_ms=3), models).values()
    assert one.version == same.version
    assert len({one.version, other.version, more.version}) == 3
    variables = one.deployment["ray_actor_options"]["runtime_env"]["env_vars"]
    assert variables == {VERSION: one.version}


def test_a_template_without_replicas_has_none() -> None:
    plain = Distribution.model_validate(
        {"providers": [settings({}).model_copy(update={"replicas": None})]}
    )
    assert not plain.has_replicas
