"""`/docs`: its page, and what it says of the OpenAI operations, which FastAPI does not know.

The page itself is for everybody; the document that it shows, `/openapi.json`, wants a key where
there are keys, which the page takes from the tab that it is opened in, or asks for.

Their schemas are those of the `openai` package's own types, so that they say what clients send and
read. That package takes a second to import; it is imported when someone first asks for the schema.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Required, get_type_hints

import msgspec
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter
from pydantic.json_schema import CoreModeRef, DefsRef, GenerateJsonSchema
from typing_extensions import TypedDict

from routing.error_schemas import ERROR_OF_TAG, ERROR_SCHEMAS, OPENAI_ERROR
from routing.page.files import HEADERS, Assets
from routing.page.schema_sharing import share

_REF_TEMPLATE = "#/components/schemas/{model}"


ASSETS_PATH = "/docs-assets"

_ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")

DOCS_PATHS = frozenset({"/docs", *(f"{ASSETS_PATH}/{name}" for name in _ASSETS)})
"""What anybody may read: there is nothing in it that is not in a package."""

_PAGE = Path(__file__).parent / "page" / "docs.html"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Swagger UI writes styles as it goes.
        "style-src 'self' 'unsafe-inline'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def add_docs(app: FastAPI) -> None:
    """Serve `/docs` with scripts and styles of our own, not from a content delivery network.

    They are files of the package `fastapi-offline`.
    """
    assets = importlib.resources.files("fastapi_offline") / "static"
    app.mount(ASSETS_PATH, Assets(Path(str(assets)), {}), name="docs-assets")
    html, headers = _PAGE.read_text("utf-8"), {**HEADERS, "content-security-policy": _POLICY}

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(html, headers=headers)


def add_operations(schema: dict[str, Any], prefixes: Iterable[str]) -> dict[str, Any]:
    """The OpenAPI document `schema` with the OpenAI operations added under each of `prefixes`.

    Costs about a second the first time in a process; call it off the event loop.
    """
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"bearer": []}, {}]
    operations, described = msgspec.json.decode(_openai())
    schemas.update(described)
    for prefix in prefixes:
        for path, operation in operations.items():
            schema["paths"][prefix + path] = {
                "post": {
                    **operation,
                    "operationId": (prefix + path).strip("/").replace("/", "_"),
                }
            }
    # Two prefixes have the same objects; each is renamed once.
    share(schema, schemas)
    return schema


@cache
def _openai() -> bytes:
    """The OpenAI operations by path, and the schemas by name that they refer to, as JSON: what a
    document is made of is its own."""
    schemas: dict[str, Any] = {}
    operations = {path: _operation(path, *row, schemas) for path, row in _types().items()}
    _make_forms(operations)
    # OpenAI's types know the numbers alone; its clients ask for base64.
    numbers = schemas["EmbeddingsResponse.Embedding"]["properties"]["embedding"]
    schemas["EmbeddingsResponse.Embedding"]["properties"]["embedding"] = {
        "anyOf": [numbers, {"type": "string", "format": "byte"}]
    }
    return msgspec.json.encode((operations, schemas))


def _make_forms(operations: Mapping[str, dict[str, Any]]) -> None:
    """Say of the calls whose requests are forms, or whose replies are sound or text, that they
    are."""
    file = {"type": "string", "format": "binary"}
    for path in _FORMS:
        content = operations[path]["requestBody"]["content"]
        content["multipart/form-data"] = content.pop("application/json")
    speech = operations["/audio/speech"]["responses"]["200"]["content"]
    del speech["application/json"]
    sounds = [f"audio/{kind}" for kind in ("mpeg", "opus", "aac", "flac", "wav", "pcm")]
    speech |= {**{kind: {"schema": file} for kind in sounds}, "text/event-stream": {}}
    for path in ("/audio/transcriptions", "/audio/translations"):
        operations[path]["responses"]["200"]["content"]["text/plain"] = {}


_FORMS = ("/audio/transcriptions", "/audio/translations", "/images/edits")


def _form(of: Any, *files: str) -> Any:
    """The type `of` of a request with what goes over the wire in place of Python's files."""
    hints = get_type_hints(of, include_extras=True)
    required, *others = files
    hints |= {required: Required[bytes], **dict.fromkeys(others, bytes)}
    return TypedDict(of.__name__, hints, total=False)  # type: ignore[operator]


def add_summaries(
    schema: dict[str, Any],
    tag: str,
    summaries: Mapping[str, str],
    bodies: Mapping[str, Mapping[str, Any]],
    streams: Mapping[str, str],
) -> None:
    """Add calls to the OpenAPI document `schema` whose bodies their own API's documents describe.

    Args:
        schema: the document.
        tag: the client API.
        summaries: what each call does, by path.
        bodies: the JSON Schema of what it is sent, by path, if there is more to say than that it is
            an object.
        streams: the media type of what a stream comes as, by path, for calls that have one.
    """
    anything: dict[str, dict[str, Any]] = {"application/json": {"schema": {"type": "object"}}}
    for path, summary in summaries.items():
        names = [parameter[1:-1] for parameter in _PARAMETER.findall(path)]
        replies: dict[str, dict[str, Any]] = dict(anything)
        if path in streams:
            replies[streams[path]] = {}
        sent = {"application/json": {"schema": bodies[path]}} if path in bodies else anything
        schema["paths"][path] = {
            "post": {
                "tags": [tag],
                "summary": summary,
                "operationId": _NO_LETTERS.sub("_", path).strip("_"),
                "parameters": [
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in names
                ],
                "requestBody": {"required": True, "content": sent},
                "responses": {"200": {"description": "The reply.", "content": replies}},
            }
        }


def add_errors(schema: dict[str, Any]) -> None:
    """Say of each call in the OpenAPI document `schema` what it is told of errors."""
    schemas = schema["components"]["schemas"]
    schemas.update({name: {**each, "title": name} for name, each in ERROR_SCHEMAS.items()})
    for path, calls in schema["paths"].items():
        for call in calls.values():
            # The list of models is there for the clients of several APIs, each in its own shape.
            names = (
                ERROR_SCHEMAS
                if path.startswith("/v1/models")
                else [ERROR_OF_TAG.get(call["tags"][0], OPENAI_ERROR)]
            )
            shapes = [{"$ref": _REF_TEMPLATE.format(model=name)} for name in names]
            shape = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
            content = {"application/json": {"schema": shape}}
            responses = call["responses"]
            # FastAPI's own: what is wrong is a 400 here, as all other errors are.
            responses.pop("422", None)
            responses["default"] = {"description": "What went wrong.", "content": content}
            if "{" in path:
                responses["404"] = {"description": "There is none.", "content": content}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


_PARAMETER = re.compile(r"\{[a-z_]+\}")
_NO_LETTERS = re.compile("[^A-Za-z0-9]+")


def _types() -> dict[str, tuple[str, Any, Any, Any]]:
    """For each path: what it does, the request's type, the reply's, and a stream chunk's if any."""
    from openai.types import (
        Completion,
        CreateEmbeddingResponse,
        ImageEditStreamEvent,
        ImageGenStreamEvent,
        ImagesResponse,
        ModerationCreateParams,
        ModerationCreateResponse,
    )
    from openai.types.audio import (
        SpeechCreateParams,
        Transcription,
        TranscriptionStreamEvent,
        Translation,
        TranslationCreateParams,
    )
    from openai.types.audio.transcription_create_params import (
        TranscriptionCreateParamsNonStreaming,
    )
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsNonStreaming as ChatRequest,
    )
    from openai.types.completion_create_params import (
        CompletionCreateParamsNonStreaming as CompletionRequest,
    )
    from openai.types.embedding_create_params import EmbeddingCreateParams
    from openai.types.image_edit_params import ImageEditParamsNonStreaming
    from openai.types.image_generate_params import ImageGenerateParamsNonStreaming
    from openai.types.responses import (
        CompactedResponse,
        InputTokenCountParams,
        InputTokenCountResponse,
        Response,
        ResponseCompactParams,
        ResponseStreamEvent,
    )
    from openai.types.responses.response_create_params import (
        ResponseCreateParamsNonStreaming as ResponseRequest,
    )

    return {
        "/chat/completions": (
            "Say the next message of a conversation.",
            ChatRequest,
            ChatCompletion,
            ChatCompletionChunk,
        ),
        "/completions": ("Continue a prompt.", CompletionRequest, Completion, Completion),
        "/embeddings": ("Embed texts.", EmbeddingCreateParams, CreateEmbeddingResponse, None),
        "/audio/speech": ("Say a text.", SpeechCreateParams, str, None),
        "/audio/transcriptions": (
            "Write down what is said.",
            _form(TranscriptionCreateParamsNonStreaming, "file"),
            Transcription,
            TranscriptionStreamEvent,
        ),
        "/audio/translations": (
            "Write down in English what is said.",
            _form(TranslationCreateParams, "file"),
            Translation,
            None,
        ),
        "/images/edits": (
            "Change images.",
            _form(ImageEditParamsNonStreaming, "image", "mask", "markup"),
            ImagesResponse,
            ImageEditStreamEvent,
        ),
        "/images/generations": (
            "Make images.",
            ImageGenerateParamsNonStreaming,
            ImagesResponse,
            ImageGenStreamEvent,
        ),
        "/moderations": (
            "Say what is harmful in texts and images.",
            ModerationCreateParams,
            ModerationCreateResponse,
            None,
        ),
        "/responses": (
            "Say what comes next, as items.",
            ResponseRequest,
            Response,
            ResponseStreamEvent,
        ),
        "/responses/compact": (
            "Compact a conversation.",
            ResponseCompactParams,
            CompactedResponse,
            None,
        ),
        "/responses/input_tokens": (
            "Count the tokens of a request.",
            InputTokenCountParams,
            InputTokenCountResponse,
            None,
        ),
    }


def _operation(
    path: str,
    summary: str,
    request: Any,
    reply: Any,
    chunk: Any | None,
    schemas: dict[str, Any],
) -> dict[str, Any]:
    name = "".join(part.title() for part in re.split("[/_]", path.strip("/")))
    request_schema = _add_schema(f"{name}Request", request, schemas)
    if chunk is not None:
        # The types know the two kinds of request apart; here they are one.
        schemas[f"{name}Request"]["properties"]["stream"] = {
            "title": "Stream",
            "type": "boolean",
            "description": "Answer with server-sent events instead of one object.",
        }
    content = {"application/json": {"schema": _add_schema(f"{name}Response", reply, schemas)}}
    if chunk is not None:
        content["text/event-stream"] = {"schema": _add_schema(f"{name}Chunk", chunk, schemas)}
    return {
        "tags": ["openai"],
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": request_schema}},
        },
        "responses": {"200": {"description": "The reply, or its stream.", "content": content}},
    }


class SchemaGenerator(GenerateJsonSchema):
    """Pydantic's own, which says the same of OpenAI's types in half of the time."""

    def encode_default(self, dft: Any) -> Any:
        """A default as JSON, for which pydantic makes a serializer each time: nearly all are None,
        or as they would be in JSON."""
        if dft is None or type(dft) in (bool, int, str):
            return dft
        return super().encode_default(dft)

    def get_defs_ref(self, core_mode_ref: CoreModeRef) -> DefsRef:
        """The name to hold a type's schema under, until its shortest that no other type has is
        chosen among several, for each of which pydantic compares all schemas anew.

        All here are schemas of one mode, of types of modules: names that tell apart modes, or types
        of one name in one module, are left out, but for the longest, which is each type's own.
        """
        longest = super().get_defs_ref(core_mode_ref)
        choices = getattr(self, "_prioritized_defsref_choices", {})  # it may go: then it is slow
        if len(names := choices.get(longest, ())) == _NAMES:
            choices[longest] = [names[0], names[2], longest]
        return longest


_NAMES = 6
"""What pydantic may call a type's schema: its name, that with its module, and that with a number
too, each without the mode and with it."""


def _add_schema(name: str, of: Any, schemas: dict[str, Any]) -> dict[str, str]:
    """Put the JSON schema of the type `of` among `schemas`; a reference to it.

    What it refers to goes under its name: other schemas have other types of the same names.
    """
    schema = TypeAdapter(of).json_schema(
        ref_template=_REF_TEMPLATE.format(model=f"{name}.{{model}}"),
        schema_generator=SchemaGenerator,
    )
    schemas.update({f"{name}.{each}": each_of for each, each_of in schema.pop("$defs", {}).items()})
    schemas[name] = {**schema, "title": name}
    return {"$ref": _REF_TEMPLATE.format(model=name)}
