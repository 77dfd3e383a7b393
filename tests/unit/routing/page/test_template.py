"""The template of a server: shown without its secrets, checked, and taken over where it may be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.app import Application
from routing.process.reload import Reloader
from routing.process.template_file import TemplateFile
from tests.unit.routing.page.test_overview import client_of

ADMIN_KEY = "the-admin-key-here"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}

TEMPLATE = f"""\
# A gateway with comments
server:
  admin_key: {ADMIN_KEY}  # never shown
  admin: {{can_edit: true}}
  storage: sqlite:FOLDER/operations.sqlite
providers:
  - id: echo
    type: local::echo
models:
  - {{id: one, provider: echo}}  # the first
"""


class Served:
    """A server of a template, over ASGI."""

    def __init__(self, app: Application, path: Path) -> None:
        self.app, self.path = app, path
        self.told_others = 0

    async def ask(
        self, method: str, path: str, text: str | None = None, version: str | None = None
    ) -> httpx.Response:
        headers = ADMIN if version is None else {**ADMIN, "if-match": f'"{version}"'}
        body = None if text is None else {"text": text}
        async with client_of(self.app) as client:
            return await client.request(method, f"/admin/{path}", json=body, headers=headers)

    async def shown(self) -> dict[str, Any]:
        told: dict[str, Any] = (await self.ask("GET", "template")).json()
        return told

    async def put(self, *changes: tuple[str, str], text: str | None = None) -> httpx.Response:
        """Take over what is there with some changes."""
        shown = await self.shown()
        edited = shown["text"] if text is None else text
        for before, after in changes:
            assert before in edited
            edited = edited.replace(before, after)
        return await self.ask("PUT", "template", edited, shown["version"])

    async def models(self) -> list[str]:
        return [each.id for each in self.app.runtime.distribution.models]


@asynccontextmanager
async def serving(folder: Path, text: str = TEMPLATE) -> AsyncIterator[Served]:
    path = folder / "gateway.yaml"
    path.write_bytes(text.replace("FOLDER", str(folder)).encode())
    app = Application(load_distribution(str(path), config_model))
    served = Served(app, path)

    def tell_others() -> None:
        served.told_others += 1

    reloader = Reloader(app, str(path), tell_others=tell_others)
    await app.start()
    task = asyncio.create_task(reloader.run())
    try:
        yield served
    finally:
        task.cancel()
        await asyncio.wait([task])
        await app.stop()


def holds(path: Path) -> tuple[str, int]:
    return path.read_text("utf-8"), path.stat().st_mode & 0o777


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("*gateway*"))


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


async def test_it_is_shown_with_its_comments_and_without_secrets(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reply = await served.ask("GET", "template")
    told = reply.json()
    expected = served.path.read_text("utf-8").replace(f"key: {ADMIN_KEY}", 'key: "${covered.1}"')
    assert told["text"] == expected
    assert (told["can_edit"], told["why_not"], told["problems"]) == (True, "", [])
    assert reply.headers["etag"] == f'"{told["version"]}"'
    assert ADMIN_KEY not in reply.text


@pytest.mark.parametrize(("method", "path"), [("PUT", "template"), ("POST", "template/check")])
async def test_without_leave_it_is_only_shown(tmp_path: Path, method: str, path: str) -> None:
    text = TEMPLATE.replace("  admin: {can_edit: true}\n", "")
    async with serving(tmp_path, text) as served:
        shown = await served.shown()
        assert shown["can_edit"] is False
        reply = await served.ask(method, path, shown["text"], shown["version"])
        assert code(reply) == (403, "template_not_editable")
        assert served.path.read_text("utf-8") == text.replace("FOLDER", str(tmp_path))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "template"), ("PUT", "template"), ("POST", "template/check")]
)
async def test_it_is_for_the_admin_alone(tmp_path: Path, method: str, path: str) -> None:
    async with serving(tmp_path) as served, client_of(served.app) as client:
        reply = await client.request(method, f"/admin/{path}", json={"text": ""})
    assert code(reply) == (401, "invalid_admin_key")


async def test_a_changed_one_is_checked_as_check_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        shown = await served.shown()
        right = await served.ask("POST", "template/check", shown["text"], shown["version"])
        assert right.json() == {"problems": []}
        edited = shown["text"].replace("echo\nmodels", "ecko\nmodels") + "  - {id: 3}\n"
        wrong = await served.ask("POST", "template/check", edited, shown["version"])
        told = [(each["line"], each["path"], each["message"]) for each in wrong.json()["problems"]]
        assert told[0] == (
            8,
            "providers[0].type",
            "unknown provider type 'local::ecko'; did you mean 'local::echo'?",
        )
        assert {each[0] for each in told[1:]} == {11}
        assert "models[1].id" in {each[1] for each in told}
        broken = await served.ask("POST", "template/check", "server: {", shown["version"])
        assert broken.json()["problems"][0]["message"].startswith("not valid YAML")
        old = await served.ask("POST", "template/check", edited, "another")
        assert code(old) == (412, "template_changed")
        assert code(await served.ask("POST", "template/check", edited)) == (412, "template_changed")
        assert code(await served.put(text=edited)) == (400, "template_invalid")
        assert await served.models() == ["one"]


async def test_it_is_taken_over_and_keeps_what_was_left_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.path.chmod(0o640)
        before = served.path.read_text("utf-8")
        reply = await served.put(("# the first", "# the first\n  - {id: two, provider: echo}"))
        told = reply.json()
        assert reply.status_code == 200, told
        assert told["providers"] == {"as it was": ["echo"]}
        assert (told["restart"], told["others_told"], served.told_others) == ([], True, 1)
        after = served.path.read_text("utf-8")
        assert after == before.replace("# the first", "# the first\n  - {id: two, provider: echo}")
        assert ADMIN_KEY in after
        assert served.path.stat().st_mode & 0o777 == 0o640
        backup = Path(told["backup"])
        assert holds(backup) == (before, 0o640)
        assert await served.models() == ["one", "two"]
        assert told["version"] == (await served.shown())["version"]
        assert files(tmp_path) == [
            "gateway.yaml",
            "gateway.yaml.bak",
        ]
        audit = (await served.ask("GET", "audit")).json()["data"][0]
        assert (audit["action"], audit["subject"]) == ("template.change", str(served.path))
        assert ADMIN_KEY not in str(audit)


async def test_what_waits_for_a_restart_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reply = await served.put(("server:", "server:\n  port: 4321"))
        assert reply.json()["restart"] == ["server.port"]
        comments = await served.put(("# the first", "# still the first"))
        assert comments.json()["providers"] == {}
        assert "still the first" in served.path.read_text("utf-8")


async def test_what_has_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        shown = await served.shown()
        somebody = served.path.read_text("utf-8") + "# somebody's\n"
        served.path.write_text(somebody, "utf-8")
        reply = await served.ask("PUT", "template", shown["text"], shown["version"])
        assert code(reply) == (412, "template_changed")
        assert served.path.read_text("utf-8") == somebody


async def test_of_two_at_once_one_is_taken_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        shown = await served.shown()
        replies = await asyncio.gather(
            *(
                served.ask(
                    "PUT",
                    "template",
                    shown["text"] + f"  - {{id: m{each}, provider: echo}}\n",
                    shown["version"],
                )
                for each in range(4)
            )
        )
        assert sorted(each.status_code for each in replies) == [200, 412, 412, 412]
        (won,) = [n for n, each in enumerate(replies) if each.status_code == 200]
        assert await served.models() == ["one", f"m{won}"]
        assert served.path.read_text("utf-8").endswith(f"  - {{id: m{won}, provider: echo}}\n")


async def test_a_reload_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from providers.base import ProviderStartError
    from providers.local.echo import EchoProvider

    async with serving(tmp_path) as served:
        before, runtime = served.path.read_bytes(), served.app.runtime

        async def fails(self: EchoProvider) -> None:
            raise ProviderStartError(f"no room for {ADMIN_KEY}")

        monkeypatch.setattr(EchoProvider, "start", fails)
        reply = await served.put(
            ("type: local::echo", "type: local::echo\n    max_waiting: 3"),
            ("id: echo", "id: ecko"),
            ("provider: echo", "provider: ecko"),
        )
        assert code(reply) == (400, "template_invalid")
        assert "no room for" in reply.json()["error"]["message"]
        assert ADMIN_KEY not in reply.text
        assert served.path.read_bytes() == before
        assert served.app.runtime is runtime
        assert files(tmp_path) == ["gateway.yaml"]
        assert served.told_others == 0


async def test_what_cannot_be_written_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        before = served.path.read_bytes()

        def full(self: Path, target: Path) -> Path:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", full)
            reply = await served.put(("id: one", "id: two"))
        assert code(reply) == (409, "template_not_writable")
        assert "no space left" in reply.json()["error"]["message"]
        assert await served.models() == ["one"]
        assert served.path.read_bytes() == before
        assert files(tmp_path) == ["gateway.yaml"]


async def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    async with serving(tmp_path) as served:
        real = tmp_path / "real" / "gateway.yaml"
        served.path.rename(real)
        served.path.symlink_to(real)
        assert (await served.put(("id: one", "id: two"))).status_code == 200
        assert served.path.is_symlink()
        assert "id: two" in real.read_text("utf-8")


async def test_what_is_no_yaml_is_not_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.path.write_text(f"server: {{admin_key: {ADMIN_KEY}", "utf-8")
        reply = await served.ask("GET", "template")
        told = reply.json()
        assert told["text"] is None
        assert "nobody can tell what in it is secret" in told["problems"][0]["message"]
        assert ADMIN_KEY not in reply.text
        put = await served.ask("PUT", "template", TEMPLATE, told["version"])
        assert code(put) == (412, "template_changed")
        served.path.unlink()
        assert code(await served.ask("GET", "template")) == (409, "template_unreadable")


async def test_values_of_the_environment_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING_SECRET", "the-value-of-it")
    async with serving(tmp_path) as served:
        shown = await served.shown()
        hostile = "server: {port: '${env.SOMETHING_SECRET}', apis: ['${env.SOMETHING_SECRET}']}\n"
        reply = await served.ask("POST", "template/check", hostile, shown["version"])
    assert "${env.SOMETHING_SECRET}" in reply.text
    assert "the-value" not in reply.text


async def test_one_without_a_file_is_not_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.app.reloader = None
        assert code(await served.ask("GET", "template")) == (409, "template_not_writable")


async def test_the_document_says_what_is_sent() -> None:
    from tests.unit.routing.page.test_models import application

    paths = application().openapi()["paths"]
    assert set(paths["/admin/template"]) == {"get", "put"}
    assert "/admin/template/check" in paths


def test_what_ships_is_not_replaced() -> None:
    assert "ships with the server" in TemplateFile("echo").read().problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_what_may_not_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TEMPLATE, "utf-8")
    path.chmod(0o400)
    assert "may not replace a.yaml" in TemplateFile(str(path)).read().problem
