"""The process that speaks to Ray for a gateway, so that the gateway itself never imports it.

It is a driver of the cluster, and where it has started one on this machine that one ends with it.
It reads a command a line, and answers each with a line:

    {"do": "deploy", "config": {...}}    ->  {}
    {"do": "delete", "name": "..."}      ->  {}
    anything that failed                 ->  {"error": "..."}

The first line that it writes says where the cluster is: `{"dashboard": ..., "own": ...}`. It ends
with its standard input.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

LOCAL_ENVIRONMENT = {
    # Replicas listen themselves, and Serve says where. It is also what Serve's own threads and logs
    # cost less with.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # So long one that is to end takes requests from who has not heard of it yet.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""How a cluster is started that is this machine's alone; what is set already stays."""

OBJECT_STORE_BYTES = 100 * 1024 * 1024
"""Nothing of requests goes through Ray, so its store is as small as it may be."""


def main(address: str, keep: bool) -> None:
    """Connect to the cluster at `address`, or start one; then do what is asked.

    Args:
        address: empty for a cluster of its own.
        keep: whether one that it starts is to outlive it.
    """
    # What Ray and Serve print is for the log; the answers alone go where they are read.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(told: Mapping[str, Any]) -> None:
        print(json.dumps(told), file=answers, flush=True)

    try:
        cluster = _connect(address, keep)
    except Exception as error:
        answer({"error": f"{error}".strip() or type(error).__name__})
        return
    answer(cluster)
    for line in sys.stdin:
        try:
            _do(json.loads(line))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
        else:
            answer({})


def _connect(address: str, keep: bool) -> dict[str, Any]:
    own = not address
    if own:
        for name, value in LOCAL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    if own and keep:
        address = _lasting_cluster()
    import ray
    from ray import serve

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if address:
        context = ray.init(address=address, namespace="llama-compat", **quiet)
    else:
        context = ray.init(
            address="local",
            namespace="llama-compat",
            include_dashboard=True,
            object_store_memory=OBJECT_STORE_BYTES,
            **quiet,
        )
    if own:
        options = {"host": "127.0.0.1", "port": _free_port()}
        serve.start(proxy_location="HeadOnly", http_options=options)
    else:
        serve.start(http_options={"host": "0.0.0.0"})
    dashboard = context.dashboard_url or ""
    if dashboard and "://" not in dashboard:
        dashboard = f"http://{dashboard}"
    return {"dashboard": dashboard, "own": own and not keep}


def _lasting_cluster() -> str:
    """The address of the cluster on this machine; it is started if there is none."""
    import subprocess

    import ray

    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    except ConnectionError:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=0"]
        command += ["--node-ip-address=127.0.0.1", "--disable-usage-stats"]
        command += [f"--object-store-memory={OBJECT_STORE_BYTES}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    else:
        ray.shutdown()
    return "auto"


def _do(command: Mapping[str, Any]) -> None:
    from ray import serve

    if command["do"] == "delete":
        serve.delete(command["name"], _blocking=False)
        return
    from routing.replicas.replica import deployment

    config = command["config"]
    (options,) = config["deployments"]
    # As `serve deploy` does with what the file says over what the code says.
    application = deployment(config["args"]["template"]).options(**options).bind()
    target = serve.RunTarget(application, config["name"], config["route_prefix"])
    serve.run_many(
        [target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "keep")
