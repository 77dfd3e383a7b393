"""A Ray cluster of one machine, for tests: started, told from others, and ended."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None,
    reason="Ray is not installed: pip install 'llama-compat[ray]'; not every system has a wheel",
)

_HEAD = """
import json, sys
import ray
from ray import serve
context = ray.init(
    address="local", num_cpus=16, include_dashboard=True, log_to_driver=False,
    object_store_memory=80 * 1024 * 1024, _temp_dir=sys.argv[1],
)
serve.start(proxy_location="HeadOnly", http_options={"host": "0.0.0.0", "port": int(sys.argv[2])})
print(json.dumps([context.address_info["gcs_address"], context.dashboard_url]), flush=True)
sys.stdin.read()
"""


class RayCluster:
    """One cluster, with Serve on it, and 16 cores as far as Ray knows.

    Args:
        environment: of its processes, besides what all have; `{folder}` is its own.

    Attributes:
        env: what a process needs to know to use it.
        folder: where its processes keep what they have.
    """

    def __init__(self, environment: Mapping[str, str] = {}) -> None:
        from tests.integration.server_process import free_port

        # Ray's sockets are in it, whose paths may not be long.
        self.folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        self.port = free_port()
        ports = 20000 + 100 * (os.getpid() % 100)
        self.token = secrets.token_hex(32)
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(ports),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(ports + 99),
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "3",
            **({} if environment else {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}),
            **{name: value.format(folder=self.folder) for name, value in environment.items()},
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HEAD, self.folder, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.env},
            start_new_session=True,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the cluster did not start"
        address, self.dashboard = json.loads(line)
        self.env["RAY_ADDRESS"] = address

    def applications(self) -> Mapping[str, Any]:
        """What Serve says of its applications."""
        applications: Mapping[str, Any] = self._ask("/api/serve/applications/")["applications"]
        return applications

    def _ask(self, path: str) -> Mapping[str, Any]:
        asked = urllib.request.Request(
            f"http://{self.dashboard}{path}", headers={"authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:
            told: Mapping[str, Any] = json.load(answer)
        return told

    def replicas(self, name: str) -> list[Mapping[str, Any]]:
        """The replicas of one application that run."""
        deployments = self.applications()[name]["deployments"].values()
        found = [replica for each in deployments for replica in each["replicas"]]
        return [each for each in found if each["state"] == "RUNNING"]

    def nodes(self) -> list[str]:
        """The ids of the machines on which it runs."""
        told = self._ask("/nodes?view=summary")["data"]["summary"]
        return [each["raylet"]["nodeId"] for each in told if each["raylet"]["state"] == "ALIVE"]

    def head(self) -> str:
        """The id of the first of them."""
        told = self._ask("/api/serve/applications/")
        node: str = told["controller_info"]["node_id"]
        return node

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def ray_cluster(environment: Mapping[str, str] = {}) -> Iterator[RayCluster]:
    """A cluster for as long as the context lasts."""
    cluster = RayCluster(environment)
    try:
        yield cluster
    finally:
        cluster.stop()
