"""Replicas written down for those who deploy them themselves: the config file of `serve deploy`,
and KubeRay's RayService around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from llama_compat import __version__
from routing.replicas.application import ServeApplication

ENVIRONMENT: Mapping[str, str] = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
}
"""What Ray has to be started with for gateways to ask replicas directly. Without it requests go by
Serve's proxies, which works too and takes longer."""

WORKERS = "engines"


def serve_config(applications: Sequence[ServeApplication]) -> str:
    """The config file of `serve deploy` and `serve run` with these applications, as
    `ray.serve.schema.ServeDeploySchema` has it."""
    head = (
        "# For `serve deploy FILE`, written by `llama-compat deploy`.\n"
        "# Start Ray with these variables on every machine, so that replicas are asked directly:\n"
        + "".join(f"#   {name}={value}\n" for name, value in ENVIRONMENT.items())
    )
    return head + _yaml(_document(applications))


def ray_service(applications: Sequence[ServeApplication], image: str) -> str:
    """A RayService for KubeRay (https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/
    rayservice-quick-start.html), with a group of workers as large as the replicas need.

    Args:
        applications: what it runs.
        image: a container with Ray and `llama-compat[ray]`, and what the engines need.
    """
    replicas = [each.replicas for each in applications]
    cpus, gpus = (max((getattr(each, kind) for each in replicas), default=0) for kind in KINDS)
    resources: dict[str, Any] = {"cpu": max(1, round(cpus)), "memory": "8Gi"}
    if gpus:
        resources["nvidia.com/gpu"] = max(1, round(gpus))
    least, most = sum(each.min for each in replicas), sum(each.most for each in replicas)
    worker = {
        "groupName": WORKERS,
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": most,
        "rayStartParams": {},
        "template": _pod("ray-worker", image, resources),
    }
    head = {
        "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
        "template": _pod("ray-head", image, {"cpu": 2, "memory": "4Gi"}),
    }
    return _yaml(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": {"name": "llama-compat"},
            "spec": {
                "serveConfigV2": _yaml(_document(applications)),
                "rayClusterConfig": {
                    "enableInTreeAutoscaling": most > least,
                    "headGroupSpec": head,
                    "workerGroupSpecs": [worker],
                },
            },
        }
    )


KINDS = ("cpus", "gpus")

DEFAULT_IMAGE = f"llama-compat-ray:{__version__}"


def _document(applications: Sequence[ServeApplication]) -> dict[str, Any]:
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8000},
        "applications": [each.config for each in applications],
    }


def _pod(name: str, image: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    environment = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    container = {
        "name": name,
        "image": image,
        "env": environment,
        "resources": {"limits": dict(resources), "requests": dict(resources)},
    }
    return {"spec": {"containers": [container]}}


class _Dumper(yaml.SafeDumper):
    """Writes the same thing twice rather than once with a reference, and long texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: Any) -> str:
    written: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return written
