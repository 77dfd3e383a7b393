"""Files in chats: `{"type": "file", "file": {...}}`.

Where they name what was uploaded (`file_id`), what is in it is put there; in responses the same
members stand in the part itself. A vendor may have a part of its own for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import UNREADABLE, NamedFile, WireFiles
from llama_compat.media.documents import uploaded_document
from llama_compat.types import TextContent
from llama_compat.wire.json_fields import from_raw, to_raw


def _named(messages: Any) -> Iterator[NamedFile]:
    """Those in the value of `messages`. What is malformed names none: who reads it says so."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            match part:
                case {"type": "file", "file": {"file_id": str(file_id)} as file}:
                    at = f"messages[{index}].content[{place}].file"
                    yield NamedFile(file_id, at, partial(put_file, part, file, "text", at))


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


def with_document_urls(messages: Raw) -> Raw:
    """The `messages` of a request with the parts for files that Mistral has, where they hold them.

    As clients of its SDK make a `DocumentURLChunk`, of `data:` URLs too (2026-11-28).
    """
    if b'"file_data"' not in bytes(messages):
        return messages
    try:
        items = from_raw(messages)
        for item in items:
            content = item["content"] if isinstance(item, dict) and "content" in item else ()
            for part in content if isinstance(content, list) else ():
                match part:
                    case {"type": "file", "file": {"file_data": str(url), **file}}:
                        part.clear()
                        part |= {"type": "document_url", "document_url": url}
                        if isinstance(file.get("filename"), str):
                            part["document_name"] = file["filename"]
    except UNREADABLE:
        return messages  # The vendor says better what is wrong with them.
    return to_raw(items)
