"""OpenAI's batch API, and those that follow it: an input is a file, and so are the results.

https://developers.openai.com/api/docs/guides/batch, openai 3.52.0 (2026-11-23); what differs is in
`rows`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Raw, Struct

from llama_compat.wire.json_fields import encode_json
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
    VendorProblem,
    VendorStatus,
    files_of,
    in_one_line,
    line_of,
)
from providers.remote.batches.rows import BatchRow
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream

OURS = "llama_compat"
"""What an order is called by in its `metadata`."""

WINDOW = "24h"
"""All of them take it."""

_DEPLOYMENT = re.compile(r"^/openai/(deployments/[^/]+|v1)(?=/)")
"""How Azure's paths begin."""

_STATUSES: Mapping[str, VendorStatus] = {
    "completed": VendorStatus.ended,
    "success": VendorStatus.ended,
    "failed": VendorStatus.failed,
    "expired": VendorStatus.expired,
    "timeout_exceeded": VendorStatus.expired,
    "cancelled": VendorStatus.cancelled,
}
"""Those at which a batch has come to its end; with all others it runs."""

UNDONE = frozenset({"batch_expired", "batch_cancelled"})
"""The codes of lines that were never asked."""


class _File(Struct):
    id: str


class _Counts(Struct):
    completed: int | None = 0
    failed: int | None = 0


class _Job(Struct):
    """A batch as any of them shows it."""

    id: str
    status: str
    created_at: Any = None
    input_file_id: str | None = None
    input_files: list[str] | None = None
    metadata: dict[str, Any] | None = None
    request_counts: _Counts | None = None
    completed_requests: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    output_file: str | None = None
    error_file: str | None = None
    errors: Any = None
    error: Any = None


class _Created(Struct):
    """What Together answers an order with."""

    job: _Job


class _Page(Struct):
    data: list[_Job] = []
    has_more: bool = False


class _Response(Struct):
    status_code: int = 200
    body: Raw = Raw(b"null")


class _Result(Struct):
    custom_id: str
    response: _Response | None = None
    error: Any = None


_results = msgspec.json.Decoder(_Result)


class OpenAIBatches(VendorBatches):
    """OpenAI's, or one that follows it.

    Args:
        provider, upstream: as for each.
        base_url: of the provider.
        row: what is particular about it.
    """

    def __init__(self, provider: str, upstream: Upstream, base_url: str, row: BatchRow) -> None:
        super().__init__(provider, upstream)
        self._row = row
        self.max_lines, self.max_bytes = row.max_lines, row.max_bytes
        parts = urlsplit(base_url)
        self._base_url = f"{parts.scheme}://{parts.netloc}{row.root}" if row.root else None

    def endpoint(self, unsent: Unsent) -> str | None:
        path = _DEPLOYMENT.sub("", unsent.path.partition("?")[0])
        return self._row.endpoints.get(path)

    def line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        where = b""
        if self._row.lines_say_where:
            where = b'"method":"POST","url":"%b",' % endpoint.encode()
        return b'{"custom_id":"%b",%b"body":%b}' % (custom_id.encode(), where, in_one_line(body))

    def envelope(self, order: Order) -> InputEnvelope:
        boundary = f"llama-compat-{order.id}"
        members = {"purpose": self._row.purpose, **self._row.form}
        before = "".join(
            f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in members.items()
        )
        before += (
            f'--{boundary}\r\ncontent-disposition: form-data; name="file";'
            f' filename="{order.id}.jsonl"\r\ncontent-type: application/jsonl\r\n\r\n'
        )
        return InputEnvelope(
            before.encode(),
            b"\n",
            f"\n\r\n--{boundary}--\r\n".encode(),
            f"multipart/form-data; boundary={boundary}",
        )

    async def upload(self, order: Order, body: memoryview) -> str:
        exchange = self.upstream.post(
            self._row.upload or self._row.files,
            body,
            base_url=self._base_url,
            headers={"content-type": self.envelope(order).content_type},
        )
        async with exchange as response:
            return self.decoded(await response.read(), _File).id

    async def create(self, order: Order, body: memoryview | None) -> VendorBatch:
        asked: dict[str, Any] = {"endpoint": order.endpoint}
        if self._row.is_mistrals:
            asked |= {"input_files": [order.input_file], "model": order.model, "timeout_hours": 24}
        else:
            asked |= {"input_file_id": order.input_file, "completion_window": WINDOW}
        if self._row.has_metadata:
            asked["metadata"] = {OURS: order.id}
        exchange = self.upstream.post(self._row.jobs, encode_json(asked), base_url=self._base_url)
        async with exchange as response:
            answer = await response.read()
        with suppress(msgspec.MsgspecError):
            return _shown(msgspec.json.decode(answer, type=_Created, strict=False).job)
        return _shown(self.decoded(answer, _Job))

    async def find(self, order: Order) -> FoundBatch:
        after = ""
        for page in range(MAX_PAGES):
            query = f"?page={page}&page_size={PAGE}" if self._row.is_mistrals else f"?limit={PAGE}"
            if after and not self._row.is_mistrals:
                query += f"&after={quote(after, safe='')}"
            listed = await self._listed(self._row.jobs + query)
            jobs = listed if isinstance(listed, list) else listed.data
            for job in jobs:
                if _is(job, order):
                    return FoundBatch(_shown(job))
            if not jobs or isinstance(listed, list) or _older(jobs[-1], order):
                break
            if not (listed.has_more or self._row.is_mistrals):
                break
            after = jobs[-1].id
        return FoundBatch(None)

    async def _listed(self, path: str) -> _Page | list[_Job]:
        kind: Any = _Page | list[_Job]
        found: _Page | list[_Job] = await self.said(path, kind, base_url=self._base_url)
        return found

    async def look(self, batch_id: str) -> VendorBatch:
        path = f"{self._row.jobs}/{quote(batch_id, safe='')}"
        return _shown(await self.said(path, _Job, base_url=self._base_url))

    async def cancel(self, batch_id: str) -> None:
        path = f"{self._row.jobs}/{quote(batch_id, safe='')}/cancel"
        async with self.upstream.post(path, b"", base_url=self._base_url) as response:
            await response.read()

    def results(self, output: str) -> AsyncGenerator[bytes, None]:
        path = f"{self._row.files}/{quote(output, safe='')}/content"
        return self.downloaded(path, base_url=self._base_url)

    def answer(self, line: bytes) -> LineAnswer:
        result = line_of(line, _results)
        response, error = result.response, result.error
        if response is not None and bytes(response.body) != b"null":
            return LineAnswer(result.custom_id, response.status_code, bytes(response.body))
        told = error if isinstance(error, dict) else {"message": str(error or "no answer")}
        code = told.get("code")
        if code in UNDONE:
            return LineAnswer(result.custom_id, 0, was_cancelled=code == "batch_cancelled")
        status = response.status_code if response is not None else 0
        if not 400 <= status < 600:
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return LineAnswer(result.custom_id, status, bytes(encode_json({"error": told})))

    async def clean(self, order: Order, batch: VendorBatch | None) -> None:
        files = files_of(order, batch)
        paths = [f"{self._row.files}/{quote(each, safe='')}" for each in files]
        await self.remove(paths, base_url=self._base_url)


def _is(job: _Job, order: Order) -> bool:
    named = (job.metadata or {}).get(OURS)
    if named is not None:
        return bool(named == order.id)
    inputs = [job.input_file_id, *(job.input_files or ())]
    return bool(order.input_file) and order.input_file in inputs


def _older(job: _Job, order: Order) -> bool:
    created = job.created_at
    return isinstance(created, int | float) and created < order.asked - SKEW_SECONDS


def _shown(job: _Job) -> VendorBatch:
    counts = job.request_counts
    done = (counts.completed or 0) + (counts.failed or 0) if counts is not None else 0
    outputs = (job.output_file_id, job.error_file_id, job.output_file, job.error_file)
    return VendorBatch(
        job.id,
        _STATUSES.get(job.status.lower(), VendorStatus.running),
        done or job.completed_requests or 0,
        [each for each in outputs if each],
        list(_problems(job)),
    )


def _problems(job: _Job) -> Iterator[VendorProblem]:
    """Why it was refused, in whatever shape."""
    told = job.errors.get("data") if isinstance(job.errors, dict) else job.errors
    if not isinstance(told, list):
        told = [each for each in (told, job.error) if each]
    for each in told:
        if not isinstance(each, dict):
            yield VendorProblem("", str(each))
            continue
        line = each.get("line")
        yield VendorProblem(
            str(each.get("code") or ""),
            str(each.get("message") or "no reason given"),
            line if isinstance(line, int) and line > 0 else None,
        )
