"""Replicas as a runtime has them, where there is no cluster."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llama_compat.distribution import ScaleSettings
from providers import requirements
from providers.base import ProviderModel, ProviderStartError
from routing.replicas import driver
from routing.replicas.application import applications_of
from routing.replicas.cluster import ReplicaCluster
from tests.ray_cluster import needs_ray
from tests.unit.routing.replicas.test_application import settings

ROOT = Path(__file__).parents[4]


async def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_is_there", lambda module: False)
    with pytest.raises(ProviderStartError, match=r"pip install 'llama-compat\[ray\]'"):
        await ReplicaCluster(ScaleSettings()).start()


@needs_ray
@pytest.mark.engine
async def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CONNECT_SECONDS", 3.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    cluster = ReplicaCluster(ScaleSettings(ray=address))
    with pytest.raises(ProviderStartError, match=f"no cluster answers at {address}"):
        await cluster.start()
    await cluster.stop()


def test_what_nobody_has_heard_of_is_nowhere() -> None:
    (application,) = applications_of(settings({}), [ProviderModel("a")]).values()
    assert ReplicaCluster(ScaleSettings()).replicas(application).places == ()


@pytest.mark.program
def test_a_template_without_replicas_imports_nothing_for_them() -> None:
    script = (
        "import sys, routing.process.server, routing.app, routing.cli.commands\n"
        "print([name for name in sys.modules"
        " if name.split('.')[0] == 'ray' or name.startswith('routing.replicas')"
        " or name.startswith('providers.remote.replicas')])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
