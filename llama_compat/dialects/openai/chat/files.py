"""Where chats name files that were uploaded, in place of what is in them: `{"type": "file", "file":
{"file_id": ...}}`. In responses the same members stand in the part itself."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

from llama_compat.dialects.base import NamedFile, WireFiles
from llama_compat.media.documents import document_of, media_type_of
from llama_compat.types import TextContent


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
    encoded = base64.b64encode(data).decode()
    document = document_of(media_type_of(media_type, name, data[:8]), encoded, name, path)
    if isinstance(document, TextContent):
        part.clear()
        part |= {"type": text_type, "text": document.text}
        return
    del file["file_id"]
    file |= {"filename": name, "file_data": document.url}


FILES = WireFiles(member="messages", named=_named)
