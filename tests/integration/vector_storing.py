"""What the tests of vector stores share: a vendor whose vectors can be foretold, and a template."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openai
from aiohttp import web

from tests.clients.scripted_models import Asked, Said, Script, ScriptedModels
from tests.integration.server_process import ServerProcess, write_template

ANN, BOB, NOBODY = "sk-ann-12345678", "sk-bob-12345678", "sk-nob-12345678"

DIMENSIONS = 64

WAIT_SECONDS = 60

SAME = {"automobile": "car", "vehicle": "car", "feline": "cat", "kitten": "cat"}
"""Words that mean about the same, to the vendor's model."""


def vector_of(text: str) -> list[float]:
    """A vector with a direction for each of the words' meanings."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(SAME.get(word, word).encode()) % DIMENSIONS] += 1.0
    return vector


def quiet(asked: Asked) -> Said:
    """A model without anything to say."""
    return Said("Nothing.")


class EmbeddingVendor(ScriptedModels):
    """A vendor with chat completions and embeddings.

    Attributes:
        embedded: the texts of which it has made vectors, in order.
        failing: the status with which it answers; 0 for the usual.
        busy: it answers every so many-th request with 429; 0 for none.
        open: answers wait for it.
    """

    def __init__(self, script: Script = quiet, *, responses: bool = False) -> None:
        super().__init__(script, responses=responses)
        self.embedded: list[str] = []
        self.failing = self.busy = 0
        self.open = threading.Event()
        self.open.set()
        self.asked = 0

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        super()._add_routes(router)
        router.add_post("/v1/embeddings", self._embed)

    async def _embed(self, request: web.Request) -> web.Response:
        texts: Sequence[str] = (await request.json())["input"]
        self.asked += 1
        while not self.open.is_set():  # noqa: ASYNC110 (the event is of another thread)
            await asyncio.sleep(0.01)
        if self.failing:
            return web.json_response({"error": {"message": "not now"}}, status=self.failing)
        if self.busy and self.asked % self.busy == 0:
            return web.json_response({"error": {"message": "slowly"}}, status=429)
        self.embedded += texts
        data = [
            {"object": "embedding", "index": place, "embedding": vector_of(text)}
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return web.json_response({"object": "list", "model": "embed", "data": data, "usage": usage})


def store_template(
    folder: Path,
    vendor: EmbeddingVendor,
    storage: str = "",
    *,
    has_files: bool = False,
    **server: Any,
) -> Path:
    """A template with the models `m` and `embed` of a vendor, and vector stores.

    Args:
        folder: for the template and all files.
        vendor: that.
        storage: an address; SQLite in the folder if it is empty.
        has_files: whether the vendor has the Responses API, and file search with stores of its own.
        server: more settings.
    """
    own = {"wires": ["chat", "embeddings", "responses"], "hosted_tools": ["file_search"]}
    return write_template(
        folder / "stores.yaml",
        server={
            "storage": storage or f"sqlite:{folder / 'operations.sqlite'}",
            "files": {"path": str(folder / "files")},
            "shutdown_grace_seconds": 2,
            **server,
            "vector_stores": {
                "embedding_model": "embed",
                "lease_seconds": 1,
                **server.get("vector_stores", {}),
            },
        },
        teams=[{"id": "one"}],
        keys=[
            {"name": "ann", "key": ANN, "team": "one"},
            {"name": "bob", "key": BOB, "team": "one"},
            {"name": "nobody", "key": NOBODY, "tools": []},
        ],
        providers=[
            {
                "id": "vendor",
                "type": "remote::passthrough",
                "config": {
                    "base_url": vendor.url,
                    "api_key": "none",
                    **(own if has_files else {}),
                },
            }
        ],
        models=[{"id": "m", "provider": "vendor"}, {"id": "embed", "provider": "vendor"}],
    )


def client_of(server: ServerProcess, key: str = ANN) -> openai.OpenAI:
    """OpenAI's own client of a server."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def uploaded(client: openai.OpenAI, name: str, content: str | bytes) -> str:
    """The id of a file that is there now."""
    data = content.encode() if isinstance(content, str) else content
    return client.files.create(file=(name, data), purpose="assistants").id


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
