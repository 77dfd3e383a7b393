"""Vendors of images, sound, moderation and rerank that take what the real ones take, nothing else.

The tables are written from the vendors' SDKs and documents (openai 3.52, cohere 7.3, voyageai 0.5,
together 3.1, groq 1.7, mistralai 3.7; 2026-11-23), and not from the rows that are tested against
them. The path's first segment says which vendor is asked; the model says how it behaves.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import threading
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai.types.moderation
from aiohttp import web

from tests.server_thread import WebServerThread

KEY = "sk-vendor-secret"
SOUND = bytes(range(256)) * 64
"""What it says; no text, and not UTF-8."""

CHUNK_BYTES = 4096

NO_REPLIES: Mapping[str, tuple[str, bytes]] = {
    "behind-a-proxy": ("text/plain", b"upstream connect error"),
    "event-of-an-error": ("text/event-stream", b'data: {"error": {"message": "We broke."}}\n\n'),
    "nothing": ("audio/mpeg", b""),
    "page": ("Application/XHTML+xml", b"What is this?"),
}
"""What models answer with 200, whatever they are asked."""

TAKES: Mapping[str, frozenset[str]] = {
    "moderations": frozenset({"input", "model"}),
    "images/generations": frozenset(
        [
            "background",
            "model",
            "moderation",
            "n",
            "output_compression",
            "output_format",
            "partial_images",
            "prompt",
            "quality",
            "response_format",
            "safety_identifier",
            "size",
            "stream",
            "style",
            "user",
        ]
    ),
    "images/edits": frozenset(
        [
            "background",
            "image",
            "image[]",
            "input_fidelity",
            "mask",
            "model",
            "n",
            "output_compression",
            "output_format",
            "partial_images",
            "prompt",
            "quality",
            "response_format",
            "size",
            "stream",
            "user",
        ]
    ),
    "audio/speech": frozenset(
        ["input", "instructions", "model", "response_format", "speed", "stream_format", "voice"]
    ),
    "audio/transcriptions": frozenset(
        [
            "chunking_strategy",
            "file",
            "include[]",
            "known_speaker_names[]",
            "known_speaker_references[]",
            "language",
            "model",
            "prompt",
            "response_format",
            "stream",
            "temperature",
            "timestamp_granularities[]",
        ]
    ),
    "audio/translations": frozenset(["file", "model", "prompt", "response_format", "temperature"]),
}
"""What OpenAI takes at each path."""

RERANKS: Mapping[str, frozenset[str]] = {
    "v1/rerank": frozenset(
        [
            "documents",
            "max_chunks_per_doc",
            "model",
            "query",
            "rank_fields",
            "return_documents",
            "top_n",
        ]
    ),
    "v2/rerank": frozenset(
        ["documents", "max_tokens_per_doc", "model", "priority", "query", "relevant_spans", "top_n"]
    ),
    "jina/v1/rerank": frozenset(["documents", "model", "query", "return_documents", "top_n"]),
    "together/v1/rerank": frozenset(
        ["documents", "model", "query", "rank_fields", "return_documents", "top_n"]
    ),
    "voyage/v1/rerank": frozenset(
        ["documents", "model", "query", "return_documents", "top_k", "truncation"]
    ),
    "vllm/v1/rerank": frozenset(),
    "vllm/v2/rerank": frozenset(),
}
"""What each vendor's rerank takes; with nothing, anything. Cohere's is beside what it has of
OpenAI's API, and not below that."""

WORDS = "The quick brown fox."
TOKENS = {
    "type": "tokens",
    "input_tokens": 14,
    "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
    "output_tokens": 6,
    "total_tokens": 20,
}
IMAGE_USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"text_tokens": 10, "image_tokens": 40},
    "output_tokens": 200,
    "total_tokens": 250,
}


@dataclass
class Asked:
    """One request as it came.

    Attributes:
        path: with the vendor before it.
        fields: its members, or the texts of its form.
        files: of a form, by the name of the part: file name, media type and content.
        headers: names in lower case.
    """

    path: str
    fields: dict[str, Any]
    files: dict[str, tuple[str, str, bytes]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    """The vendor answers with a status and an error of its own shape."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body


class MediaVendors(WebServerThread):
    """The server.

    Attributes:
        asked: every request, in the order in which they came.
        deserted: set when a client went away before it had all of an answer.
    """

    handler_cancellation = True

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.deserted = threading.Event()

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answered(request)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        except (asyncio.CancelledError, ConnectionError):
            self.deserted.set()
            raise

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        asked = await _read(request, path)
        self.asked.append(asked)
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise Refused(401, {"error": {"message": f"Incorrect API key: {KEY}"}})
        if asked.fields.get("model") == "down":
            raise Refused(503, {"error": {"message": "Overloaded.", "type": "server_error"}})
        if asked.fields.get("model") in NO_REPLIES:
            type, body = NO_REPLIES[asked.fields["model"]]
            return web.Response(body=body, headers={"content-type": type})
        if path in RERANKS:
            return _rerank(path, asked.fields)
        call = path.partition("/v1/")[2]
        if call not in TAKES:
            raise Refused(404, {"error": {"message": f"Invalid URL (POST /v1/{call})"}})
        for name in sorted((asked.fields.keys() | asked.files.keys()) - TAKES[call]):
            error = {
                "message": f"Unknown parameter: '{name}'.",
                "type": "invalid_request_error",
                "param": name,
                "code": "unknown_parameter",
            }
            raise Refused(400, {"error": error})
        if call == "moderations":
            return _moderation(asked)
        if call.startswith("images/"):
            return await _images(request, call, asked)
        if call == "audio/speech":
            return await _speech(request, asked)
        return await _transcription(request, call, asked)


async def _read(request: web.Request, path: str) -> Asked:
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not request.content_type.startswith("multipart/"):
        return Asked(path, await request.json(), headers=headers)
    asked = Asked(path, {}, headers=headers)
    async for part in await request.multipart():
        content = bytes(await part.read())
        if part.filename is None:
            asked.fields[part.name] = content.decode()
        else:
            asked.files[part.name] = (part.filename, part.headers.get("content-type", ""), content)
    return asked


def _moderation(asked: Asked) -> web.Response:
    inputs = asked.fields["input"]
    inputs = [inputs] if isinstance(inputs, str) else inputs
    names = [
        field.alias or name
        for name, field in openai.types.moderation.Categories.model_fields.items()
    ]
    results = [
        {
            "flagged": "kill" in each,
            "categories": {name: name == "violence" and "kill" in each for name in names},
            "category_scores": dict.fromkeys(names, 0.5),
            "category_applied_input_types": {name: ["text"] for name in names},
        }
        for each in inputs
    ]
    body = {"id": "modr-1", "model": asked.fields["model"], "results": results}
    return web.json_response(body)


# Images -------------------------------------------------------------------------------------------


async def _images(request: web.Request, call: str, asked: Asked) -> web.StreamResponse:
    fields = asked.fields
    if call == "images/edits" and not asked.files:
        raise Refused(400, {"error": {"message": "Missing required parameter: 'image'."}})
    prompt, number = fields["prompt"], int(fields.get("n", 1))
    pictures = [f"{prompt}-{place}".encode() for place in range(number)]
    if str(fields.get("stream")).lower() == "true" and fields["model"] != "shy":
        name = "image_generation" if call == "images/generations" else "image_edit"
        picture = base64.b64encode(pictures[0]).decode()
        first = {"type": f"{name}.partial_image", "b64_json": picture, "partial_image_index": 0}
        last = {"type": f"{name}.completed", "b64_json": picture, "usage": IMAGE_USAGE}
        return await _events(request, fields["model"], [first, last])
    data = [{"b64_json": base64.b64encode(each).decode()} for each in pictures]
    body: dict[str, Any] = {"created": 1, "data": data}
    if fields["model"] != "uncounted":
        body["usage"] = IMAGE_USAGE
    type = "Application/JSON" if fields["model"] == "shouting" else "application/json"
    return web.Response(text=json.dumps(body), headers={"content-type": type})


# Sound --------------------------------------------------------------------------------------------


def tone(seconds: float = 0.5) -> bytes:
    """Something that can be played, as WAV."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0\0\0\x20" * int(4000 * seconds))
    return made.getvalue()


async def _speech(request: web.Request, asked: Asked) -> web.StreamResponse:
    fields = asked.fields
    pieces = [SOUND[at : at + CHUNK_BYTES] for at in range(0, len(SOUND), CHUNK_BYTES)]
    if fields.get("stream_format") == "sse" and fields["model"] != "shy":
        events: list[dict[str, Any]] = [
            {"type": "speech.audio.delta", "audio": base64.b64encode(each).decode()}
            for each in pieces
        ]
        usage = {"input_tokens": 7, "output_tokens": 90, "total_tokens": 97}
        events.append({"type": "speech.audio.done", "usage": usage})
        return await _events(request, fields["model"], events)
    if fields["model"] == "a-tone":
        return web.Response(body=tone(), content_type="audio/wav")
    type = "Audio/MPEG" if fields["model"] == "shouting" else "audio/mpeg"
    response = web.StreamResponse(headers={"content-type": type})
    await response.prepare(request)
    if fields["model"] == "endless":
        while True:
            await response.write(SOUND)
            await asyncio.sleep(0.01)
    for piece in pieces[:2] if fields["model"] == "cut" else pieces:
        await response.write(piece)
    if fields["model"] == "cut":
        await asyncio.sleep(0.1)  # so that what was written goes out before
        assert request.transport is not None
        request.transport.abort()
    return response


async def _transcription(request: web.Request, call: str, asked: Asked) -> web.StreamResponse:
    if "file" not in asked.files:
        raise Refused(400, {"error": {"message": "Missing required parameter: 'file'."}})
    name, kind, content = asked.files["file"]
    digest = hashlib.sha256(content).hexdigest()
    text = f"{WORDS} {name} {kind} {digest}"
    fields = asked.fields
    wanted = fields.get("response_format", "json")
    if fields.get("stream") == "true" and fields["model"] != "shy":
        events: list[dict[str, Any]] = [
            {"type": "transcript.text.delta", "delta": word + " "} for word in text.split()
        ]
        events.append({"type": "transcript.text.done", "text": text, "usage": TOKENS})
        return await _events(request, fields["model"], events)
    if wanted in ("srt", "vtt", "text"):
        return web.Response(text=f"1\n00:00:00,000 --> 00:00:02,000\n{text}\n")
    if wanted == "verbose_json":
        body = {"task": "transcribe", "language": "english", "duration": 90.5, "text": text}
        return web.json_response(body)
    body = {"text": text}
    if fields["model"] == "by-seconds":
        return web.json_response({**body, "usage": {"type": "duration", "seconds": 36}})
    return web.json_response({**body, "usage": TOKENS})


async def _events(
    request: web.Request, model: str, events: list[dict[str, Any]]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events[:-1]:
        await response.write(_event(event))
    if model == "failing":
        error = {"type": "error", "error": {"message": f"We broke. {KEY}", "type": "server_error"}}
        await response.write(b"event: error\n" + _event(error))
    elif model == "cut":
        await asyncio.sleep(0.1)
        assert request.transport is not None
        request.transport.abort()
    elif model != "breaking-off":
        await response.write(_event(events[-1]))
    return response


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


# Rerank -------------------------------------------------------------------------------------------


def _rerank(path: str, fields: dict[str, Any]) -> web.Response:
    vendor = "cohere" if path in ("v1/rerank", "v2/rerank") else path.partition("/")[0]
    complaint = next(_complaints(path, fields), None)
    if complaint is not None:
        said = {"message": complaint} if vendor == "cohere" else {"detail": complaint}
        raise Refused(422, said)
    texts = [each if isinstance(each, str) else each["text"] for each in fields["documents"]]
    words = set(fields["query"].lower().split())
    scores = [len(words & set(text.lower().split())) / len(words) for text in texts]
    best = sorted(range(len(texts)), key=lambda place: -scores[place])
    wanted = fields.get("top_k" if vendor == "voyage" else "top_n") or len(texts)
    results: list[dict[str, Any]] = [
        {"index": place, "relevance_score": scores[place]} for place in best[:wanted]
    ]
    returned = fields.get("return_documents", vendor in ("jina", "vllm"))
    for result in results if returned else ():
        text = texts[result["index"]]
        result["document"] = text if vendor == "voyage" else {"text": text}
    tokens = {"total_tokens": sum(len(text.split()) for text in texts)}
    model = fields["model"]
    if vendor == "cohere":
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
        return web.json_response({"id": "r1", "results": results, "meta": meta})
    if vendor == "voyage":
        body = {"object": "list", "data": results, "model": model, "usage": tokens}
        return web.json_response(body)
    return web.json_response({"id": "r1", "model": model, "results": results, "usage": tokens})


def _complaints(path: str, fields: dict[str, Any]) -> Iterator[str]:
    for name in sorted(fields.keys() - RERANKS[path]) if RERANKS[path] else ():
        yield f"unknown field: {name}"
    for name in ("query", "documents", "model"):
        if not fields.get(name):
            yield f"invalid request: {name} is required"
    if path in ("v2/rerank", "voyage/v1/rerank"):
        for each in fields["documents"]:
            if not isinstance(each, str):
                yield "documents must be strings"
