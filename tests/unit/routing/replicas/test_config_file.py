"""What `llama-compat deploy` writes."""

from __future__ import annotations

import pytest
import yaml

from providers.base import ProviderModel
from routing.replicas.application import applications_of
from routing.replicas.config_file import ENVIRONMENT, ray_service, serve_config
from tests.ray_cluster import needs_ray
from tests.unit.routing.replicas.test_application import settings

APPLICATIONS = [
    *applications_of(
        settings({"min": 1, "max": 3, "gpus": 1, "cpus": 2}), [ProviderModel("a")]
    ).values(),
    *applications_of(settings({"min": 2}), [ProviderModel("b")]).values(),
]


def test_the_config_file_has_every_application() -> None:
    written = serve_config(APPLICATIONS)
    told = yaml.safe_load(written)
    assert told["applications"] == [each.config for each in APPLICATIONS]
    assert "&" not in written, "a file for people has no references"
    for name, value in ENVIRONMENT.items():
        assert f"#   {name}={value}\n" in written


@needs_ray
@pytest.mark.engine
def test_serve_takes_the_config_file() -> None:
    from ray.serve.schema import ServeDeploySchema

    told = ServeDeploySchema.model_validate(yaml.safe_load(serve_config(APPLICATIONS)))
    assert [each.name for each in told.applications] == [each.name for each in APPLICATIONS]
    (deployment,) = told.applications[0].deployments
    assert deployment.is_autoscaling_configured()


def test_a_ray_service_has_room_for_all_replicas() -> None:
    told = yaml.safe_load(ray_service(APPLICATIONS, "image:1"))
    assert (told["apiVersion"], told["kind"]) == ("ray.io/v1", "RayService")
    spec = told["spec"]
    assert yaml.safe_load(spec["serveConfigV2"])["applications"][1] == APPLICATIONS[1].config
    (workers,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (3, 5)
    (container,) = workers["template"]["spec"]["containers"]
    assert container["image"] == "image:1"
    assert container["resources"]["limits"] == {"cpu": 2, "memory": "8Gi", "nvidia.com/gpu": 1}
    assert {"name": "RAY_SERVE_THROUGHPUT_OPTIMIZED", "value": "1"} in container["env"]
