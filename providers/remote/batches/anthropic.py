"""Anthropic's Message Batches: the lines are a part of the order, and the results a file of it.

https://platform.claude.com/docs/en/build-with-claude/batch-processing and .../api/messages/batches
(anthropic 2.11, 2026-11-23): 100,000 requests or 256 MB, which end within 24 hours; results for 29
days. An order has no name of ours: what its lines are called tells, once there are results.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from providers.remote.batches.base import (
    MAX_PAGES,
    PAGE,
    SKEW_SECONDS,
    FoundBatch,
    InputEnvelope,
    LineAnswer,
    Order,
    VendorBatch,
    VendorBatches,
    VendorStatus,
    in_one_line,
    line_of,
)
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.vendor_errors import STATUS_BY_TYPE

PATH = "/v1/messages/batches"

_HEADERS = ("anthropic-version", "anthropic-beta")


class _Counts(Struct, frozen=True):
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class _Batch(Struct):
    id: str
    processing_status: str
    created_at: datetime
    request_counts: _Counts = _Counts()


class _Page(Struct):
    data: list[_Batch] = []
    has_more: bool = False


class _Error(Struct, frozen=True):
    type: str = ""


class _ErrorBody(Struct, frozen=True):
    error: _Error = _Error()


class _Result(Struct):
    type: str
    message: Raw = Raw(b"")
    error: Raw = Raw(b"")


class _Line(Struct):
    custom_id: str
    result: _Result


_lines = msgspec.json.Decoder(_Line)
_errors = msgspec.json.Decoder(_ErrorBody)


class AnthropicBatches(VendorBatches):
    """Anthropic's."""

    max_lines = 100_000
    max_bytes = 256_000_000

    def endpoint(self, unsent: Unsent) -> str | None:
        return "/v1/messages" if unsent.path == "/v1/messages" else None

    def headers(self, unsent: Unsent) -> Mapping[str, str]:
        return {name: unsent.headers[name] for name in _HEADERS if name in unsent.headers}

    def line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        return b'{"custom_id":"%b","params":%b}' % (custom_id.encode(), in_one_line(body))

    def envelope(self, order: Order) -> InputEnvelope:
        return InputEnvelope(b'{"requests":[', b",", b"]}", "application/json")

    async def create(self, order: Order, body: memoryview | None) -> VendorBatch:
        assert body is not None
        async with self.upstream.post(PATH, body, headers=order.headers) as response:
            return _shown(self.decoded(await response.read(), _Batch))

    async def find(self, order: Order) -> FoundBatch:
        after, may_be = "", False
        for _ in range(MAX_PAGES):
            page = await self.said(f"{PATH}?limit={PAGE}{after}", _Page)
            for batch in page.data:
                if batch.created_at.timestamp() < order.asked - SKEW_SECONDS:
                    return FoundBatch(None, may_be)
                if sum(msgspec.structs.astuple(batch.request_counts)) != order.lines:
                    continue
                shown = _shown(batch)
                if shown.status is VendorStatus.running:
                    may_be = True
                elif await self._begins(batch.id, order.id):
                    return FoundBatch(shown)
            if not (page.has_more and page.data):
                break
            after = f"&after_id={quote(page.data[-1].id, safe='')}"
        return FoundBatch(None, may_be)

    async def _begins(self, batch_id: str, order_id: str) -> bool:
        """Whether the first of a batch's results is a line of the order."""
        held = b""
        async with aclosing(self.results(batch_id)) as pieces:
            async for piece in pieces:
                held += piece
                if b"\n" in held:
                    break
        try:
            return self.answer(held.partition(b"\n")[0]).custom_id.startswith(f"{order_id}-")
        except ValueError:
            return False

    async def look(self, batch_id: str) -> VendorBatch:
        return _shown(await self.said(f"{PATH}/{quote(batch_id, safe='')}", _Batch))

    async def cancel(self, batch_id: str) -> None:
        path = f"{PATH}/{quote(batch_id, safe='')}/cancel"
        async with self.upstream.post(path, b"") as response:
            await response.read()

    def results(self, output: str) -> AsyncGenerator[bytes, None]:
        return self.downloaded(f"{PATH}/{quote(output, safe='')}/results")

    def answer(self, line: bytes) -> LineAnswer:
        said = line_of(line, _lines)
        result = said.result
        if result.type == "succeeded":
            return LineAnswer(said.custom_id, 200, bytes(result.message))
        if result.type == "errored":
            told = line_of(bytes(result.error), _errors)
            return LineAnswer(
                said.custom_id, STATUS_BY_TYPE.get(told.error.type, 500), bytes(result.error)
            )
        if result.type not in ("canceled", "expired"):
            raise ValueError(f"a result of the type '{result.type[:40]}'")
        return LineAnswer(said.custom_id, 0, was_cancelled=result.type == "canceled")


def _shown(batch: _Batch) -> VendorBatch:
    counts = batch.request_counts
    done = counts.succeeded + counts.errored
    if batch.processing_status != "ended":
        return VendorBatch(batch.id, VendorStatus.running, done)
    # Each line that was not answered says why, so all of it has ended in the same way.
    return VendorBatch(batch.id, VendorStatus.ended, done, [batch.id])
