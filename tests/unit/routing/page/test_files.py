"""The page's files: who may read them, what comes with them, and that they need nothing else."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from routing.page.files import FOLDER, HEADERS, PATHS, POLICY
from scripts.vendored_page import PACKAGES
from tests.unit.routing.ingress.test_apis import KEY, application, ask

FILES = sorted(each for each in FOLDER.rglob("*.*") if each.parent == FOLDER)
VENDORED = FOLDER / "vendor"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg",
    ".txt": "text/plain",
    ".json": "application/json",
}


@pytest.mark.parametrize("path", sorted(PATHS))
async def test_everybody_may_read_it(path: str) -> None:
    reply = await ask(application(api_keys=[KEY]), "GET", path)
    assert reply.status_code == 200
    file = FOLDER / ("index.html" if path == "/" else path.removeprefix("/page/"))
    assert reply.content == file.read_bytes()
    assert reply.headers["content-type"].startswith(TYPES[file.suffix])
    assert {name: reply.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "path", ["/page/", "/page/none.js", "/page/../files.py", "/page/%2e%2e/files.py", "/pages"]
)
async def test_nothing_else_is_there(path: str) -> None:
    with_keys = await ask(application(api_keys=[KEY]), "GET", path)
    assert with_keys.status_code == 401
    assert (await ask(application(), "GET", path)).status_code == 404


async def test_what_is_there_already_is_not_sent_again() -> None:
    app = application()
    first = await ask(app, "GET", "/page/main.js")
    again = await ask(app, "GET", "/page/main.js", **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == POLICY
    assert again.headers["cache-control"] == "no-cache"


async def test_the_page_is_only_read() -> None:
    for method in ("POST", "DELETE"):
        assert (await ask(application(), method, "/")).status_code == 405


async def test_an_ollama_client_still_finds_its_server() -> None:
    transport = httpx.ASGITransport(app=application())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        assert (await client.head("/")).status_code == 200


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_needs_nothing_from_elsewhere(file: Path) -> None:
    text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|(?<!:)//[a-z]+\.", text)
    imported = re.findall(r'from "(.+?)"', text) if file.suffix == ".js" else []
    # What the snippets say is none of the page's own.
    assert all((FOLDER / name).is_file() for name in imported if name != "openai")


def test_nothing_is_inline_and_no_text_becomes_markup() -> None:
    html = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", html)
    for file in FOLDER.glob("*.js"):
        dangerous = (
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|\.style\b"
        )
        assert not re.search(dangerous, file.read_text("utf-8")), file.name


def test_what_others_wrote_is_as_it_came() -> None:
    versions = json.loads((VENDORED / "versions.json").read_text("utf-8"))
    assert {f"{name}.js" for name in ("marked", "dompurify", "highlight", "temml")} == set(versions)
    pinned = {each.kept_as: (each.name, each.version) for each in PACKAGES}
    for name, each in versions.items():
        content = (VENDORED / name).read_bytes()
        assert each["sha256"] == hashlib.sha256(content).hexdigest(), name
        assert pinned[name] == (each["package"], each["version"])
        assert (VENDORED / name.replace(".js", ".LICENSE.txt")).stat().st_size > 500


def test_the_whole_page_is_small() -> None:
    scripts = [each for each in FOLDER.rglob("*.*") if each.suffix in (".js", ".css", ".html")]
    assert sum(len(gzip.compress(each.read_bytes())) for each in scripts) < 300_000


CHATTING = (
    *("attachments", "branches", "chat", "column", "markdown"),
    *("message", "playground", "presets", "settings", "sharing"),
)
"""The modules whose words are all in `strings.js`."""


SAID = re.compile(
    r'(?:element\("(?:p|span|h2|h3|summary|button|option)", \{[^}]*\}, '
    r'|button\(|labelled\(|announce\()"([^"]*[a-z]{2}[^"]*)"'
)
"""Where a module says words itself."""


def test_what_is_said_is_in_one_file() -> None:
    strings = (FOLDER / "strings.js").read_text("utf-8")
    known = set(re.findall(r'^  "([\w.]+)":', strings, re.M))
    asked: set[str] = set()
    for name in CHATTING:
        text = (FOLDER / f"{name}.js").read_text("utf-8")
        code = re.sub(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", "", text, flags=re.S)
        asked |= set(re.findall(r'"([a-z]+\.[a-zA-Z]+)"', code)) & {*known} | set(
            re.findall(r'\bt\("([\w.]+)"', code)
        )
        said = SAID.findall(code)
        assert said == [], name
    assert asked <= known, asked - known
    unused = {each for each in known - asked if not each.startswith("message.")}
    assert unused == set()


def test_a_plain_gateway_does_not_import_what_only_the_page_asks_for() -> None:
    script = (
        "import sys, routing.app\n"
        "print([name for name in ('routing.page.overview', 'routing.ingress.admin',"
        " 'routing.observability.records.overview') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
