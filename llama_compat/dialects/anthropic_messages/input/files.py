"""Where messages name files that were uploaded, in place of what is in them:
`{"type": "file", "file_id": ...}`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from llama_compat.dialects.base import NamedFile, WireFiles
from llama_compat.errors import invalid_parameter
from llama_compat.media.documents import PDF, media_type_of
from llama_compat.media.images import uploaded_type


def _named(messages: Any) -> Iterator[NamedFile]:
    """Those in the value of `messages`. What is malformed names none: who reads it says so."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            yield from _named_in(message.get("content"), f"messages[{index}].content")


def _named_in(content: Any, path: str) -> Iterator[NamedFile]:
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict):
            continue
        where, source = f"{path}[{index}]", block.get("source")
        # Results of tools have blocks of their own, and documents may be made of some.
        yield from _named_in(block.get("content"), f"{where}.content")
        if not isinstance(source, dict):
            continue
        yield from _named_in(source.get("content"), f"{where}.source.content")
        if source.get("type") != "file" or not isinstance(source.get("file_id"), str):
            continue
        at = f"{where}.source"
        match block.get("type"):
            case "image":
                yield NamedFile(source["file_id"], at, partial(_put, block, _image, at))
            case "document":
                yield NamedFile(source["file_id"], at, partial(_put, block, _document, at))


def _put(
    block: dict[str, Any], source: _Source, path: str, name: str, media_type: str, data: bytes
) -> None:
    block["source"] = source(path, media_type, data)


_Source = Callable[[str, str, bytes], Mapping[str, Any]]


def _image(path: str, media_type: str, data: bytes) -> Mapping[str, Any]:
    kind = uploaded_type(media_type, data, path)
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


def _document(path: str, media_type: str, data: bytes) -> Mapping[str, Any]:
    if media_type_of(media_type, "", data[:8]) == PDF:
        return {"type": "base64", "media_type": PDF, "data": base64.b64encode(data).decode()}
    try:
        return {"type": "text", "media_type": "text/plain", "data": data.decode()}
    except UnicodeDecodeError:
        raise invalid_parameter(
            path,
            f"'{path}': the file is '{media_type}', and a document is a PDF or text in UTF-8.",
        ) from None


FILES = WireFiles(member="messages", named=_named)
