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


@pytest.mark.parametrize("path", ["/", "/page/vendor/temml.js", "/docs-assets/swagger-ui.css"])
async def test_what_is_sent_is_compressed_for_who_takes_that(path: str) -> None:
    app = application()
    whole = await ask(app, "GET", path, **{"accept-encoding": "gzip;q=0, br"})
    assert "content-encoding" not in whole.headers
    small = await ask(app, "GET", path, **{"accept-encoding": "br, gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == whole.content
    assert int(small.headers["content-length"]) < len(whole.content)
    for reply in (whole, small):
        assert reply.headers["vary"] == "accept-encoding"
        if path != "/":
            known = {"if-none-match": reply.headers["etag"], "accept-encoding": "gzip"}
            assert (await ask(app, "GET", path, **known)).status_code == 304
    headers = await ask(app, "HEAD", path, **{"accept-encoding": "gzip"})
    assert headers.content == b""


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


SAID = re.compile(
    r'(?:element\("(?:p|span|h2|h3|summary|button|option|th|dt)", \{[^}]*\}, '
    r"|button\(|labelled\(|announce\(|openDialog\(|confirmed\(|table\(|new Failure\("
    r'|(?:placeholder|title|empty|"aria-label"): |textContent = )["`]([^"`$]*[A-Za-z]{2}[^"`]*)["`]'
)
"""Where a module says words itself."""

SPOKEN = re.compile(r'"[A-Z][a-z]+(?: [a-z]+)*[.?!…]?"|"[a-z]+(?: [a-z]+){2,}"')
"""What looks like words for people, wherever it stands."""

NO_WORDS = {
    *("Authorization", "Bearer", "Enter", "BaseLayout", "None", "True", "False", "Bytes"),
    # What a browser, or another program, knows by these.
    *("Failure", "Content-Type", "If-Match"),
}


def code_of(name: str) -> str:
    """A module without its comments."""
    text = (FOLDER / f"{name}.js").read_text("utf-8")
    return re.sub(r"/\*.*?\*/|(?<![:\"'\\])//[^\n]*", "", text, flags=re.S)


def modules() -> list[str]:
    return sorted(each.stem for each in FOLDER.glob("*.js") if each.stem != "strings")


@pytest.mark.parametrize("name", modules())
def test_no_module_has_words_of_its_own(name: str) -> None:
    code = code_of(name)
    assert SAID.findall(code) == []
    markup = (
        r'class: "[^"]*"|"rel", "[^"]*"|import [^\n]*|(?:querySelector\w*|closest|matches)\([^)]*\)'
    )
    own = re.sub(markup, "", code)
    assert {each.strip('"') for each in SPOKEN.findall(own)} - NO_WORDS == set()


def test_each_word_is_said_somewhere() -> None:
    strings = (FOLDER / "strings.js").read_text("utf-8")
    found = re.findall(r"^  (\w+): \{(?: ([^\n]*) |\n(.*?)^  )\},$", strings, re.M | re.S)
    rooms = [(room, line or block) for room, line, block in found]
    assert len(rooms) > 15
    code = "".join(code_of(name) for name in modules())
    # Of some the name is put together.
    made = {"message": {"user", "assistant", "tool"}}
    for room, content in rooms:
        names = set(re.findall(r"^    (\w+): ", content, re.M)) or set(
            re.findall(r"(\w+): ", content)
        )
        assert names, room
        flat = {name for name in names if f'"{room}.{name}"' in code}
        used = {
            name
            for each in modules()
            if f"WORDS.{room}" in code_of(each)
            for name in names
            if re.search(rf"(?:TEXT|WORDS\.{room}|words)\.{name}\b", code_of(each))
        }
        inside = {name for name in names if f"WORDS.{room}.{name}" in content}
        assert names - flat - used - inside - made.get(room, set()) == set(), room


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
