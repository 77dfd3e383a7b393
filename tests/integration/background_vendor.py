"""A vendor that makes responses and interactions in the background, as OpenAI and Google do."""

from __future__ import annotations

import threading
from typing import Any

from aiohttp import web

from tests import sdk_interactions as sdk
from tests.server_thread import WebServerThread

KEY = "sk-vendor"

ANSWER = "Forty-two."

USAGE = {
    "input_tokens": 700,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 300,
    "output_tokens_details": {"reasoning_tokens": 200},
    "total_tokens": 1000,
}


class BackgroundVendor(WebServerThread):
    """Begins what is asked with `background`, and ends it when a test says so. What it does not
    know it answers 404, what has another key 401.

    Attributes:
        asked: the bodies so far.
        looks: how often each id was asked for.
        cancelled: the ids that were cancelled.
        done: the ids of what is done.
        away: set while every look is answered 503.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.looks: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.done: set[str] = set()
        self.away = threading.Event()

    @property
    def providers(self) -> list[dict[str, Any]]:
        """Of a template that has it for both."""
        ways = [("openai", "remote::openai", "v1"), ("google", "remote::gemini-native", "v1beta")]
        return [
            {"id": name, "type": kind, "config": {"base_url": f"{self.url}/{path}", "api_key": KEY}}
            for name, kind, path in ways
        ]

    @property
    def last(self) -> str:
        """The id of what was begun last."""
        return f"vendors/own {len(self.asked)}"

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        for path in ("/v1/responses", "/v1beta/interactions"):
            router.add_post(path, self._begin)
            router.add_get(f"{path}/{{id}}", self._look)
            router.add_post(f"{path}/{{id}}/cancel", self._cancel)

    def _object(self, path: str, reply_id: str, status: str, body: dict[str, Any]) -> Any:
        make = _response if path.startswith("/v1/responses") else _interaction
        return make(reply_id, status, body)

    async def _begin(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        assert body["background"] is True
        reply_id = self.last
        self.looks[reply_id] = 0
        status = "queued" if request.path.startswith("/v1/responses") else "in_progress"
        return web.json_response(self._object(request.path, reply_id, status, body))

    async def _look(self, request: web.Request) -> web.Response:
        reply_id = request.match_info["id"]
        keys = (request.headers.get("authorization"), request.headers.get("x-goog-api-key"))
        if f"Bearer {KEY}" not in keys and KEY not in keys:
            return web.json_response({"error": {"message": "Wrong key."}}, status=401)
        if reply_id not in self.looks:
            return web.json_response({"error": {"message": "No such thing."}}, status=404)
        self.looks[reply_id] += 1
        if self.away.is_set():
            return web.json_response({"error": {"message": "Away."}}, status=503)
        status = "in_progress"
        if reply_id in self.cancelled:
            status = "cancelled"
        elif reply_id in self.done:
            status = "completed"
        body = self.asked[int(reply_id.split()[1]) - 1]
        return web.json_response(self._object(request.path, reply_id, status, body))

    async def _cancel(self, request: web.Request) -> web.Response:
        self.cancelled.append(request.match_info["id"])
        return await self._look(request)


def _response(reply_id: str, status: str, body: dict[str, Any]) -> dict[str, Any]:
    done = status == "completed"
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": status}
    return {
        "id": reply_id,
        "object": "response",
        "created_at": 1_790_000_000,
        "background": True,
        "status": status,
        "model": body["model"],
        "output": [{**said, "content": [text]}] if done else [],
        "previous_response_id": body.get("previous_response_id"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "usage": USAGE if done else None,
    }


def _interaction(reply_id: str, status: str, body: dict[str, Any]) -> dict[str, Any]:
    if status != "completed":
        return {"id": reply_id, "status": status, "agent": body.get("agent")}
    asked = {"type": "user_input", "content": [sdk.text(str(body["input"]))]}
    said = sdk.output(sdk.text(ANSWER))
    whole = sdk.interaction([asked, said], status, id=reply_id)
    return {**whole, "agent": body.get("agent")}
