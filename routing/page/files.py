"""Serves the page's files, which need nothing from anywhere else."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    import os

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


class _Assets(StaticFiles):
    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: MutableMapping[str, Any],
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def add_page(app: FastAPI) -> None:
    """Serve the page at `/` to who opens the server in a browser."""
    assets = _Assets(directory=FOLDER)
    app.mount(ASSETS, assets, name="page")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)
