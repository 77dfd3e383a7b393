"""What of a Ray cluster can die while requests run: its head, HAProxy in front of the replicas, a
machine that is drained; and a cluster that belongs to the gateway alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_ray import MODEL, chat, echo, eventually, targets
from tests.ray_cluster import needs_ray, ray_cluster

pytestmark = [
    needs_ray,
    pytest.mark.server,
    pytest.mark.engine,
    pytest.mark.lengthy,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]


def template(folder: Path, **replicas: Any) -> Path:
    return write_template(folder / "t.yaml", providers=[echo(**replicas)], models=[MODEL])


def asked(server: ServerProcess, text: str = "a b c") -> wire.Reply:
    return wire.request("POST", f"{server.url}/v1/chat/completions", chat(text, stream=True))


def processes(name: str, folder: str) -> list[int]:
    """The processes with `name` and `folder` in their command lines."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if name in line and folder in line:
            found.append(int(each.parent.name))
    return found


@contextmanager
def clients(server: ServerProcess, number: int = 3) -> Iterator[list[tuple[int, bool]]]:
    """Ask all the time; what they were told: the status, and whether all of the reply came."""
    told: list[tuple[int, bool]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            reply = asked(server, "word " * 40)
            told.append((reply.status, reply.body.endswith(b"data: [DONE]\n\n")))

    threads = [threading.Thread(target=ask) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_killed_head_is_missed_by_no_request(tmp_path: Path) -> None:
    with ray_cluster() as cluster, running(template(tmp_path), env=cluster.env) as server:
        assert asked(server).status == 200
        (control,) = processes("gcs_server", cluster.folder)
        with clients(server) as told:
            os.kill(control, signal.SIGKILL)
            eventually(
                lambda: "warnings" in server.health(), "nothing is said of a cluster that is gone"
            )
            so_far = len(told)
            eventually(lambda: len(told) > so_far + 10, "nobody is answered any more")
        assert set(told) == {(200, True)}
        assert "Ray can't be asked where replicas are" in server.log


def test_behind_haproxy_requests_are_answered_and_its_end_is_an_error(tmp_path: Path) -> None:
    environment = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0"}
    for name in ("CONFIG_FILE_LOC", "SOCKET_PATH", "SERVER_STATE_BASE", "SERVER_STATE_FILE"):
        environment[f"RAY_SERVE_HAPROXY_{name}"] = f"{{folder}}/haproxy/{name.lower()}"
    with (
        ray_cluster(environment) as cluster,
        running(template(tmp_path), env=cluster.env) as server,
    ):
        # One place: Serve tells of its proxy, which tells replicas apart by itself.
        (target,) = targets(server)
        assert target["place"].endswith(f":{cluster.port}")
        eventually(lambda: asked(server).status == 200, "HAProxy does not answer")
        assert asked(server).body.endswith(b"data: [DONE]\n\n")
        for process in processes("haproxy", cluster.folder):
            os.kill(process, signal.SIGKILL)
        reply = asked(server)
        assert reply.status in (200, 502), reply.body
        if reply.status == 502:
            assert reply.error()["code"].startswith("upstream_")
        eventually(lambda: asked(server).status == 200, "Serve does not start HAProxy again")


def test_a_machine_that_is_drained_finishes_what_it_has(tmp_path: Path) -> None:
    with ray_cluster() as cluster:
        other = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                *(f"--address={cluster.env['RAY_ADDRESS']}", "--num-cpus=16"),
                *("--resources", json.dumps({"other": 1})),
                *("--object-store-memory", str(80 * 1024 * 1024)),
            ],
            env={**os.environ, **cluster.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            eventually(lambda: len(cluster.nodes()) == 2, "the second machine does not come")
            with running(template(tmp_path, cpus=9), env=cluster.env) as server:
                # 9 of 16 cores each: one on each machine.
                replicas = cluster.replicas("llama-compat-echo-inner")
                assert len({each["node_id"] for each in replicas}) == 2
                drained = next(
                    each["node_id"] for each in replicas if each["node_id"] != cluster.head()
                )
                with clients(server) as told:
                    subprocess.run(
                        [
                            *(sys.executable, "-m", "ray.scripts.scripts", "drain-node"),
                            *("--address", cluster.env["RAY_ADDRESS"], "--node-id", drained),
                            *("--reason", "DRAIN_NODE_REASON_PREEMPTION"),
                            *("--reason-message", "a test", "--deadline-remaining-seconds", "60"),
                        ],
                        env={**os.environ, **cluster.env},
                        check=True,
                        stdout=subprocess.DEVNULL,
                    )
                    eventually(lambda: len(targets(server)) == 1, "it is asked on and on")
                    so_far = len(told)
                    eventually(lambda: len(told) > so_far + 5, "nobody is answered any more")
                assert set(told) == {(200, True)}
        finally:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()


def test_a_cluster_of_its_own_ends_with_the_gateway(tmp_path: Path) -> None:
    # Not in `tmp_path`: the paths of sockets may not be long.
    with (
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(template(tmp_path), env={"RAY_ADDRESS": "", "RAY_TMPDIR": folder}) as server,
    ):
        assert asked(server).status == 200
        assert all(each["place"].startswith("127.0.0.1:") for each in targets(server))
        (driver,) = [
            int(each)
            for each in Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
            .read_text()
            .split()
            if "routing.replicas.deployer" in Path(f"/proc/{each}/cmdline").read_text()
        ]
        ports = [int(each["place"].rpartition(":")[2]) for each in targets(server)]
        assert server.stop() == 0
        assert not Path(f"/proc/{driver}").exists()
        eventually(lambda: not any(map(_listens, ports)), "its replicas are left")


def _listens(port: int) -> bool:
    return any(
        line.split()[3] == "0A" and int(line.split()[1].rpartition(":")[2], 16) == port
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
    )
