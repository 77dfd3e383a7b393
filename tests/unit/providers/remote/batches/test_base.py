"""What all vendors' batch APIs have in common, asked of a vendor that is a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from llama_compat.errors import APIError
from providers.remote.batches.anthropic import AnthropicBatches
from providers.remote.batches.base import Order, VendorBatch, VendorBatches, VendorStatus
from providers.remote.batches.gemini import GeminiBatches
from providers.remote.batches.openai import OpenAIBatches
from providers.remote.batches.rows import OPENAIS
from providers.remote.config import RemoteConfig
from providers.remote.upstream.exchanges import Upstream

ORDER = Order("order_1", "/v1/chat/completions", "m", {}, input_file="files/input")
STATUSES = {"input": 404, "output": 500, "errors": 200}


class Vendor:
    """Deletes files, with the status that each is to have.

    Attributes:
        deleted: those that it was asked for.
    """

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"].rpartition("/")[2]
        self.deleted.append(name)
        return web.json_response({"id": name}, status=STATUSES[name])


@pytest.fixture
async def vendor() -> AsyncIterator[tuple[Vendor, Upstream, str]]:
    vendor, app = Vendor(), web.Application()
    app.router.add_delete("/{name:.*}", vendor.delete)
    async with TestServer(app) as server:
        url = str(server.make_url("/v1"))
        upstream = Upstream("v", RemoteConfig(base_url=url), {})
        await upstream.start()
        yield vendor, upstream, url
        await upstream.stop()


def test_half_a_character_is_no_nonsense() -> None:
    """A reply that had been paid for was lost with it."""
    url = "https://v.example/v1"
    upstream = Upstream("v", RemoteConfig(base_url=url), {})
    said = {"text": "a\ud83d", "emoji": "\ud83d\ude00"}
    lines: list[tuple[VendorBatches, dict[str, Any]]] = [
        (
            AnthropicBatches("v", upstream),
            {"custom_id": "a-1", "result": {"type": "succeeded", "message": said}},
        ),
        (GeminiBatches("v", upstream, url), {"key": "a-1", "response": said}),
        (
            OpenAIBatches("v", upstream, url, OPENAIS),
            {"custom_id": "a-1", "response": {"status_code": 200, "body": said}},
        ),
    ]
    for batches, line in lines:
        answer = batches.answer(json.dumps(line).encode())
        assert (answer.custom_id, answer.status) == ("a-1", 200)
        assert json.loads(answer.body) == {"text": "a\ufffd", "emoji": "\U0001f600"}


@pytest.mark.parametrize("api", ["openai", "gemini"])
async def test_files_are_removed_whatever_comes_of_the_others(
    vendor: tuple[Vendor, Upstream, str], api: str
) -> None:
    """One may be gone: it has expired, or was removed before the process died that did so."""
    there, upstream, url = vendor
    batches: VendorBatches = (
        OpenAIBatches("v", upstream, url, OPENAIS)
        if api == "openai"
        else GeminiBatches("v", upstream, url)
    )
    batch = VendorBatch("b", VendorStatus.ended, outputs=["files/output", "files/errors"])
    with pytest.raises(APIError) as stays:
        await batches.clean(ORDER, batch)
    assert stays.value.status >= 500
    assert there.deleted == ["input", "output", "errors"]
    await batches.clean(ORDER, None)
