"""Several workers as one server: however one of them or their parent ends, nothing stays behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server_process import ServerProcess, write_template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

ECHO: dict[str, Any] = {
    "server": {"shutdown_grace_seconds": 1},
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "echo", "provider": "echo"}],
}

WAIT_SECONDS = 60


@contextmanager
def workers(path: Path, count: int = 3, **options: Any) -> Iterator[ServerProcess]:
    """A server with workers, which may still be starting; killed at the end, all of it."""
    template = write_template(path / "echo.yaml", **ECHO)
    server = ServerProcess(template, options=["--workers", str(count)], **options)
    try:
        yield server
    finally:
        for pid in processes(server):
            os.kill(pid, signal.SIGKILL)
        server.kill()


def processes(server: ServerProcess) -> list[int]:
    """The server's processes that run, in the order of their start."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        state, session = status[0], int(status[3])
        if session == server.process.pid and state != "Z":
            found.append((int(status[19]), int(folder.name)))
    return [pid for _, pid in sorted(found)]


def worker_pids(server: ServerProcess) -> list[int]:
    """Those that are workers: forked from the process that `multiprocessing` keeps for that."""
    commands = {pid: _command(pid) for pid in processes(server)}
    return [pid for pid in commands if b"forkserver" in commands.get(_parent(pid), b"")]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_for(server: ServerProcess, what: str, condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time. The log:\n{server.log}"
        time.sleep(0.005)


def wait_until_serving(server: ServerProcess, count: int) -> None:
    wait_for(server, "serving", lambda: server.log.count("serving at") >= count)


def assert_all_gone(server: ServerProcess) -> None:
    wait_for(server, f"all gone, but for {processes(server)}", lambda: not processes(server))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("there", [2, 3, 4, 5])
def test_a_signal_while_they_start_ends_all(
    tmp_path: Path, number: signal.Signals, there: int
) -> None:
    with workers(tmp_path) as server:
        wait_for(server, f"{there} processes", lambda: len(processes(server)) >= there)
        server.send_signal(number)
        assert server.wait() == 0
        assert_all_gone(server)
        assert "Traceback" not in server.log


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signal_in_the_moment_of_a_start_ends_all(
    tmp_path: Path, when: str, which: int, number: str
) -> None:
    told = {"LLAMA_COMPAT_TESTS_SIGNALLED": f"{when} {which} {number}"}
    with workers(tmp_path, env=told, first="tests.integration.signalled") as server:
        assert server.wait() == 0
        assert_all_gone(server)
        assert "Traceback" not in server.log


def test_signals_one_after_another_are_one(tmp_path: Path) -> None:
    with workers(tmp_path) as server:
        wait_for(server, "the first worker", lambda: worker_pids(server))
        for number in [signal.SIGTERM, signal.SIGINT] * 3:
            server.send_signal(number)
            time.sleep(0.02)
        assert server.wait() == 0
        assert_all_gone(server)
        assert "Traceback" not in server.log


@pytest.mark.parametrize("serving", [False, True])
def test_they_end_with_their_parent(tmp_path: Path, serving: bool) -> None:
    with workers(tmp_path, count=2) as server:
        if serving:
            wait_until_serving(server, 2)
        else:
            wait_for(server, "a worker", lambda: worker_pids(server))
        server.process.kill()
        server.process.wait()
        assert_all_gone(server)
        with workers(tmp_path, count=2, port=server.port) as another:
            another.wait_until_ready()
            assert another.stop() == 0


def test_one_that_is_killed_as_it_starts_is_replaced(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_for(server, "two workers", lambda: len(worker_pids(server)) == 2)
        healthy, killed = worker_pids(server)
        os.kill(killed, signal.SIGKILL)
        wait_until_serving(server, 2)
        assert healthy in worker_pids(server)
        assert len(worker_pids(server)) == 2
        assert f"worker {killed} died (-9); another starts in" in server.log
        assert server.stop() == 0
        assert_all_gone(server)


def test_a_signal_while_a_replacement_is_awaited_ends_all(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_until_serving(server, 2)
        for pid in worker_pids(server):
            os.kill(pid, signal.SIGKILL)
        server.wait_for_log("another starts in")
        assert server.stop() == 0
        assert_all_gone(server)


def test_one_that_hangs_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_until_serving(server, 2)
        hanging = worker_pids(server)[0]
        os.kill(hanging, signal.SIGSTOP)
        assert server.stop() == 0
        assert f"worker {hanging} does not end; killing it" in server.log
        assert_all_gone(server)


def test_what_no_worker_can_start_is_said_and_ends_all(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "missing.yaml",
        providers=[{"id": "local", "type": "local::torch"}],
        models=[
            {"id": "nobody", "provider": "local", "provider_model": str(tmp_path / "no-model")}
        ],
    )
    server = ServerProcess(template, options=["--workers", "2"])
    try:
        assert server.wait(WAIT_SECONDS) == 1
        assert_all_gone(server)
    finally:
        server.kill()
    assert "no-model" in server.log
    assert "Traceback" not in server.log


def test_a_replacement_that_cannot_start_leaves_the_others_serving(tmp_path: Path) -> None:
    with workers(tmp_path, count=2) as server:
        wait_until_serving(server, 2)
        write_template(tmp_path / "echo.yaml", providers="none")
        killed, healthy = worker_pids(server)
        os.kill(killed, signal.SIGKILL)
        server.wait_for_log("died (3)")
        assert healthy in worker_pids(server)
        assert server.health()["status"] == "ok"
        assert server.stop() == 0
        assert_all_gone(server)


def test_limits_that_each_worker_counts_for_itself_are_said_to_be_so(tmp_path: Path) -> None:
    limited = {**ECHO, "models": [{**ECHO["models"][0], "limits": {"requests_per_minute": 3}}]}
    template = write_template(tmp_path / "limited.yaml", **limited)
    server = ServerProcess(template, options=["--workers", "2"])
    try:
        server.wait_for_log("limits are counted in memory, by each of the 2 workers for itself")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
