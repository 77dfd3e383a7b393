"""HTTP for tools: JSON from services that the template names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import encode_json
from providers.remote import http1
from routing.tools.tool import ToolError

MAX_JSON_BYTES = 4 << 20


async def ask_json(
    client: http1.Client,
    url: str,
    headers: Mapping[str, str],
    body: Any = None,
) -> Any:
    """What a service answers to a GET, or to a POST of `body`.

    Raises:
        ToolError: it can't be asked, or answers with something else than JSON. What it says is not
            told: it may hold the key.
    """
    sent = {"user-agent": http1.USER_AGENT, "accept": "application/json", **headers}
    content = None
    if body is not None:
        sent["content-type"] = "application/json"
        content = encode_json(body)
    try:
        parsed = http1.parse_url(url)
        response = await client.send(
            "GET" if body is None else "POST",
            http1.NetworkRoute(parsed.origin),
            parsed.target,
            http1.encode_headers(sent),
            content,
            idempotent=True,
        )
        with closing(response):
            answer = await response.read(MAX_JSON_BYTES)
    except (http1.HTTPError, ValueError) as error:
        name = type(error).__name__
        raise ToolError("unavailable", f"The search service can't be asked ({name}).") from None
    if response.status == 429:
        raise ToolError("too_many_requests", "The search service was asked too often.")
    if response.status != 200:
        raise ToolError("unavailable", f"The search service answered {response.status}.")
    try:
        return await off_loop(len(answer), json.loads, answer)
    except (ValueError, RecursionError):
        raise ToolError("unavailable", "The search service did not answer with JSON.") from None
