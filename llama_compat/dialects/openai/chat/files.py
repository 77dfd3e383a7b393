"""Files in chats: `{"type": "file", "file": {...}}`.

Where they name what was uploaded (`file_id`), what is in it is put there; in responses the same
members stand in the part itself. OpenAI has no place for an address of the web: people write it as
`file_id`, and OpenRouter takes it as `file_data`
(https://openrouter.ai/docs/guides/overview/multimodal/pdfs, 2026-11-28). A vendor may have a part
of its own for files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import NamedFile, WireFiles
from llama_compat.media.documents import (
    PDF,
    file_name,
    uploaded_document,
)
from llama_compat.media.images import is_remote
from llama_compat.types import TextContent
from llama_compat.wire.json_fields import from_raw, to_raw
from llama_compat.wire.malformed import UNREADABLE


def _named(messages: Any) -> Iterator[NamedFile]:
    """Those in the value of `messages`. What is malformed names none: who reads it says so."""
    for at, place, part, file in _parts(messages):
        match file:
            case {"file_id": str(file_id)}:
                at = f"{at}[{place}].file"
                yield NamedFile(file_id, at, partial(put_file, part, file, "text", at))


def _parts(messages: Any) -> Iterator[tuple[str, int, dict[str, Any], dict[str, Any]]]:
    """The parts that are files: the path of the content, the place in it, the part, its file."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            match part:
                case {"type": "file", "file": dict(file)}:
                    yield f"messages[{index}].content", place, part, file


def put_file(
    part: dict[str, Any],
    file: dict[str, Any],
    text_type: str,
    path: str,
    name: str,
    media_type: str,
    data: bytes,
) -> None:
    """Put what is in a file into the place that names it: text as a part of text.

    Args:
        part: of a message, which is changed.
        file: the object in it, or it itself, that has the `file_id`.
        text_type: what the wire calls a part that is text.
        path: where `file` stands in the request.
        name, media_type, data: of the file.

    Raises:
        APIError: 400 naming `path`: it is text that is not in UTF-8, or empty.
    """
    name = file.get("filename") or name
    document = uploaded_document(media_type, data, name, path)
    if isinstance(document, TextContent):
        part.clear()
        part |= {"type": text_type, "text": document.text}
        return
    del file["file_id"]
    file |= {"filename": name, "file_data": document.url}


FILES = WireFiles(member="messages", named=_named)


def have_files(messages: Raw) -> bool:
    """Whether any of `messages` may be a file; a quick look."""
    return b'"file"' in bytes(messages)


def path_of_file(messages: Raw) -> str | None:
    """The path of the first content in `messages` that has a file; None where none has."""
    return next((at for at, _, _, _ in _parts(_decoded(messages))), None)


def addresses_in(messages: Raw) -> Mapping[str, str]:
    """The addresses of the web at which files in `messages` are, and the path of a content that
    names each."""
    found = {}
    for at, _, _, file in _parts(_decoded(messages)):
        if address := _address(file):
            found[address] = at
    return found


def with_file_data(messages: Raw, data: Mapping[str, str]) -> Raw:
    """The `messages` of a request with what is at an address in place of that.

    Args:
        messages: they.
        data: by address, the `file_data` of a PDF.
    """
    items = _decoded(messages)
    for _, _, part, file in _parts(items):
        if address := _address(file):
            name = file_name(file.get("filename") or None, PDF)
            part["file"] = {"filename": name, "file_data": data[address]}
    return to_raw(items)


def with_document_urls(messages: Raw) -> Raw:
    """The `messages` of a request with the parts for files that Mistral has, where they hold them.

    As clients of its SDK make a `DocumentURLChunk`, of `data:` URLs too (2026-11-28).
    """
    items, changed = _decoded(messages), False
    for _, _, part, file in _parts(items):
        url, name = file.get("file_data"), file.get("filename")
        if isinstance(url, str):
            named = {"document_name": name} if isinstance(name, str) else {}
            part.clear()
            part |= {"type": "document_url", "document_url": url, **named}
            changed = True
    return to_raw(items) if changed else messages


def _decoded(messages: Raw) -> Any:
    """The value of `messages`; None where it is malformed: the vendor says better what is wrong."""
    try:
        return from_raw(messages)
    except UNREADABLE:
        return None


def _address(file: Mapping[str, Any]) -> str | None:
    said = (file.get("file_data"), file.get("file_id"))
    return next((each for each in said if isinstance(each, str) and is_remote(each)), None)
