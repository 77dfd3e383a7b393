"""What each service is asked, and what becomes of its answer."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from llama_compat.hosted.settings import WebSearchSettings
from providers.remote import http1
from routing.tools.domains import Domains
from routing.tools.search_backends import SearchQuery, backend_of
from routing.tools.tool import ToolError
from tests.local_server import Handler, send, serving

SEARCH = SearchQuery("long rivers", 3, Domains(("a.example",)))

RESULT = {"url": "https://a.example/x", "title": "A"}
ANSWERS: dict[str, Any] = {
    "searxng": {"results": [{**RESULT, "content": "text", "publishedDate": "2026"}, {"url": 5}]},
    "brave": {"web": {"results": [{**RESULT, "description": "text", "age": "2026"}]}},
    "tavily": {"results": [{**RESULT, "content": "text", "published_date": "2026"}]},
    "exa": {"results": [{**RESULT, "text": "text", "publishedDate": "2026"}]},
    "http": {"found": {"items": [{"link": RESULT["url"], "name": "A", "says": "text"}]}},
}
MAPPING = {"results": "found.items", "url": "link", "title": "name", "text": "says"}


@pytest.mark.parametrize("backend", ANSWERS)
async def test_a_service_is_asked_in_its_own_words(backend: str) -> None:
    asked: list[tuple[str, str, dict[str, str], Any]] = []

    def answer(handler: Handler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        body = json.loads(handler.rfile.read(size)) if size else None
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked.append((handler.command, handler.path, headers, body))
        send(handler, 200, json.dumps(ANSWERS[backend]).encode())

    with serving(answer) as url:
        given: dict[str, Any] = {"backend": backend, "url": url, "api_key": "the-key"}
        if backend == "http":
            given |= {"body": {"q": "{query}", "n": "{count}", "lang": 1}, "mapping": MAPPING}
        client = http1.Client()
        found = await backend_of(WebSearchSettings(**given), client).find(SEARCH)
        await client.close()
    ((method, path, headers, body),) = asked
    assert [(each.url, each.title, each.text) for each in found] == [
        ("https://a.example/x", "A", "text")
    ]
    assert any("the-key" in value for value in headers.values())
    if backend in ("searxng", "brave"):
        assert method == "GET"
        assert "long%20rivers%20%28site%3Aa.example%29" in path
    elif backend == "http":
        assert body == {"q": "long rivers (site:a.example)", "n": "3", "lang": 1}
    else:
        assert body["query"] == "long rivers"
        assert ["a.example"] in body.values()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(429, b"{}", "too_many_requests"), (500, b"{}", "unavailable"), (200, b"<", "unavailable")],
)
async def test_a_service_that_fails_tells_no_key(status: int, body: bytes, code: str) -> None:
    with serving(lambda handler: send(handler, status, body)) as url:
        client = http1.Client()
        settings = WebSearchSettings(backend="searxng", url=url, api_key=SecretStr("the-key"))
        with pytest.raises(ToolError) as failed:
            await backend_of(settings, client).find(SEARCH)
        await client.close()
    assert failed.value.code == code
    assert "the-key" not in failed.value.message


async def test_a_program_is_asked_and_read() -> None:
    program = (
        "import json,sys; asked=json.load(sys.stdin);"
        "print(json.dumps({'results':[{'url':'https://a.example/','title':asked['query'],"
        "'content':'text'}]}))"
    )
    settings = WebSearchSettings(backend="command", command=[sys.executable, "-c", program])
    (found,) = await backend_of(settings, http1.Client()).find(SEARCH)
    assert found.title == "long rivers"


async def test_a_program_does_not_get_the_keys_of_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-vendor")
    program = (
        "import json,os; print(json.dumps({'results':[{'url':'https://a.example/',"
        "'title':' '.join(os.environ.values())}]}))"
    )
    settings = WebSearchSettings(
        backend="command",
        command=[sys.executable, "-c", program],
        env={"TOKEN": SecretStr("of-the-program")},
    )
    (found,) = await backend_of(settings, http1.Client()).find(SEARCH)
    assert "of-the-program" in found.title
    assert "sk-of-a-vendor" not in found.title


async def test_a_program_that_does_not_end_to_print_is_ended() -> None:
    settings = WebSearchSettings(backend="command", command=["yes"])
    with pytest.raises(ToolError, match="more than 4 MB"):
        async with asyncio.timeout(60):
            await backend_of(settings, http1.Client()).find(SEARCH)


async def test_a_program_that_fails_is_named() -> None:
    settings = WebSearchSettings(backend="command", command=[sys.executable, "-c", "exit(1)"])
    with pytest.raises(ToolError):
        await backend_of(settings, http1.Client()).find(SEARCH)
