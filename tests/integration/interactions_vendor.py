"""Google's Interactions API as a vendor: one that says what a test wants, and one that is as strict
as Google, of which the table is Google's documentation and SDK as of 2026-11-22."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests import sdk_interactions as sdk
from tests.integration.native_suite import Reply, Vendor
from tests.server_thread import WebServerThread

STATUSES = {
    "end": "completed",
    "calls": "requires_action",
    "length": "incomplete",
    "filter": "incomplete",
}


class InteractionsVendor(Vendor):
    error_body = b'{"error":{"message":"Please slow down","code":"rate_limit_exceeded"}}'
    stream_error = (
        b'event: error\ndata: {"error":{"message":"The model is overloaded",'
        b'"code":"service_unavailable"},"event_type":"error"}\n\n'
    )

    def interaction(self, reply: Reply) -> dict[str, Any]:
        steps = [sdk.thought(reply.thoughts)] if reply.thoughts else []
        if reply.text:
            steps.append(sdk.output(sdk.text(reply.text)))
        steps += [
            sdk.function_call(f"call_{index}", name, arguments)
            for index, (name, arguments) in enumerate(reply.calls)
        ]
        blocked = {"errors": [{"code": "content_blocked", "message": "Blocked."}]}
        told = blocked if reply.stop == "filter" else {}
        return sdk.interaction(steps, STATUSES[reply.stop], **told)

    def whole(self, reply: Reply) -> bytes:
        return json.dumps(self.interaction(reply)).encode()

    def stream(self, reply: Reply) -> bytes:
        return sdk.stream_bytes(sdk.stream_events(self.interaction(reply)))

    def check_request(self, body: dict[str, Any]) -> None:
        assert sdk.unknown_in_request(body) == []

    def forced_tool(self, body: dict[str, Any]) -> str:
        allowed = body["generation_config"]["tool_choice"]["allowed_tools"]
        assert allowed["mode"] == "any"
        (name,) = allowed["tools"]
        return str(name)

    def schema(self, body: dict[str, Any]) -> Any:
        shape = body["response_format"]
        assert (shape["type"], shape["mime_type"]) == ("text", "application/json")
        return shape["schema"]


SEAL = "c2VhbC1vZi1nb29nbGU="
THOUGHTS = "The user wants the weather."
ANSWER = "Sunny in Bern."


class StrictInteractions(WebServerThread):
    """A server that calls `get_weather` and tells of what it is answered, and refuses what Google
    refuses: members that it does not know, a thought whose seal is not its own, a result of a call
    that was not made, a conversation that it does not keep. A context manager that runs it in a
    thread of its own.

    Attributes:
        asked: the bodies so far.
        revisions: the `Api-Revision` of each.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.revisions: list[str | None] = []
        self._kept: dict[str, list[Any]] = {}

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1beta/interactions", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.revisions.append(request.headers.get("api-revision"))
        steps = [*self._kept.get(body.get("previous_interaction_id", ""), ()), *_steps(body)]
        complaint = next(self._complaints(body, steps), None)
        if complaint is not None:
            code, message = complaint
            error = {"error": {"message": message, "code": code}}
            return web.json_response(error, status=404 if code == "not_found" else 400)
        answered = any(step["type"] == "function_result" for step in steps)
        said = (
            [sdk.output(sdk.text(ANSWER))]
            if answered
            else [
                sdk.thought(THOUGHTS, SEAL),
                sdk.function_call("call_1", "get_weather", {"city": "Bern"}),
            ]
        )
        keeps = body.get("store") is not False
        interaction_id = f"v1_{len(self.asked)}" if keeps else ""
        whole = sdk.interaction(
            said, "completed" if answered else "requires_action", id=interaction_id
        )
        if keeps:
            self._kept[interaction_id] = [*steps, *said]
        if not body.get("stream"):
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sdk.stream_bytes(sdk.stream_events(whole)))
        return response

    def _complaints(
        self, body: dict[str, Any], steps: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        for name in sdk.unknown_in_request(body):
            yield "parameter_unknown", f"Unknown parameter: '{name}'."
        previous = body.get("previous_interaction_id")
        if previous is not None and previous not in self._kept:
            yield "not_found", f"Interaction '{previous}' not found."
        if not steps:
            yield "invalid_request", "'input' is empty."
        calls = {step["id"] for step in steps if step["type"] == "function_call"}
        for step in steps:
            if step["type"] == "thought" and step.get("signature") != SEAL:
                yield "invalid_request", "The signature of a thought is not valid."
            if step["type"] == "function_result" and step["call_id"] not in calls:
                yield "invalid_request", f"No function_call has the id '{step['call_id']}'."


def _steps(body: dict[str, Any]) -> list[dict[str, Any]]:
    asked = body.get("input")
    if isinstance(asked, str):
        return [{"type": "user_input", "content": [sdk.text(asked)]}]
    return asked if isinstance(asked, list) else []
