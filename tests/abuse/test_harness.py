"""The eyes see: a server that is stopped for a moment, and one that holds more."""

from __future__ import annotations

import os
import signal
import time

from tests.abuse.watch import MIB, watching
from tests.integration import wire
from tests.integration.server_process import ServerProcess


def test_a_server_that_stands_still_is_seen(
    server: ServerProcess, idle_server: ServerProcess
) -> None:
    with watching(server, idle_server) as seen:
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(server.process.pid, signal.SIGCONT)
    assert seen.wait - seen.idle_wait > 0.2


def test_a_server_that_holds_more_is_seen(
    server: ServerProcess, idle_server: ServerProcess
) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "x" * (8 * MIB)}]}
    with watching(server, idle_server) as seen:
        assert wire.request("POST", f"{server.base_url}/chat/completions", body).status == 200
    assert seen.grown > 4 * MIB
