"""Vendors with batch APIs, which refuse what the real ones refuse.

Written from the vendors' own pages and SDKs, and not from what is tested against it: openai 3.52.0
and https://developers.openai.com/api/docs/guides/batch; MicrosoftDocs/azure-ai-docs, batch-rest.md;
groq-python; mistralai/client-python (batchjob.py) and https://docs.mistral.ai/capabilities/batch;
https://docs.together.ai/docs/inference/batch and together-python (batch.py);
anthropic 2.11 and https://platform.claude.com/docs/en/build-with-claude/batch-processing;
google-genai 3.4.0 and https://ai.google.dev/gemini-api/docs/batch-api; all read on 2026-11-23.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.server_thread import WebServerThread

KEY = "sk-vendor"
USAGE = 1000
"""Tokens of each prompt, and of each reply."""

PREFIXES = {
    "openai": "/v1",
    "azure": "/openai/v1",
    "groq": "/openai/v1",
    "mistral": "/v1",
    "together": "/v1",
    "anthropic": "/v1",
    "gemini": "/v1beta",
}
"""By kind, where its paths begin."""

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OPENAI_ENDPOINTS = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
}


class Refused(Exception):
    """What the vendor does not take."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Job:
    """One batch.

    Attributes:
        id: the vendor's.
        asked: what was sent to have it made.
        lines: what is asked: custom_id and body of each.
        status: as OpenAI calls it.
        results: lines, by whether they are good.
        said: what is told of a batch that failed.
    """

    id: str
    asked: dict[str, Any]
    lines: list[tuple[str, dict[str, Any]]]
    created: float
    status: str = "in_progress"
    results: dict[bool, list[dict[str, Any]]] = field(default_factory=lambda: {True: [], False: []})
    said: list[dict[str, Any]] = field(default_factory=list)


class BatchVendor(WebServerThread):
    """One vendor.

    Args:
        kind: which.

    Attributes:
        go: as long as it is clear no batch comes to its end.
        jobs: all batches, in the order in which they were made.
        paid: how often each text was answered in a batch.
        single: how often each was answered by a request.
        answers: the status that a text gets in a batch, and in a request.
        refuse: what the next orders are answered with, instead of being taken.
        hold: the step that is held up until `release`: `create` (before it is made), `created`
            (after it is made, before it is told), `results` (in the middle of them).
        held: set when a step is held up.
        answered: of a batch that is cancelled or has expired so many lines are answered.
        ends_as: how batches end.
        fails: what is told of batches that fail, once each.
        looks: how often somebody looked at a batch.
        deleted: files.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.prefix = PREFIXES[kind]
        self.go = threading.Event()
        self.go.set()
        self.files: dict[str, bytes] = {}
        self.jobs: list[Job] = []
        self.paid: Counter[str] = Counter()
        self.single: Counter[str] = Counter()
        self.answers: Callable[[str, bool], int] = lambda text, in_batch: 200
        self.refuse: list[tuple[int, str]] = []
        self.hold = ""
        self.held = threading.Event()
        self.release = threading.Event()
        self.answered = 0
        self.ends_as = "completed"
        self.fails: list[list[dict[str, Any]]] = []
        self.looks = 0
        self.deleted: list[str] = []
        self.headers: list[Mapping[str, str]] = []

    def wait_held(self) -> None:
        """Wait until a step is held up."""
        assert self.held.wait(60), "nothing came"

    async def _holding(self, step: str) -> None:
        if self.hold != step:
            return
        self.hold = ""
        self.held.set()
        while not self.release.is_set():  # noqa: ASYNC110 (it is set in another thread)
            await asyncio.sleep(0.01)

    # What all have --------------------------------------------------------------------------------

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            self._check_key(request)
            return await self._routed(request)
        except Refused as refused:
            return web.json_response(self._error(refused), status=refused.status)

    def _check_key(self, request: web.Request) -> None:
        names = {"azure": "api-key", "gemini": "x-goog-api-key", "anthropic": "x-api-key"}
        name = names.get(self.kind, "authorization")
        wanted = f"Bearer {KEY}" if name == "authorization" else KEY
        if request.headers.get(name) != wanted:
            raise Refused("bad key", 401, "invalid_api_key")
        if self.kind == "anthropic" and "anthropic-version" not in request.headers:
            raise Refused("anthropic-version: header is required")

    def _error(self, refused: Refused) -> dict[str, Any]:
        kind = {429: "rate_limit_error", 404: "not_found_error", 500: "api_error"}.get(
            refused.status, "invalid_request_error"
        )
        error = {"type": kind, "message": str(refused), "code": refused.code}
        if self.kind == "anthropic":
            return {"type": "error", "error": {"type": kind, "message": str(refused)}}
        return {"error": error}

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        if self.kind == "anthropic":
            return await self._anthropic(request)
        if self.kind == "gemini":
            return await self._gemini(request)
        return await self._openai(request)

    def _begin(self, asked: dict[str, Any], lines: list[tuple[str, dict[str, Any]]]) -> Job:
        if not lines:
            raise Refused("the batch has no requests")
        if len({custom_id for custom_id, _ in lines}) != len(lines):
            raise Refused("custom_id must be unique")
        job = Job(f"{self._job_prefix}{len(self.jobs)}x", asked, lines, time.time())
        if self.fails:
            job.said, job.status = self.fails.pop(0), "failed"
        self.jobs.append(job)
        return job

    @property
    def _job_prefix(self) -> str:
        return {"anthropic": "msgbatch_", "gemini": "batches/"}.get(self.kind, "batch_")

    async def _made(self, make: Callable[[], Job]) -> Job:
        """Take an order, or not."""
        await self._holding("create")
        if self.refuse:
            status, code = self.refuse.pop(0)
            raise Refused("not now", status, code)
        job = make()
        await self._holding("created")
        return job

    def _found(self, job_id: str) -> Job:
        for job in self.jobs:
            if job.id == job_id:
                return job
        raise Refused(f"no batch {job_id}", 404)

    def _looked(self, job: Job) -> Job:
        """A batch, once somebody has looked at it."""
        self.looks += 1
        if job.status == "cancelling":
            self._end(job, "cancelled", self.answered)
        elif job.status == "in_progress" and self.go.is_set():
            limit = None if self.ends_as == "completed" else self.answered
            self._end(job, self.ends_as, limit)
        return job

    def _end(self, job: Job, status: str, limit: int | None) -> None:
        done = job.lines if limit is None else job.lines[:limit]
        for custom_id, body in reversed(done):  # in no order that anybody may count on
            text = _text(body)
            code = self.answers(text, True)
            if code == 200:
                self.paid[text] += 1
            job.results[code == 200].append(self._result(custom_id, body, code))
        for custom_id, _ in job.lines[len(done) :]:
            undone = self._undone(custom_id, status)
            if undone is not None:
                job.results[False].append(undone)
        job.status = status

    # The answers ----------------------------------------------------------------------------------

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request."""
        text = _text(body)
        if self.kind == "anthropic":
            return {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": body.get("model"),
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": USAGE, "output_tokens": USAGE},
            }
        if self.kind == "gemini":
            return {
                "candidates": [
                    {
                        "content": {"role": "model", "parts": [{"text": text}]},
                        "finishReason": "STOP",
                        "index": 0,
                    }
                ],
                "usageMetadata": {
                    "promptTokenCount": USAGE,
                    "candidatesTokenCount": USAGE,
                    "totalTokenCount": 2 * USAGE,
                },
                "modelVersion": "gemini",
            }
        if "input" in body and "messages" not in body:
            vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
            usage = {"prompt_tokens": USAGE, "total_tokens": USAGE}
            return {"object": "list", "data": [vector], "model": "m", "usage": usage}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model"),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": USAGE,
                "completion_tokens": USAGE,
                "total_tokens": 2 * USAGE,
            },
        }

    def _result(self, custom_id: str, body: dict[str, Any], code: int) -> dict[str, Any]:
        error = self._error(Refused("it can't be answered", code))
        if self.kind == "anthropic":
            if code == 200:
                result: dict[str, Any] = {"type": "succeeded", "message": self._said(body)}
            else:
                result = {"type": "errored", "error": error}
            return {"custom_id": custom_id, "result": result}
        if self.kind == "gemini":
            if code == 200:
                return {"key": custom_id, "response": self._said(body)}
            rpc = {400: 3, 429: 8, 500: 13, 503: 14}[code]
            return {"key": custom_id, "error": {"code": rpc, "message": "it can't be answered"}}
        response = {
            "status_code": code,
            "request_id": "req_1",
            "body": self._said(body) if code == 200 else error,
        }
        return {"id": "r", "custom_id": custom_id, "response": response, "error": None}

    def _undone(self, custom_id: str, status: str) -> dict[str, Any] | None:
        """What is told of a line that was never asked."""
        if self.kind == "anthropic":
            kind = "canceled" if status == "cancelled" else status
            return {"custom_id": custom_id, "result": {"type": kind}}
        if self.kind == "openai":
            error = {"code": f"batch_{status}", "message": "never asked"}
            return {"id": "r", "custom_id": custom_id, "response": None, "error": error}
        return None

    async def _alone(self, request: web.Request) -> web.Response:
        """A request that is no batch."""
        body = await request.json()
        text = _text(body)
        code = self.answers(text, False)
        if code != 200:
            raise Refused("it can't be answered", code)
        self.single[text] += 1
        return web.json_response(self._said(body))

    async def _sent(self, request: web.Request, data: bytes) -> web.StreamResponse:
        """A file of results, of which some come late if that is wanted."""
        response = web.StreamResponse()
        await response.prepare(request)
        half = len(data) // 2
        await response.write(data[:half])
        await self._holding("results")
        await response.write(data[half:])
        await response.write_eof()
        return response

    # OpenAI, and those that follow it -------------------------------------------------------------

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        if path.endswith(("/chat/completions", "/embeddings")) and "/batch" not in path:
            return await self._alone(request)
        if not path.startswith(self.prefix + "/"):
            raise Refused(f"no {path}", 404)
        path = path.removeprefix(self.prefix)
        jobs = "/batch/jobs" if self.kind == "mistral" else "/batches"
        upload = "/files/upload" if self.kind == "together" else "/files"
        if (method, path) == ("POST", upload):
            return await self._uploaded(request)
        if path.startswith("/files/"):
            return await self._file(request, path.removeprefix("/files/"))
        if (method, path) == ("POST", jobs):
            asked = await request.json()
            job = await self._made(lambda: self._begin(asked, self._ordered(asked)))
            shown = self._shown(job)
            return web.json_response({"job": shown} if self.kind == "together" else shown)
        if (method, path) == ("GET", jobs):
            return self._listed(request)
        job = self._found(path.removeprefix(f"{jobs}/").removesuffix("/cancel"))
        if path.endswith("/cancel"):
            if job.status != "in_progress":
                raise Refused(f"a batch that is {job.status} can't be cancelled", 409)
            job.status = "cancelling"
            return web.json_response(self._shown(job))
        return web.json_response(self._shown(self._looked(job)))

    async def _uploaded(self, request: web.Request) -> web.Response:
        if not (request.content_type or "").startswith("multipart/form-data"):
            raise Refused("a file is sent as a form")
        form = await request.post()
        purpose = "batch-api" if self.kind == "together" else "batch"
        if form.get("purpose") != purpose:
            raise Refused(f"purpose has to be {purpose}")
        if self.kind == "together" and not form.get("file_name"):
            raise Refused("file_name is required")
        file = form.get("file")
        if not isinstance(file, web.FileField):
            raise Refused("file is required")
        file_id = f"file-{len(self.files)}"
        self.files[file_id] = file.file.read()
        return web.json_response({"id": file_id, "object": "file", "purpose": purpose})

    async def _file(self, request: web.Request, path: str) -> web.StreamResponse:
        file_id = path.removesuffix("/content")
        if file_id not in self.files:
            raise Refused(f"no file {file_id}", 404)
        if request.method == "DELETE":
            del self.files[file_id]
            self.deleted.append(file_id)
            return web.json_response({"id": file_id, "deleted": True})
        return await self._sent(request, self.files[file_id])

    def _ordered(self, asked: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """The lines of an order."""
        mistral, together = self.kind == "mistral", self.kind == "together"
        known = {"input_file_id", "endpoint", "completion_window", "metadata"}
        if mistral:
            known = {"input_files", "endpoint", "model", "metadata", "timeout_hours"}
        if together:
            known -= {"metadata"}
        if set(asked) - known:
            raise Refused(f"unknown: {set(asked) - known}", 422 if mistral else 400)
        if not mistral and asked.get("completion_window") != "24h":
            raise Refused("completion_window has to be 24h")
        if asked.get("endpoint") not in _OPENAI_ENDPOINTS:
            raise Refused("endpoint")
        (file_id,) = asked["input_files"] if mistral else [asked["input_file_id"]]
        if file_id not in self.files:
            raise Refused(f"no file {file_id}", 404)
        lines, models = [], set()
        for data in self.files[file_id].decode().strip().split("\n"):
            line = json.loads(data)
            members = {"custom_id", "body"} | (set() if mistral or together else {"method", "url"})
            if set(line) != members:
                raise Refused(f"a line has {set(line)}")
            if "url" in members and (line["method"], line["url"]) != ("POST", asked["endpoint"]):
                raise Refused("method and url have to be those of the batch")
            if together and len(line["custom_id"]) > 64:
                raise Refused("custom_id is too long")
            if line["body"].get("stream"):
                raise Refused("stream is not supported")
            models.add(asked["model"] if mistral else line["body"].get("model"))
            lines.append((line["custom_id"], line["body"]))
        if len(models) != 1 or None in models:
            raise Refused("all requests have to be for one model", code="model_mismatch")
        return lines

    def _listed(self, request: web.Request) -> web.Response:
        newest = [self._shown(job) for job in reversed(self.jobs)]
        if self.kind == "together":
            return web.json_response(newest)
        if self.kind == "mistral":
            page, size = int(request.query["page"]), int(request.query["page_size"])
            some = newest[page * size : (page + 1) * size]
            return web.json_response({"object": "list", "data": some, "total": len(newest)})
        begin, limit = 0, int(request.query.get("limit", "20"))
        if after := request.query.get("after"):
            begin = [each["id"] for each in newest].index(after) + 1
        some = newest[begin : begin + limit]
        return web.json_response(
            {"object": "list", "data": some, "has_more": begin + limit < len(newest)}
        )

    def _shown(self, job: Job) -> dict[str, Any]:
        outputs: dict[str, str | None] = {}
        for is_good, name in ((True, "output"), (False, "error")):
            outputs[name] = None
            if job.status in ("completed", "expired", "cancelled") and job.results[is_good]:
                file_id = f"file-{job.id}-{name}"
                if file_id not in self.deleted:
                    self.files[file_id] = _jsonl(job.results[is_good])
                outputs[name] = file_id
        good, bad = len(job.results[True]), len(job.results[False])
        if self.kind == "mistral":
            statuses = {
                "in_progress": "RUNNING",
                "completed": "SUCCESS",
                "expired": "TIMEOUT_EXCEEDED",
                "cancelling": "CANCELLATION_REQUESTED",
            }
            return {
                "id": job.id,
                "object": "batch",
                "input_files": job.asked["input_files"],
                "metadata": job.asked.get("metadata"),
                "endpoint": job.asked["endpoint"],
                "model": job.asked["model"],
                "output_file": outputs["output"],
                "error_file": outputs["error"],
                "errors": job.said,
                "status": statuses.get(job.status, job.status.upper()),
                "created_at": int(job.created),
                "total_requests": len(job.lines),
                "completed_requests": good + bad,
                "succeeded_requests": good,
                "failed_requests": bad,
            }
        shown: dict[str, Any] = {
            "id": job.id,
            "object": "batch",
            "endpoint": job.asked["endpoint"],
            "input_file_id": job.asked["input_file_id"],
            "status": job.status,
            "output_file_id": outputs["output"],
            "error_file_id": outputs["error"],
            "created_at": int(job.created),
        }
        if self.kind == "together":
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(job.created))
            status = job.status.replace("cancelling", "canceling").upper()
            return {**shown, "status": status, "created_at": created, "progress": 0.0}
        told = {"object": "list", "data": job.said} if job.said else None
        counts = {"total": len(job.lines), "completed": good, "failed": bad}
        if self.kind == "azure":
            shown["created_at"] = int(job.created)
        return {
            **shown,
            "metadata": job.asked.get("metadata"),
            "errors": told,
            "request_counts": counts,
        }

    # Anthropic ------------------------------------------------------------------------------------

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        batches = "/v1/messages/batches"
        if (method, path) == ("POST", "/v1/messages"):
            return await self._alone(request)
        if (method, path) == ("POST", batches):
            self.headers.append(dict(request.headers))
            asked = await request.json()
            job = await self._made(lambda: self._begin({}, _requests(asked)))
            return web.json_response(self._message_batch(job, request))
        if (method, path) == ("GET", batches):
            newest = list(reversed(self.jobs))
            begin = 0
            if after := request.query.get("after_id"):
                begin = [job.id for job in newest].index(after) + 1
            some = newest[begin : begin + int(request.query.get("limit", "20"))]
            shown = [self._message_batch(self._looked(job), request) for job in some]
            return web.json_response(
                {
                    "data": shown,
                    "has_more": begin + len(some) < len(newest),
                    "first_id": some[0].id if some else None,
                    "last_id": some[-1].id if some else None,
                }
            )
        name, _, what = path.removeprefix(f"{batches}/").partition("/")
        job = self._found(name)
        if what == "cancel":
            if job.status == "in_progress":
                job.status = "cancelling"
            return web.json_response(self._message_batch(job, request))
        if what == "results":
            if job.status in ("in_progress", "cancelling"):
                raise Refused("the batch has not ended", 404)
            return await self._sent(request, _jsonl(job.results[True] + job.results[False]))
        return web.json_response(self._message_batch(self._looked(job), request))

    def _message_batch(self, job: Job, request: web.Request) -> dict[str, Any]:
        status = {"in_progress": "in_progress", "cancelling": "canceling"}.get(job.status, "ended")
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if status != "ended":
            counts["processing"] = len(job.lines)
        else:
            for each in job.results[True] + job.results[False]:
                counts[each["result"]["type"]] += 1
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(job.created))
        return {
            "id": job.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": counts,
            "created_at": created,
            "expires_at": created,
            "ended_at": created if status == "ended" else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"{self.url}/v1/messages/batches/{job.id}/results",
        }

    # Gemini ---------------------------------------------------------------------------------------

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        if path == "/upload/v1beta/files" and method == "POST":
            return self._upload_begun(request)
        if path.startswith("/uploading/"):
            return await self._upload_ended(request)
        if path.startswith("/download/v1beta/files/"):
            name = path.removeprefix("/download/v1beta/").removesuffix(":download")
            if request.query.get("alt") != "media" or name not in self.files:
                raise Refused(f"no file {name}", 404)
            return await self._sent(request, self.files[name])
        path = path.removeprefix("/v1beta")
        if path.startswith("/files/") and method == "DELETE":
            del self.files[path[1:]]
            self.deleted.append(path[1:])
            return web.json_response({})
        if path.endswith(":generateContent"):
            return await self._alone(request)
        if path.endswith(":batchGenerateContent"):
            asked = (await request.json())["batch"]
            job = await self._made(lambda: self._begin(asked, self._keyed(asked)))
            return web.json_response(self._operation(job))
        if path == "/batches":
            newest = [self._operation(job) for job in reversed(self.jobs)]
            return web.json_response({"operations": newest} if newest else {})
        job = self._found(path[1:].removesuffix(":cancel"))
        if path.endswith(":cancel"):
            job.status = "cancelling"
            return web.json_response({})
        return web.json_response(self._operation(self._looked(job)))

    def _upload_begun(self, request: web.Request) -> web.Response:
        if request.headers.get("x-goog-upload-command") != "start":
            raise Refused("an upload begins with its start")
        name = f"files/f{len(self.files)}"
        self.files[name] = b""
        size = request.headers["x-goog-upload-header-content-length"]
        where = f"{self.url}/uploading/{name}?size={size}"
        return web.json_response({}, headers={"x-goog-upload-url": where})

    async def _upload_ended(self, request: web.Request) -> web.Response:
        data = await request.read()
        if len(data) != int(request.query["size"]):
            raise Refused("it is not as large as was said")
        if request.headers.get("x-goog-upload-command") != "upload, finalize":
            raise Refused("it has to be sent at once")
        name = request.path.removeprefix("/uploading/")
        self.files[name] = data
        return web.json_response({"file": {"name": name, "state": "ACTIVE"}})

    def _keyed(self, asked: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if not asked.get("display_name"):
            raise Refused("display_name is required")
        lines = []
        for data in self.files[asked["input_config"]["file_name"]].decode().strip().split("\n"):
            line = json.loads(data)
            if set(line) != {"key", "request"} or "contents" not in line["request"]:
                raise Refused(f"a line has {set(line)}")
            lines.append((line["key"], line["request"]))
        return lines

    def _operation(self, job: Job) -> dict[str, Any]:
        states = {
            "in_progress": "RUNNING",
            "cancelling": "RUNNING",
            "completed": "SUCCEEDED",
        }
        state = states.get(job.status, job.status.upper())
        metadata: dict[str, Any] = {
            "name": job.id,
            "displayName": job.asked["display_name"],
            "state": f"BATCH_STATE_{state}",
            "batchStats": {
                "requestCount": str(len(job.lines)),
                "successfulRequestCount": str(len(job.results[True])),
            },
        }
        shown: dict[str, Any] = {"name": job.id, "metadata": metadata}
        results = job.results[True] + job.results[False]
        if state not in ("RUNNING",) and results:
            name = f"files/{job.id.replace('/', '-')}"
            if name not in self.deleted:
                self.files[name] = _jsonl(results)
            metadata["output"] = {"responsesFile": name}
            shown |= {"done": True, "response": {"responsesFile": name}}
        if state == "FAILED":
            shown["error"] = {"code": 3, "message": job.said[0]["message"]}
        return shown


def _requests(asked: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Those of an order to Anthropic."""
    lines = []
    for each in asked["requests"]:
        params = each["params"]
        if not _CUSTOM_ID.fullmatch(each["custom_id"]):
            raise Refused("custom_id: 1 to 64 letters, digits, '_' and '-'")
        if not isinstance(params.get("max_tokens"), int) or params.get("stream"):
            raise Refused("params")
        lines.append((each["custom_id"], params))
    return lines


def _jsonl(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def _text(body: dict[str, Any]) -> str:
    """What the last turn of a request says."""
    if "contents" in body:
        return str(body["contents"][-1]["parts"][0]["text"])
    if "messages" not in body:
        said = body.get("input", body.get("prompt", ""))
        return said if isinstance(said, str) else str(said[-1])
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])
