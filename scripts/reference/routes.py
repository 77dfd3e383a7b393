"""Every HTTP route."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fastapi.routing import APIRoute

from llama_compat.distribution import Distribution
from providers.local.echo import EchoConfig
from routing.app import OPEN_PATHS, OVERSEERS_PATHS, Application
from routing.auth import ADMIN
from routing.ingress.apis import CLIENT_APIS
from routing.ingress.apis.openai import PREFIXES
from scripts.reference.markdown import code, sentence, table
from scripts.reference.markdown import page as page_of

INTRODUCTION = """\
`server.apis` in a template says which client APIs are open: all of them, unless it says otherwise.
`/docs` on a running server has the schemas of what is sent and answered.

OpenAI's routes are under `/v1` and under `/v1/openai/v1` alike; the table has the shorter.
`GET /v1/models` answers in Anthropic's shape who sends `anthropic-version`, in Google's who sends a
header that begins with `x-goog-`, and in OpenAI's everybody else.

Every route but `GET /`, `GET /docs`, their files and `GET /health` wants a key where the template
has keys. A key comes as `Authorization: Bearer KEY`, `x-api-key` or `x-goog-api-key`. Routes under
`/admin/` want the admin key, and are there only where the template has one. [Headers](headers.md)
are on a page of their own.

Not there: OpenAI's Assistants and Conversations APIs, Google's files and cached contents."""

HEADINGS = {
    "openai": "OpenAI: chat, completions, embeddings, media, models, files, batches; rerank",
    "responses": "OpenAI: Responses",
    "messages": "Anthropic: Messages",
    "ollama": "Ollama",
    "gemini": "Gemini: generateContent",
    "interactions": "Gemini: Interactions",
    "admin": "Admin",
    "server": "The server's own",
}


class Route(NamedTuple):
    """One method of one path."""

    api: str
    method: str
    path: str
    summary: str


def page() -> str:
    """The routes."""
    routes = found()
    sections = []
    for api, heading in HEADINGS.items():
        rows = [(code(r.method), code(r.path), r.summary) for r in routes if r.api == api]
        sections.append(f"## {heading}\n\n" + table(("method", "path", "what it does"), rows))
    return page_of("HTTP routes", INTRODUCTION, *sections)


@cache
def found() -> list[Route]:
    """Every route of a server that has all of them."""
    app = _application()
    routes = {(route.api, route.method, route.path): route for route in _hidden(app)}
    for path, methods in app.openapi()["paths"].items():
        for method, call in methods.items():
            summary = call.get("description") or call["summary"]
            route = Route(_api_of(path), method.upper(), path, sentence(summary))
            routes[route.api, route.method, path] = route
    return sorted(
        (each for each in routes.values() if not each.path.startswith(PREFIXES[0])),
        key=lambda each: (each.path, each.method),
    )


def _application() -> Application:
    template = {
        "server": {"admin_key": "sk-of-the-admin", "metrics": True},
        "providers": [{"id": "echo", "type": "local::echo", "config": EchoConfig()}],
        "models": [{"id": "m", "provider": "echo"}],
    }
    return Application(Distribution.model_validate(template))


def _hidden(app: Application) -> Iterator[Route]:
    """Those that `/docs` leaves out: for one API's clients on another's path, and for people."""
    for route in app.routes:
        if not isinstance(route, APIRoute) or route.include_in_schema or route.path.endswith("/"):
            continue
        told = sentence(inspect.getdoc(route.endpoint) or "")
        path = re.sub(r":path\}", "}", route.path)
        for method in sorted(route.methods - {"HEAD"}) if told else ():
            yield Route(_api_of_module(route.endpoint.__module__, path), method, path, told)
    for api in app.apis:
        for path in api.websockets:
            yield Route(api.name, "GET", path, "A WebSocket, where each message is a request.")
    yield Route(
        "server", "GET", "/", "The page for people: a playground, and what the server does."
    )
    yield Route("server", "GET", "/docs", "This list with all schemas, to try out.")
    yield Route("server", "GET", "/openapi.json", "The same for programs, as OpenAPI has it.")


def _api_of_module(module: str, path: str) -> str:
    """Whose route it is: of some, the path is another's too."""
    name = {"anthropic": "messages"}.get(module.rpartition(".")[2], module.rpartition(".")[2])
    return name if name in HEADINGS else _api_of(path)


def _api_of(path: str) -> str:
    """Whose route it is, as a template names the client API."""
    if path in OPEN_PATHS or path in (*OVERSEERS_PATHS, "/version", "/docs", "/openapi.json"):
        return "server"
    if path.startswith(ADMIN):
        return "admin"
    bare = path.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1])
    if bare.startswith("/models") and "{model}:" not in path and not path.startswith("/v1beta"):
        return "openai"
    scope = {"path": path, "headers": [], "method": "POST" if ":" in path else "GET"}
    return next(
        api.name
        for api in CLIENT_APIS
        if path in api.operations or path in api.summaries or api.owns(scope)
    )
