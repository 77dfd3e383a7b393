"""Gemini's batch API: `batchGenerateContent` of a file, and a file of results.

https://ai.google.dev/gemini-api/docs/batch-api and https://ai.google.dev/api/batch-api; files as
https://ai.google.dev/api/files and google-genai 3.4.0 have them (2026-11-23): inputs of 2 GB, which
expire after 48 hours. Google's OpenAI-compatible API has batches as well, but no files, so what is
reached over it is asked by requests.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Raw, Struct

from llama_compat.errors import upstream_error
from llama_compat.wire.json_fields import encode_json
from providers.remote.batches.base import (
    MAX_PAGES,
    PAGE,
    FoundBatch,
    InputEnvelope,
    LineAnswer,
    Order,
    VendorBatch,
    VendorBatches,
    VendorProblem,
    VendorStatus,
    files_of,
    in_one_line,
    line_of,
)
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream

_GENERATE = re.compile(r"/(models/[^/:]+):generateContent")

_STATUSES = {
    "SUCCEEDED": VendorStatus.ended,
    "FAILED": VendorStatus.failed,
    "CANCELLED": VendorStatus.cancelled,
    "EXPIRED": VendorStatus.expired,
}
"""What follows `BATCH_STATE_`, or `JOB_STATE_`, at the end of a batch."""

_HTTP_BY_RPC = {1: 499, 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 13: 500, 14: 503, 16: 401}
"""HTTP statuses of google.rpc.Code (https://cloud.google.com/apis/design/errors)."""


class _Stats(Struct, frozen=True, rename="camel"):
    successful_request_count: int = 0
    failed_request_count: int = 0


class _Output(Struct, frozen=True, rename="camel"):
    responses_file: str | None = None


class _Meta(Struct, frozen=True, rename="camel"):
    display_name: str = ""
    state: str = ""
    batch_stats: _Stats = _Stats()
    output: _Output | None = None


class _Operation(Struct):
    name: str
    metadata: _Meta = _Meta()
    done: bool = False
    error: Any = None
    response: Any = None


class _Page(Struct, rename="camel"):
    operations: list[_Operation] = []
    next_page_token: str = ""


class _File(Struct):
    name: str


class _Uploaded(Struct):
    file: _File


class _Line(Struct):
    key: str
    response: Raw = Raw(b"")
    error: Any = None


_lines = msgspec.json.Decoder(_Line)


class GeminiBatches(VendorBatches):
    """Gemini's.

    Args:
        provider, upstream: as for each.
        base_url: of the provider, with the API's version.
    """

    max_lines = 100_000
    max_bytes = 1_000_000_000

    def __init__(self, provider: str, upstream: Upstream, base_url: str) -> None:
        super().__init__(provider, upstream)
        parts = urlsplit(base_url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path

    def endpoint(self, unsent: Unsent) -> str | None:
        found = _GENERATE.fullmatch(unsent.path)
        return found[1] if found else None

    def line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        return b'{"key":"%b","request":%b}' % (custom_id.encode(), in_one_line(body))

    def envelope(self, order: Order) -> InputEnvelope:
        return InputEnvelope(b"", b"\n", b"\n", "application/jsonl")

    async def upload(self, order: Order, body: memoryview) -> str:
        begun = self.upstream.post(
            f"/upload{self._path}/files",
            encode_json({"file": {"display_name": order.id}}),
            base_url=self._origin,
            headers={
                "x-goog-upload-protocol": "resumable",
                "x-goog-upload-command": "start",
                "x-goog-upload-header-content-length": str(len(body)),
                "x-goog-upload-header-content-type": "application/jsonl",
            },
        )
        async with begun as response:
            await response.read()
            url = urlsplit(response.headers.get("x-goog-upload-url", ""))
        if f"{url.scheme}://{url.netloc}" != self._origin:
            raise upstream_error(self.provider, "gave no address of its own to send a file to.")
        sent = self.upstream.post(
            f"{url.path}?{url.query}" if url.query else url.path,
            body,
            base_url=self._origin,
            headers={
                "content-type": "application/jsonl",
                "x-goog-upload-offset": "0",
                "x-goog-upload-command": "upload, finalize",
            },
        )
        async with sent as response:
            return self.decoded(await response.read(), _Uploaded).file.name

    async def create(self, order: Order, body: memoryview | None) -> VendorBatch:
        asked = {
            "batch": {
                "display_name": order.id,
                "input_config": {"file_name": order.input_file},
            }
        }
        path = f"/{order.endpoint}:batchGenerateContent"
        async with self.upstream.post(path, encode_json(asked)) as response:
            return _shown(self.decoded(await response.read(), _Operation))

    async def find(self, order: Order) -> FoundBatch:
        token = ""
        for _ in range(MAX_PAGES):
            page = await self.said(f"/batches?pageSize={PAGE}{token}", _Page)
            for each in page.operations:
                if each.metadata.display_name == order.id:
                    return FoundBatch(_shown(each))
            if not page.next_page_token:
                break
            token = f"&pageToken={quote(page.next_page_token, safe='')}"
        return FoundBatch(None)

    async def look(self, batch_id: str) -> VendorBatch:
        return _shown(await self.said(f"/{quote(batch_id)}", _Operation))

    async def cancel(self, batch_id: str) -> None:
        async with self.upstream.post(f"/{quote(batch_id)}:cancel", b"{}") as response:
            await response.read()

    def results(self, output: str) -> AsyncGenerator[bytes, None]:
        path = f"/download{self._path}/{quote(output)}:download?alt=media"
        return self.downloaded(path, base_url=self._origin)

    def answer(self, line: bytes) -> LineAnswer:
        said = line_of(line, _lines)
        if said.error is None:
            if not said.response:
                raise ValueError("neither a response nor an error")
            return LineAnswer(said.key, 200, bytes(said.response))
        told = said.error if isinstance(said.error, dict) else {"message": str(said.error)}
        code = told.get("code")
        status = code if isinstance(code, int) else 500
        status = _HTTP_BY_RPC.get(status, status if 400 <= status < 600 else 500)
        body = encode_json({"error": {**told, "code": status}})
        return LineAnswer(said.key, status, bytes(body))

    async def clean(self, order: Order, batch: VendorBatch | None) -> None:
        await self.remove([f"/{quote(each)}" for each in files_of(order, batch)])


def _shown(operation: _Operation) -> VendorBatch:
    meta, response = operation.metadata, operation.response
    output = meta.output.responses_file if meta.output is not None else None
    if output is None and isinstance(response, dict):
        output = response.get("responsesFile")
    status = _STATUSES.get(meta.state.rpartition("_")[2], VendorStatus.running)
    problems = []
    if isinstance(operation.error, dict):
        if status is VendorStatus.running:
            status = VendorStatus.failed
        problems = [VendorProblem("", str(operation.error.get("message") or "no reason given"))]
    stats = meta.batch_stats
    return VendorBatch(
        operation.name,
        status,
        stats.successful_request_count + stats.failed_request_count,
        [output] if output else [],
        problems,
    )
