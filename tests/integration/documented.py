"""Answers held against what `/openapi.json` says of them.

The document is that of an application with every client API open, as it is made here; servers at
`--base-url` have their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tests.integration import wire
from tests.integration.server_process import ServerProcess

JSON = "application/json"
EVENTS = "text/event-stream"


@cache
def document() -> dict[str, Any]:
    """The document, of a server that echoes."""
    from llama_compat.distribution import load_distribution
    from providers import registry
    from routing.app import Application

    return Application(load_distribution("echo", registry.config_model)).openapi()


def check(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """Check an answer with `body`, all of it.

    Raises:
        AssertionError: the document says otherwise.
    """
    calls = _calls_at(path)
    call = calls and calls.get(method.lower())
    media_type = content_type.partition(";")[0].strip()
    if call is None or (status == 200 and not body):
        return
    responses = call["responses"]
    documented = responses.get(str(status), responses["default"])["content"]
    assert media_type in documented, f"{method} {path}: {status} comes as {content_type}"
    schema = documented[media_type].get("schema")
    if schema is None or schema.get("format") == "binary":
        return
    validator = _validator(json.dumps(schema))
    for value in _events(body) if media_type == EVENTS else [json.loads(body)]:
        error = best_match(validator.iter_errors(value))
        assert error is None, f"{method} {path}: {status} at {error.json_path}: {error.message}"


def _events(body: bytes) -> Iterator[Any]:
    for event in re.split(rb"\r?\n\r?\n", body):
        data = b"\n".join(
            line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")
        )
        if not data or data == b"[DONE]":
            continue
        value = json.loads(data)
        # What a stream fails with.
        if "error" not in value:
            yield value


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": document()["components"]})


@cache
def _patterns() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """The paths of the document, those without parameters first."""
    paths = sorted(document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [
        # Ids of models may hold slashes, those of responses none.
        (re.compile(_pattern_of(path)), calls)
        for path, calls in paths
    ]


def _pattern_of(path: str) -> str:
    parts = re.split(r"(\{\w+\})", path)
    kinds = {"{response_id}": "[^/]+"}
    return "".join(
        kinds.get(part, ".+") if part.startswith("{") else re.escape(part) for part in parts
    )


def _calls_at(path: str) -> dict[str, Any] | None:
    path = unquote(path.partition("?")[0])
    return next((calls for pattern, calls in _patterns() if pattern.fullmatch(path)), None)


class Watch:
    """Looks at every whole answer that the tests' clients get of servers that the tests started.

    Attributes:
        wrong: what the document says otherwise.
        looked: how many answers were looked at.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.looked = 0

    def look(self, method: str, url: str, status: int, content_type: str, body: bytes) -> None:
        parts = urlsplit(url)
        if parts.port not in ServerProcess.ports:
            return
        self.looked += 1
        try:
            check(method, parts.path, status, content_type, body)
        except (AssertionError, ValueError) as error:
            self.wrong.append(str(error))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch httpx, which all SDKs are made with, and the tests' own client."""
        send, send_async, request = httpx.Client.send, httpx.AsyncClient.send, wire.request

        def look_at(response: httpx.Response, *, streamed: bool) -> None:
            content_type = response.headers.get("content-type", "")
            if not streamed or content_type == JSON:
                asked = response.request
                self.look(
                    asked.method,
                    str(asked.url),
                    response.status_code,
                    content_type,
                    response.content,
                )

        def look_at_sent(client: httpx.Client, *args: Any, **options: Any) -> httpx.Response:
            response = send(client, *args, **options)
            if response.headers.get("content-type") == JSON:
                response.read()
            look_at(response, streamed=options.get("stream", False))
            return response

        async def look_at_sent_async(
            client: httpx.AsyncClient, *args: Any, **options: Any
        ) -> httpx.Response:
            response = await send_async(client, *args, **options)
            if response.headers.get("content-type") == JSON:
                await response.aread()
            look_at(response, streamed=options.get("stream", False))
            return response

        def look_at_requested(method: str, url: str, *args: Any, **options: Any) -> wire.Reply:
            reply = request(method, url, *args, **options)
            self.look(method, url, reply.status, reply.headers["content-type"] or "", reply.body)
            return reply

        with (
            patch.object(httpx.Client, "send", look_at_sent),
            patch.object(httpx.AsyncClient, "send", look_at_sent_async),
            patch.object(wire, "request", look_at_requested),
        ):
            yield
