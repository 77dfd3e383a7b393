"""Serves the page's files, which need nothing from anywhere else."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from fastapi import FastAPI

FOLDER = Path(__file__).parent / "assets"

ASSETS = "/page"
"""Where the page's files are; the page itself is at `/`."""

PATHS = frozenset(
    {"/", *(f"{ASSETS}/{each.relative_to(FOLDER).as_posix()}" for each in FOLDER.rglob("*.*"))}
)
"""What anybody may read: there is nothing in it that is not in the package."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        # Images of a conversation are in the page's own memory.
        "img-src 'self' data: blob:",
        # So are a recording, and a reply that is read aloud.
        "media-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        # DOMPurify's alone, which parses what a model wrote and takes out what could do anything.
        "trusted-types dompurify",
    )
)
"""No script, style or connection but this server's own, and no text that becomes
markup but through the sanitiser."""

HEADERS = {
    # Asked for again each time, and not sent again while it is the same.
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


COMPRESSED = frozenset({".css", ".html", ".js", ".json", ".svg", ".txt"})
"""What a file is called that is much smaller when it is compressed."""

LEAST_BYTES = 500
"""A file that is smaller is sent as it is."""


class Assets(StaticFiles):
    """Files of a folder, compressed for who takes that.

    Args:
        directory: the folder.
        headers: what goes with each of them.
    """

    def __init__(self, directory: Path, headers: Mapping[str, str]) -> None:
        super().__init__(directory=directory)
        self._headers = {**headers, "vary": "accept-encoding"}

    async def get_response(self, path: str, scope: MutableMapping[str, Any]) -> Response:
        """The file at `path`; 304 where the client has it already.

        Raises:
            HTTPException: 404 or 405.
        """
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse) and _takes_gzip(scope, response):
            response = await _smaller(response)
        response.headers.update(self._headers)
        return response


def _takes_gzip(scope: MutableMapping[str, Any], response: FileResponse) -> bool:
    given = Headers(scope=scope)
    accepted = {each.strip() for each in given.get("accept-encoding", "").split(",")}
    return (
        scope["method"] == "GET"
        and "range" not in given
        and "gzip" in accepted
        and Path(response.path).suffix in COMPRESSED
        and int(response.headers["content-length"]) >= LEAST_BYTES
    )


async def _smaller(response: FileResponse) -> Response:
    """The same, compressed."""
    headers = {name: response.headers[name] for name in ("content-type", "last-modified", "etag")}
    content = await asyncio.to_thread(_gzipped, str(response.path), headers["etag"])
    # Other bytes that mean the same: a tag that says so much holds for both.
    headers |= {"etag": f"W/{headers['etag']}", "content-encoding": "gzip"}
    return Response(content, response.status_code, headers)


@lru_cache(maxsize=128)
def _gzipped(path: str, _: str) -> bytes:
    """The compressed file; another one as soon as its tag is."""
    return gzip.compress(Path(path).read_bytes(), mtime=0)


def add_page(app: FastAPI) -> None:
    """Serve the page at `/` to who opens the server in a browser."""
    assets = Assets(FOLDER, HEADERS)
    app.mount(ASSETS, assets, name="page")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)
