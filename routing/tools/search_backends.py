"""Who searches: services over HTTP, one row each, a command, or the files of a folder.

What a row says is in the service's own documentation, read on 2026-11-23:
https://docs.searxng.org/dev/search_api.html,
https://api-dashboard.search.brave.com/app/documentation/web-search/get-started,
https://docs.tavily.com/documentation/api-reference/endpoint/search and
https://docs.exa.ai/reference/search.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from llama_compat.hosted.settings import FieldMapping, WebSearchSettings
from llama_compat.hosted.vocabulary import WebSource
from llama_compat.off_loop import off_loop
from providers import environments
from providers.remote import http1
from routing.process.programs import end_program, start_program
from routing.tools.domains import Domains
from routing.tools.http import MAX_JSON_BYTES, ask_json
from routing.tools.tool import ToolError

MAX_TEXT = 2000
"""So many characters of a result are given to the model."""

MAX_FILE_BYTES = 1 << 20


class SearchQuery(Struct, frozen=True):
    """What is looked for.

    Attributes:
        query: the words.
        count: how many results are wanted.
        domains: where.
    """

    query: str
    count: int
    domains: Domains

    @property
    def with_sites(self) -> str:
        """The words for a service that is told in them where to look."""
        sites = " OR ".join(f"site:{each}" for each in self.domains.allowed)
        hidden = "".join(f" -site:{each}" for each in self.domains.blocked)
        return f"{self.query} ({sites}){hidden}" if sites else f"{self.query}{hidden}"


class Backend(Protocol):
    """Somebody who searches."""

    async def find(self, search: SearchQuery) -> list[WebSource]:
        """What there is, the best first; it may be more than is wanted, and elsewhere.

        Raises:
            ToolError: it can't be looked for.
        """
        ...


class Service(Struct, frozen=True):
    """A service over HTTP.

    Attributes:
        url: where searches go, of its address in the template.
        headers: those that have the key.
        body: what is sent; None for a GET.
        fields: where the answer has what is shown.
    """

    url: Callable[[str, SearchQuery], str]
    headers: Callable[[str], dict[str, str]]
    body: Callable[[SearchQuery], dict[str, Any]] | None
    fields: FieldMapping


SERVICES: Mapping[str, Service] = {
    "searxng": Service(
        lambda url, search: f"{url}/search?format=json&q={quote(search.with_sites)}",
        lambda key: {"authorization": f"Bearer {key}"} if key else {},
        None,
        FieldMapping(age="publishedDate"),
    ),
    "brave": Service(
        lambda url, search: (
            f"{url or 'https://api.search.brave.com'}/res/v1/web/search"
            f"?count={min(search.count, 20)}&q={quote(search.with_sites[:400])}"
        ),
        lambda key: {"x-subscription-token": key},
        None,
        FieldMapping(results="web.results", text="description", age="age"),
    ),
    "tavily": Service(
        lambda url, search: f"{url or 'https://api.tavily.com'}/search",
        lambda key: {"authorization": f"Bearer {key}"},
        lambda search: {
            "query": search.query,
            "max_results": min(search.count, 20),
            "include_domains": list(search.domains.allowed),
            "exclude_domains": list(search.domains.blocked),
        },
        FieldMapping(age="published_date"),
    ),
    "exa": Service(
        lambda url, search: f"{url or 'https://api.exa.ai'}/search",
        lambda key: {"x-api-key": key},
        lambda search: {
            "query": search.query,
            "numResults": search.count,
            "contents": {"text": {"maxCharacters": MAX_TEXT}},
            **({"includeDomains": list(search.domains.allowed)} if search.domains.allowed else {}),
            **({"excludeDomains": list(search.domains.blocked)} if search.domains.blocked else {}),
        },
        FieldMapping(text="text", age="publishedDate"),
    ),
}


def backend_of(settings: WebSearchSettings, client: http1.Client) -> Backend:
    """Who searches as a template says."""
    if settings.backend == "files":
        assert settings.folder is not None
        return Files(Path(settings.folder))
    if settings.backend == "command":
        return Command(settings)
    return HTTPService(settings, client)


class HTTPService:
    """A service over HTTP, of `SERVICES` or the template's own.

    Args:
        settings: of the template.
        client: asks it.
    """

    def __init__(self, settings: WebSearchSettings, client: http1.Client) -> None:
        self._settings = settings
        self._client = client
        self._service = SERVICES.get(settings.backend) or Service(
            _filled_url,
            lambda key: {"authorization": f"Bearer {key}"} if key else {},
            None,
            settings.mapping,
        )

    async def find(self, search: SearchQuery) -> list[WebSource]:
        """What the service finds."""
        settings, service = self._settings, self._service
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        headers = service.headers(key)
        headers |= {name: each.get_secret_value() for name, each in settings.headers.items()}
        body: Any = None
        if service.body is not None:
            body = service.body(search)
        elif settings.backend == "http" and settings.body is not None:
            body = {
                name: _filled(each, search) if isinstance(each, str) else each
                for name, each in settings.body.items()
            }
        url = service.url(settings.url or "", search)
        answer = await ask_json(self._client, url, headers, body)
        return sources_in(answer, service.fields)


class Command:
    """A program of this machine, one process a search, which ends with it.

    Args:
        settings: of the template.
    """

    def __init__(self, settings: WebSearchSettings) -> None:
        self._settings = settings

    async def find(self, search: SearchQuery) -> list[WebSource]:
        """What the program prints."""
        given = {
            "query": search.query,
            "count": search.count,
            "allowed_domains": search.domains.allowed,
            "blocked_domains": search.domains.blocked,
        }
        try:
            process = await start_program(
                self._settings.command, environments.of_program(self._settings.env)
            )
        except OSError as error:
            raise ToolError(
                "unavailable", f"The search program can't be started: {error.strerror}."
            ) from None
        try:
            printed = await _printed(process, json.dumps(given).encode())
        finally:
            await end_program(process)
        try:
            answer = await off_loop(len(printed), json.loads, printed)
        except (ValueError, RecursionError):
            raise ToolError("unavailable", "The search program did not print JSON.") from None
        return sources_in(answer, self._settings.mapping)


async def _printed(process: Process, given: bytes) -> bytes:
    """What a program prints that is given this.

    Raises:
        ToolError: it fails, or prints more than is read.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):  # It may need nothing.
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()
    try:
        await process.stdout.readexactly(MAX_JSON_BYTES + 1)
    except asyncio.IncompleteReadError as ended:
        printed = ended.partial
    else:
        size = MAX_JSON_BYTES >> 20
        raise ToolError("unavailable", f"The search program printed more than {size} MB.")
    if await process.wait():
        raise ToolError("unavailable", "The search program failed.")
    return printed


class Files:
    """The files of a folder: those come first that have most of the words.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(self, search: SearchQuery) -> list[WebSource]:
        """The files that have any of the words."""
        return await asyncio.to_thread(self._find, search)

    def _find(self, search: SearchQuery) -> list[WebSource]:
        words = set(re.findall(r"\w+", search.query.lower()))
        found: list[tuple[int, WebSource]] = []
        for path in sorted(self._folder.glob("*")):
            if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                continue
            text = path.read_text("utf-8", "replace")
            hits = len(words & set(re.findall(r"\w+", text.lower())))
            if hits:
                title, _, rest = text.partition("\n")
                first, _, others = rest.partition("\n")
                url = f"https://files.example/{quote(path.name)}"
                if first.startswith(("http://", "https://")):
                    url, rest = first.strip(), others
                found.append((-hits, WebSource(url, title.strip(), rest.strip()[:MAX_TEXT])))
        return [source for _, source in sorted(found, key=lambda each: each[0])]


def sources_in(answer: Any, fields: FieldMapping) -> list[WebSource]:
    """The results in a service's answer; what has no URL is none.

    Raises:
        ToolError: it has no list of results.
    """
    results = _member(answer, fields.results)
    if results is None:
        return []
    if not isinstance(results, list):
        raise ToolError("unavailable", "The search gave no list of results.")
    return list(_sources(results, fields))


def _sources(results: Iterable[Any], fields: FieldMapping) -> Iterable[WebSource]:
    for each in results:
        url = _member(each, fields.url)
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            title, text, age = (
                _member(each, name) if name else None
                for name in (fields.title, fields.text, fields.age)
            )
            yield WebSource(
                url,
                str(title or ""),
                str(text or "")[:MAX_TEXT],
                str(age) if age else None,
            )


def _member(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _filled(text: str, search: SearchQuery) -> str:
    return text.replace("{count}", str(search.count)).replace("{query}", search.with_sites)


def _filled_url(url: str, search: SearchQuery) -> str:
    count = str(search.count)
    return url.replace("{count}", count).replace("{query}", quote(search.with_sites))
