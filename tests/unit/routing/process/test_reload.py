"""A template that has changed takes the place of the one that is served."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import ServerSettings, load_distribution
from providers.local.echo import EchoProvider
from providers.registry import config_model
from routing.app import Application
from routing.process import reload
from routing.process.reload import RESTART_FOR, Reloader, needs_restart
from routing.process.watched_file import WatchedFile
from tests.conftest import needs_torch
from tests.integration.server_process import write_template

LIVE = {
    "admin",
    "admin_key",
    "metrics_key",
    "api_keys",
    "batches",
    "cache",
    "cors",
    "end_when_device_lost",
    "files",
    "fleet",
    "limits",
    "log_usage",
    "max_bodies_bytes",
    "max_body_bytes",
    "max_choices",
    "reasoning_memory",
    "tools",
    "records",
    "responses_store",
    "storage",
    "stored_keys",
    "traces",
    "vector_stores",
}
"""The settings that a reload changes."""


def template(path: Path, *models: str, delay_ms: int = 0, **server: Any) -> Path:
    config = {"delay_ms": delay_ms} if delay_ms else {}
    return write_template(
        path / "template.yaml",
        server=server,
        providers=[{"id": "echo", "type": "local::echo", "config": config}],
        models=[{"id": name, "provider": "echo"} for name in models],
    )


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Application]:
    app = Application(load_distribution(str(path), config_model))
    await app.start()
    yield app
    await app.stop()


@asynccontextmanager
async def reloading(app: Application, path: Path, watched: bool = False) -> AsyncIterator[Reloader]:
    reloader = Reloader(app, str(path), WatchedFile(path) if watched else None)
    task = asyncio.create_task(reloader.run())
    yield reloader
    task.cancel()
    await asyncio.wait([task])


class Request:
    """One chat with an application, over ASGI; what it sends is kept."""

    def __init__(self, app: Application, model: str, path: str = "/v1/chat/completions") -> None:
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "a b c"}]}
        self._body = json.dumps(body).encode()
        self._received = asyncio.Event()
        self._sent = asyncio.Condition()
        self.messages: list[dict[str, Any]] = []
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._received.is_set():
            self._received.set()
            return {"type": "http.request", "body": self._body, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._sent:
            self.messages.append(message)
            self._sent.notify_all()

    async def begun(self) -> None:
        """Wait for the first piece of the answer."""
        async with self._sent:
            await self._sent.wait_for(lambda: len(self.messages) > 1)

    @property
    def status(self) -> int:
        status = self.messages[0]["status"]
        assert isinstance(status, int)
        return status

    @property
    def text(self) -> str:
        body = b"".join(message.get("body", b"") for message in self.messages)
        events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (what is waited for knows of no events)
            await asyncio.sleep(0.001)


async def told(caplog: pytest.LogCaptureFixture, text: str) -> str:
    """The line of the log that holds `text`, waited for."""
    await until(lambda: any(text in record.getMessage() for record in caplog.records))
    return next(line for line in (one.getMessage() for one in caplog.records) if text in line)


async def test_a_running_stream_keeps_its_runtime_when_the_application_swaps_it(
    tmp_path: Path,
) -> None:
    async with serving(template(tmp_path, "old", delay_ms=30)) as app:
        before = app.runtime
        provider = before.providers["echo"]
        assert isinstance(provider, EchoProvider)
        request = Request(app, "old")
        await request.begun()
        path = template(tmp_path, "new")
        await app.reload(load_distribution(str(path), config_model))
        assert app.runtime is not before
        assert app.runtime.providers["echo"] is not provider
        refused, answered = Request(app, "old"), Request(app, "new")
        await asyncio.gather(refused.task, answered.task)
        assert (refused.status, answered.status) == (404, 200)
        assert (before.ready, provider.running) == (True, 1)
        await request.task
        assert request.text == "a b c"
        await until(lambda: not before.ready)


async def test_what_was_replaced_takes_no_memory(tmp_path: Path) -> None:
    async with serving(template(tmp_path, "0")) as app:
        replaced = []
        for number in range(1, 4):
            replaced.append(weakref.ref(app.runtime))
            path = template(tmp_path, str(number), delay_ms=number)
            await app.reload(load_distribution(str(path), config_model))
            request = Request(app, str(number))
            await request.task
        await until(lambda: not app._retiring)
        gc.collect()
        assert [each() for each in replaced] == [None] * 3


async def test_stopping_does_not_wait_for_requests_that_an_earlier_runtime_has(
    tmp_path: Path,
) -> None:
    async with serving(template(tmp_path, "old", delay_ms=60_000)) as app:
        before = app.runtime
        request = Request(app, "old")
        await asyncio.sleep(0)  # it begins
        await app.reload(load_distribution(str(template(tmp_path, "new")), config_model))
        assert before.ready
        async with asyncio.timeout(5):
            await app.stop()
        assert not before.ready
        assert not app.runtime.ready
        request.task.cancel()
        await asyncio.wait([request.task])


async def test_what_is_right_is_served_and_what_became_of_the_providers_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = template(tmp_path, "old")
    async with serving(path) as app, reloading(app, path) as reloader:
        provider = app.runtime.providers["echo"]
        path.write_text(
            "providers: [{id: echo, type: local::echo}, {id: more, type: local::echo}]\n"
            "models: [{id: new, provider: echo}]\n"
        )
        reloader.ask()
        assert (await told(caplog, "is reloaded: ")).endswith("as it was: echo; new: more")
        assert await told(caplog, "models: new")
        assert app.runtime.providers["echo"] is provider
        caplog.clear()
        path.write_text(
            "providers: [{id: more, type: local::echo, config: {delay_ms: 1}}]\n"
            "models: [{id: new, provider: more}]\n"
        )
        reloader.ask()
        assert (await told(caplog, "is reloaded: ")).endswith("changed: more; gone: echo")


@needs_torch
async def test_what_is_wrong_is_told_as_check_tells_it_and_all_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = template(tmp_path, "old")
    async with serving(path) as app, reloading(app, path) as reloader:
        before = app.runtime
        path.write_text("providers:\n- id: echo\n  typ: local::echo\n")
        reloader.ask()
        line = await told(caplog, "is not reloaded; all goes on as it was")
        assert f"{path}:3: providers[0].typ: unknown key 'typ'" in line
        assert app.runtime is before
        caplog.clear()
        missing = {"id": "torch", "type": "local::torch"}
        nowhere = {"id": "x", "provider": "torch", "provider_model": str(tmp_path / "no-model")}
        write_template(path, providers=[missing], models=[nowhere])
        reloader.ask()
        assert "no-model" in await told(caplog, "is not reloaded; all goes on as it was")
        assert app.runtime is before
        request = Request(app, "old")
        await request.task
        assert request.text == "a b c"


async def test_what_nobody_expects_to_go_wrong_does_not_end_reloading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    path = template(tmp_path, "old")
    async with serving(path) as app, reloading(app, path) as reloader:
        with monkeypatch.context() as patched:
            patched.setattr(reload, "distribution_of", lambda *_: 1 / 0)
            reloader.ask()
            await told(caplog, "is not reloaded; all goes on as it was")
        template(tmp_path, "new")
        reloader.ask()
        await told(caplog, "is reloaded")


async def test_the_same_again_reloads_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = template(tmp_path, "old")
    async with serving(path) as app, reloading(app, path) as reloader:
        before = app.runtime
        path.write_text(path.read_text() + "# and a comment\n")
        reloader.ask()
        await told(caplog, "nothing is reloaded")
        assert app.runtime is before


async def test_the_environment_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("CLIENTS_KEY", "the-first-key-there-is")
    path = template(tmp_path, "old", api_keys=["${env.CLIENTS_KEY}"])
    async with serving(path) as app, reloading(app, path) as reloader:
        headers = [(b"authorization", b"Bearer the-second-key-there-is")]
        with pytest.raises(Exception, match="key"):
            app.runtime.authenticator.principal(headers)
        monkeypatch.setenv("CLIENTS_KEY", "the-second-key-there-is")
        reloader.ask()
        await told(caplog, "is reloaded")
        app.runtime.authenticator.principal(headers)


async def test_a_watched_file_is_reloaded_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(reload, "LOOK_SECONDS", 0.01)
    path = template(tmp_path, "old")
    async with serving(path) as app, reloading(app, path, watched=True) as reloader:
        template(tmp_path, "new", "newer")
        await told(caplog, "models: new, newer")
        template(tmp_path, "newest")
        reloader.ask()
        await told(caplog, "models: newest")


async def test_what_only_a_restart_changes_is_told_for_as_long_as_it_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = template(tmp_path, "old", port=8321)
    async with serving(path) as app, reloading(app, path) as reloader:
        for models in (["new"], ["newer"]):
            template(tmp_path, *models, port=8322, host="0.0.0.0")
            reloader.ask()
            line = await told(caplog, "only a restart changes")
            assert line.endswith("only a restart changes server.host, server.port")
            caplog.clear()
        template(tmp_path, "newest", port=8321)
        reloader.ask()
        await until(lambda: app.runtime.distribution.models[0].id == "newest")
        assert not caplog.records


def test_of_every_setting_of_the_server_it_is_known_whether_a_reload_changes_it() -> None:
    assert {*RESTART_FOR, *LIVE} == set(ServerSettings.model_fields), (
        "what the running application takes from its runtime belongs into LIVE here, what it looks"
        " at once into RESTART_FOR"
    )
    assert not LIVE.intersection(RESTART_FOR)


def test_settings_that_are_the_same_need_no_restart() -> None:
    assert needs_restart(ServerSettings(), ServerSettings()) == []
    assert needs_restart(ServerSettings(), ServerSettings(log_usage=True)) == []
