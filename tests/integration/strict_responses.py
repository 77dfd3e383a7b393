"""OpenAI's Responses API, whose models think, call a tool, and take back what they thought.

Each account unseals its own thoughts alone. The rules are from the vendor's error messages as of
2026-11-28 (openai/codex#8119, continuedev/continue#8933 and #11994,
musistudio/claude-code-router#1783), and not from what is tested against them. The path's first
segment says which account is asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests.integration.strict_wires import WIRES
from tests.server_thread import WebServerThread

_PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}


class StrictResponses(WebServerThread):
    """The server; a context manager that runs it in a thread of its own.

    Attributes:
        asked: what came and was answered, by account.
        refused: the codes of what was not.
    """

    def __init__(self) -> None:
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.refused: list[str | None] = []
        self._numbers = itertools.count(1)
        self._thought: dict[str, str] = {}

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/{account}/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        account, body = request.match_info["account"], await request.json()
        complain, reply = WIRES["responses"]
        for message, code in (
            *((complaint, None) for complaint in complain(body)),
            *self._complaints(account, body["input"]),
        ):
            self.refused.append(code)
            error = {"message": message, "type": "invalid_request_error", "code": code}
            return web.json_response({"error": error}, status=400)
        self.asked.setdefault(account, []).append(body)
        output = reply["output"]
        if body["input"][-1].get("type") != "function_call_output":
            output = self._call(account, body["tools"][0]["name"])
        return web.json_response({**reply, "output": output})

    def _call(self, account: str, name: str) -> list[dict[str, Any]]:
        number = next(self._numbers)
        sealed = f"gAAAA{account}{number}"
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        self._thought[call["id"]] = thought["id"]
        return [
            {**thought, "encrypted_content": sealed},
            {**call, "name": name, "arguments": '{"city": "Bern"}', "status": "completed"},
        ]

    def _complaints(
        self, account: str, items: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str | None]]:
        ids = {item.get("id") for item in items}
        for place, item in enumerate(items):
            kind, item_id = item.get("type", "message"), item.get("id")
            if item_id is not None and not item_id.startswith(_PREFIXES.get(kind, "")):
                yield f"Invalid 'input[{place}].id': '{item_id}'.", None
            if self._thought.get(item_id, item_id) not in ids:
                yield f"Item '{item_id}' was provided without its 'reasoning' item.", None
            if kind != "reasoning":
                continue
            if item.get("content"):
                yield f"Invalid 'input[{place}].content': array too long.", "array_above_max_length"
            if not str(item.get("encrypted_content")).startswith(f"gAAAA{account}"):
                yield "The encrypted content could not be verified.", "invalid_encrypted_content"
            following = items[place + 1 : place + 2]
            if not following or following[0].get("role") == "user":
                yield "Item of type 'reasoning' was provided without its following item.", None
