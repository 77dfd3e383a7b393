"""What is forked from a process that has imported it all is as what starts by itself."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from llama_compat import __version__
from tests.conftest import ROOT
from tests.forked import Forked
from tests.integration import wire
from tests.integration.server_process import COMMAND, ServerProcess, write_template

pytestmark = [
    pytest.mark.ours,
    pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere"),
]


def forked(output: Path, *command: str, env: Mapping[str, str] | None = None) -> Forked:
    with output.open("w") as file:
        whole = {**os.environ, **(env or {})}
        return Forked([COMMAND, *command], env=whole, output=file.fileno())


def test_it_says_what_the_command_says(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for command in (["--version"], ["check", "missing.yaml"], ["--nonsense"]):
        process = forked(output, *command)
        alone = subprocess.run([COMMAND, *command], capture_output=True, text=True)
        assert process.wait(60) == alone.returncode
        assert output.read_text().split() == (alone.stdout + alone.stderr).split()
    assert __version__ in alone.stdout or alone.returncode


def test_what_nobody_waited_for_is_said_at_the_end(tmp_path: Path) -> None:
    with (output := tmp_path / "output").open("w") as file:
        first = "tests.integration.unretrieved"
        command = [COMMAND, "--version"]
        process = Forked(command, env={**os.environ}, output=file.fileno(), first=first)
        assert process.wait(60) == 0
    assert "was never retrieved" in output.read_text()
    assert "nobody has waited for this" in output.read_text()


def test_its_folder_environment_and_session_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_template(
        Path("own.yaml"),
        server={"port": "${env.OWN_PORT}"},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    assert forked(Path("output"), "check", "own.yaml").wait(60) == 2
    assert forked(Path("output"), "check", "own.yaml", env={"OWN_PORT": "1"}).wait(60) == 0
    process = forked(Path("output"), "run", "own.yaml", "--port", "0", env={"OWN_PORT": "1"})
    assert os.getsid(process.pid) == process.pid
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait(60) == process.poll() == -signal.SIGKILL
    process.kill()  # where there is nobody any more


def test_two_at_a_time_know_nothing_of_each_other() -> None:
    servers = [ServerProcess("echo") for _ in range(2)]
    try:
        for server in servers:
            server.wait_until_ready()
        open_in_one = {os.readlink(each) for each in descriptors(servers[0])}
        open_in_other = {os.readlink(each) for each in descriptors(servers[1])}
        shared = {each for each in open_in_one & open_in_other if each.startswith("socket:")}
        assert shared == set()
        assert servers[0].stop() == 0
        assert servers[1].health()["status"] == "ok"
        assert servers[1].stop() == 0
    finally:
        for server in servers:
            server.kill()


def descriptors(server: ServerProcess) -> list[Path]:
    return list(Path(f"/proc/{server.process.pid}/fd").iterdir())


def test_they_end_with_whoever_asked_for_them() -> None:
    code = (
        "import os, signal\n"
        "from tests.integration.server_process import ServerProcess\n"
        "server = ServerProcess('echo')\n"
        "server.wait_until_ready()\n"
        "print(server.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    wire.eventually(lambda: not is_listening(int(done.stdout)))


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_processes_that_run_tests_are_forked_and_the_end_of_each_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, signal\n\n"
        "def test_it(pytestconfig):\n"
        "    assert not hasattr(pytestconfig.failures_db, 'sock'), 'it asks before each test'\n"
        "    if os.environ['PYTEST_XDIST_WORKER'] == 'gw0':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    assert 'tests.workers' in pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text()\n"
    )
    options = ["-n2", "--dist=each", "--max-worker-restart=0", "-ptests.conftest", "-oaddopts="]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "XDIST" not in name},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # By which path the test is called goes by where the folder is.
    assert re.search("worker 'gw0' crashed while running '.*test_it.py::test_it'", ended.stdout)
    assert "1 failed, 1 passed" in ended.stdout
