"""A running server gets another template: nobody who is being answered notices."""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import (
    COMMAND,
    START_SECONDS,
    STOP_SECONDS,
    ServerProcess,
    running,
    write_template,
)

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")


def template(path: Path, upstream: ScriptedUpstream, *models: str, **config: Any) -> Path:
    """A template whose provider `kept` is always the same, and `changed` is as `config` says."""
    url = {"base_url": upstream.url}
    return write_template(
        path / "template.yaml",
        providers=[
            {"id": "kept", "type": "remote::passthrough", "config": url},
            {"id": "changed", "type": "remote::passthrough", "config": {**url, **config}},
        ],
        models=[
            {"id": f"{provider}/{name}", "provider": provider, "provider_model": name}
            for provider in ("kept", "changed")
            for name in models
        ],
    )


def chat(model: str, **members: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "?"}], **members}


def ask(server: ServerProcess, model: str, request_id: str) -> wire.Reply:
    url, headers = f"{server.base_url}/chat/completions", {"x-request-id": request_id}
    return wire.request("POST", url, chat(model), headers)


def reloaded(server: ServerProcess, times: int = 1) -> None:
    """Wait for so many lines of the log that tell of a reload."""
    server.send_signal(signal.SIGHUP)
    wait_for(server, times, "is reloaded")


def wait_for(server: ServerProcess, times: int, text: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.log.count(text) < times:
        assert time.monotonic() < deadline, server.log
        time.sleep(0.01)


def test_streams_go_on_connections_stay_and_what_is_replaced_ends_with_its_last_request(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    names = ("plain", "one-at-a-time")
    with running(template(tmp_path, upstream, *names)) as server:
        assert ask(server, "kept/plain", f"{request_id}-1").status == 200
        url, headers = f"{server.base_url}/chat/completions", {"x-request-id": request_id}
        question = chat("changed/one-at-a-time", stream=True)
        with wire.open_reply("POST", url, question, headers) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            template(tmp_path, upstream, "plain", api_key="the-new-key-of-the-vendor")
            reloaded(server)

            assert ask(server, "changed/one-at-a-time", "x").status == 404
            assert ask(server, "changed/plain", f"{request_id}-2").status == 200
            sent = upstream.request(f"{request_id}-2")
            assert sent.header("authorization") == "Bearer the-new-key-of-the-vendor"
            assert ask(server, "kept/plain", f"{request_id}-3").status == 200
            before, after = (upstream.request(f"{request_id}-{n}").connection for n in (1, 3))
            assert before == after

            upstream.request(request_id).release()
            *rest, last = events
        assert last == b"[DONE]"
        assert json.loads(rest[-1])["choices"][0]["finish_reason"] == "stop"
        upstream.wait_until_closed(upstream.request(request_id).connection)


def test_a_template_that_is_wrong_is_explained_and_changes_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    path = template(tmp_path, upstream, "plain")
    with running(path) as server:
        path.write_text(path.read_text() + "modles: []\n")
        line = len(path.read_text().splitlines())
        server.send_signal(signal.SIGHUP)
        server.wait_for_log("is not reloaded; all goes on as it was")
        server.wait_for_log(f"{path}:{line}: modles: unknown key 'modles'; did you mean 'models'?")
        assert ask(server, "kept/plain", request_id).status == 200


def test_a_file_that_changes_is_reloaded_where_that_is_wanted(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    with running(template(tmp_path, upstream, "holds"), options=["--reload-on-change"]) as server:
        assert ask(server, "kept/plain", request_id).status == 404
        template(tmp_path, upstream, "plain")
        wait_for(server, 1, "is reloaded")
        assert ask(server, "kept/plain", request_id).status == 200


@pytest.mark.parametrize("watched", [False, True])
def test_all_workers_follow(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str, watched: bool
) -> None:
    path = template(tmp_path, upstream, "holds")
    options = ["--workers", "2", *(["--reload-on-change"] if watched else [])]
    with running(path, options=options) as server:
        wait_for(server, 2, "serving at")
        template(tmp_path, upstream, "plain")
        if watched:
            wait_for(server, 2, "is reloaded")
        else:
            reloaded(server, times=2)
        # Each connection may come to another worker.
        for number in range(10):
            assert ask(server, "kept/plain", f"{request_id}-{number}").status == 200
        path.write_text("nothing: right\n")
        if not watched:
            server.send_signal(signal.SIGHUP)
        server.wait_for_log("nothing: unknown key 'nothing'")
        assert server.log.count("unknown key 'nothing'") == 1
        assert ask(server, "kept/plain", f"{request_id}-last").status == 200


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what is blocked")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_that_is_asked_for_before_there_is_a_server_comes_then(
    upstream: ScriptedUpstream, tmp_path: Path, workers: int
) -> None:
    path = template(tmp_path, upstream, "holds")
    server = ServerProcess(path, options=["--workers", str(workers)], executable=COMMAND)
    try:
        deadline = time.monotonic() + STOP_SECONDS
        while not blocks_reload(server.process.pid):
            assert time.monotonic() < deadline, server.log
            time.sleep(0.001)
        assert "serving at" not in server.log
        server.send_signal(signal.SIGHUP)
        wait_for(server, workers, "is reloaded")
        assert server.stop() == 0
    finally:
        server.kill()


def blocks_reload(pid: int) -> bool:
    """Whether the process has its SIGHUP wait."""
    status = Path(f"/proc/{pid}/status").read_text()
    (blocked,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked, 16) & 1 << signal.SIGHUP - 1)


def test_a_worker_that_starts_while_there_is_a_reload_follows_too(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    server = ServerProcess(template(tmp_path, upstream, "holds"), options=["--workers", "2"])
    try:
        for number in range(8):
            template(tmp_path, upstream, "plain", headers={"x-number": str(number)})
            server.send_signal(signal.SIGHUP) if number else wait_for(server, 1, "serving at")
            time.sleep(0.05)  # so that they come at any point of a start
        wait_for(server, 2, "serving at")
        assert server.process.poll() is None
        deadline = time.monotonic() + STOP_SECONDS
        for number in range(20):
            while True:
                id = f"{request_id}-{number}-{time.monotonic_ns()}"
                assert ask(server, "changed/plain", id).status == 200
                if upstream.request(id).header("x-number") == "7":
                    break
                assert time.monotonic() < deadline, server.log
        assert "died" not in server.log
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_ends_the_server_unless_it_was_to_outlive_it(
    tmp_path: Path, nohup: bool, workers: str
) -> None:
    log = tmp_path / "log"
    command = [COMMAND, "run", "echo", "--port", "0", "--workers", workers]
    pid, terminal = pty.fork()
    if not pid:  # as a terminal's shell starts it: leader of a session with a terminal
        try:
            signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
            output = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.execv(COMMAND, command)
        finally:
            os._exit(1)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not log.exists() or log.read_text().count("serving at") < int(workers):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        os.close(terminal)
        if nohup:
            deadline = time.monotonic() + STOP_SECONDS
            while log.read_text().count("nothing is reloaded") < int(workers):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0, log.read_text()
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
