"""An application in this process, asked without a server in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.app import Application
from tests.integration.server_process import write_template

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def serving(folder: Path, **sections: Any) -> AsyncGenerator[Application]:
    """One that serves a template of these sections."""
    template = write_template(folder / "template.yaml", **sections)
    app = Application(load_distribution(str(template), config_model))
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def nothing_more() -> None:
    """Nobody waits for the answer."""


async def ask(
    app: Application,
    body: dict[str, Any],
    key: str,
    *,
    method: str = "POST",
    at_last_byte: Callable[[], Awaitable[None]] = nothing_more,
) -> int:
    """The status of a chat; `at_last_byte` is awaited inside of the server's sending that."""
    statuses: list[int] = []
    pending = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        elif not message.get("more_body"):
            await at_last_byte()

    scope = {
        "type": "http",
        "method": method,
        "path": CHAT,
        "headers": [(b"authorization", f"Bearer {key}".encode())],
        "query_string": b"",
    }
    await app(scope, receive, send)
    (status,) = statuses
    return status
