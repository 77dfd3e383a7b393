"""A chat template that runs away takes neither the server's other models nor its end along."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, write_template

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

RENDERS = b"providers.local.prompts.templates.process"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_models import make_model

    path = tmp_path_factory.mktemp("templates")
    folders = {
        "well": make_model(path / "well"),
        "wild": make_model(path / "wild", chat_template=ENDLESS),
    }
    return write_template(
        path / "two.yaml",
        server={"shutdown_grace_seconds": 1},
        providers=[{"id": "torch", "type": "local::torch", "config": {"device": "cpu"}}],
        models=[
            {"id": name, "provider": "torch", "provider_model": str(folder)}
            for name, folder in folders.items()
        ],
    )


def chat(server: ServerProcess, model: str) -> wire.Reply:
    message = {"role": "user", "content": "Hello"}
    body: dict[str, Any] = {"model": model, "messages": [message], "max_tokens": 1}
    return wire.request("POST", f"{server.base_url}/chat/completions", body)


def processes(server: ServerProcess) -> dict[int, float]:
    """Those of the server's that render, and the seconds that each has computed."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and RENDERS in (entry / "cmdline").read_bytes():
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == server.process.pid:  # its session
                    found[int(entry.name)] = (int(stat[11]) + int(stat[12])) / 100
    return found


@contextmanager
def hanging(template: Path) -> Iterator[tuple[ServerProcess, Future[wire.Reply]]]:
    """A server in which a template has been running for a while, and what its client is told."""
    server = ServerProcess(template)
    with ThreadPoolExecutor() as clients:
        try:
            server.wait_until_ready()
            told = clients.submit(chat, server, "wild")
            wire.eventually(lambda: max(processes(server).values(), default=0) > 0.5, 60)
            yield server, told
        finally:
            server.kill()


def test_the_other_model_answers_and_the_client_is_told(template: Path) -> None:
    with hanging(template) as (server, client):
        assert chat(server, "well").status == 200
        told = client.result()
        assert told.status == 500
        assert told.error()["code"] == "chat_template_failed"
        assert "computed for more than 5 seconds" in told.error()["message"]
        assert "Traceback" not in server.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server(template: Path, number: signal.Signals) -> None:
    with hanging(template) as (server, _):
        server.send_signal(number)
        assert server.wait() in (0, 130)
        assert "Traceback" not in server.log
        wire.eventually(lambda: not processes(server))


def test_what_a_killed_server_leaves_ends_by_itself(template: Path) -> None:
    with hanging(template) as (server, _):
        server.kill()
        assert processes(server)
        wire.eventually(lambda: not processes(server), 120)
