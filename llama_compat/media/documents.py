"""Documents as a message carries them: a URL to fetch, or the bytes in a `data:` URL (RFC 2397).

Plain text is told as text wherever it came from, so that every model reads it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from llama_compat.errors import UnsupportedHere, invalid_parameter, unsupported_content
from llama_compat.media.audio import not_taken, without_audio
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import is_data_url, is_remote
from llama_compat.types import (
    Content,
    ContentPart,
    DocumentContent,
    Message,
    SeenContent,
    SeenPart,
    TextContent,
    media_in,
)

PDF = "application/pdf"

UNNAMED = "document"
"""What a document is called where it has to have a name."""

_OFFICE = "application/vnd.openxmlformats-officedocument"

SUFFIXES = {
    PDF: "pdf",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    "application/vnd.ms-powerpoint": "ppt",
    f"{_OFFICE}.presentationml.presentation": "pptx",
}
"""How the files of a media type end."""

_TYPES = {suffix: media_type for media_type, suffix in SUFFIXES.items()}

_TEXT_SUFFIXES = frozenset({"txt", "md", "csv", "html", "htm", "json", "xml"})
_TEXT_TYPES = frozenset({"application/json", "application/xml"})
"""Besides `text/*`."""

ANY_TYPE = "application/octet-stream"
"""What files are called of which nobody says what they are."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^;,\s]+)*;base64,", re.IGNORECASE)

_PDF_IN_BASE64 = base64.b64encode(b"%PDF-1")[:6].decode()


def is_text(media_type: str) -> bool:
    """Whether files of the type are plain text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES


def document_of(
    media_type: str, encoded: str, name: str | None, param: str
) -> DocumentContent | TextContent:
    """The document whose bytes are `encoded`; plain text as text, after its name.

    Args:
        media_type: what it is.
        encoded: its bytes in base64.
        name: that of its file.
        param: where the bytes stand in the request.

    Raises:
        APIError: 400 naming `param`: there are none, or text that is not in UTF-8.
    """
    media_type = media_type.lower()
    if not encoded:
        raise invalid_parameter(param, f"'{param}' is empty, and has to be a file in base64.")
    if not is_text(media_type):
        return DocumentContent(EncodedFile(media_type, encoded).data_url, name)
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid_parameter(
            param, f"'{param}' is not text in UTF-8 and base64, which its type {media_type!r} says."
        ) from None
    return _told(text, name)


def uploaded_document(
    media_type: str, data: bytes, name: str, param: str
) -> DocumentContent | TextContent:
    """The document that was uploaded; plain text as text, after its name.

    Args:
        media_type: what it is said to be.
        data: its bytes.
        name: that of its file.
        param: where the request names it.

    Raises:
        APIError: 400 naming `param`: it is empty, or text that is not in UTF-8.
    """
    media_type = media_type_of(media_type, name, data[:8]).lower()
    if not data:
        raise invalid_parameter(param, f"'{param}' names a file that is empty.")
    if not is_text(media_type):
        return DocumentContent(
            EncodedFile(media_type, base64.b64encode(data).decode()).data_url, name
        )
    try:
        return _told(data.decode(), name)
    except UnicodeDecodeError:
        raise invalid_parameter(
            param,
            f"'{param}' names a file that is not text in UTF-8, which its type {media_type!r}"
            " says.",
        ) from None


def _told(text: str, name: str | None) -> TextContent:
    return TextContent(f"{name}\n{text}" if name else text)


def document_in(data: str, name: str | None, param: str) -> DocumentContent | TextContent:
    """The document that a file's bytes are, in a `data:` URL or in base64 alone.

    Args:
        data: the file.
        name: its name, by which its type is known where nothing else says it.
        param: where `data` stands in the request.

    Raises:
        APIError: 400 naming `param`: there is no file, or none can say what it is.
    """
    if is_remote(data):
        return document_at(data, name, param)  # OpenRouter's way to say so.
    if is_data_url(data):
        media_type, encoded = parse_document_url(data, param)
        return document_of(media_type, encoded, name, param)
    media_type = PDF if data.startswith(_PDF_IN_BASE64) else _type_by_name(name or "")
    if not media_type:
        raise invalid_parameter(
            param,
            f"'{param}' does not say what the file is: send it as"
            " 'data:application/pdf;base64,...'.",
        )
    return document_of(media_type, data, name, param)


def media_type_of(media_type: str, name: str, begin: bytes) -> str:
    """What a file is.

    Args:
        media_type: what it is said to be, which may be nothing in particular.
        name: that of the file.
        begin: its first bytes, eight or so.
    """
    if begin.startswith(b"%PDF-"):
        return PDF
    return media_type if media_type not in ("", ANY_TYPE) else _type_by_name(name) or media_type


def _type_by_name(name: str) -> str:
    suffix = PurePosixPath(name).suffix[1:].lower()
    return "text/plain" if suffix in _TEXT_SUFFIXES else _TYPES.get(suffix, "")


def document_at(url: str, name: str | None, param: str) -> DocumentContent:
    """The document at an address of the web.

    Raises:
        APIError: 400 naming `param`: it is no such address.
    """
    if not is_remote(url):
        raise invalid_parameter(
            param, f"Invalid document in '{param}': expected an http(s) URL, got '{url[:60]}'."
        )
    return DocumentContent(url, name)


def parse_document_url(url: str, param: str) -> EncodedFile:
    """The file in a `data:` URL; whether its bytes are that document is for the model to see.

    Raises:
        APIError: 400 naming `param` if the URL holds no file in base64.
    """
    match = _DATA_URL.match(url)
    if match is None or match.end() == len(url):
        raise invalid_parameter(
            param,
            f"Invalid document in '{param}': expected a URL of the form"
            f" 'data:application/pdf;base64,...', got '{url[:60]}'.",
        )
    return EncodedFile(match[1].lower(), url[match.end() :])


def encoded_in(document: DocumentContent, param: str, whose: str) -> EncodedFile:
    """The bytes of a document for who takes nothing else.

    Args:
        document: it.
        param: where it stands in the request.
        whose: what takes bytes alone, such as `OpenAI's chats`.

    Raises:
        UnsupportedHere: 400 naming `param`: it is an address.
        APIError: 400 naming it: it is no document in base64.
    """
    if is_remote(document.url):
        raise unsupported_content(
            param,
            f"'{param}' has the address of a document, and {whose} takes bytes alone: send it in"
            " base64.",
        )
    return parse_document_url(document.url, param)


def no_such_document(param: str, media_type: str, whose: str) -> UnsupportedHere:
    """The error for a document of a type that is not taken: 400."""
    return unsupported_content(
        param,
        f"'{param}' has a document of the type '{media_type}', which {whose} does not take. Send"
        " it as a PDF or as text.",
    )


def file_name(name: str | None, media_type: str) -> str:
    """What a file is called by those who know the type of a file by how its name ends."""
    name, suffix = name or UNNAMED, SUFFIXES.get(media_type)
    return name if suffix is None or name.lower().endswith(f".{suffix}") else f"{name}.{suffix}"


def have_addresses(messages: Iterable[Message]) -> bool:
    """Whether there is a document that has to be fetched."""
    return any(
        isinstance(each, DocumentContent) and is_remote(each.url)
        for message in messages
        for each in media_in(message.content)
    )


def with_names_told(content: Content) -> Content:
    """The content for who has no place for the name of a document: it is text before that."""
    if isinstance(content, str):
        return content
    told: list[ContentPart] = []
    for part in content:
        if isinstance(part, DocumentContent) and part.name:
            told.append(TextContent(f"{part.name}\n"))
        told.append(part)
    return tuple(told)


def seen_alone(content: Content, path: str, whose: str) -> SeenContent:
    """The content for who takes texts and images alone.

    Args:
        content: of a message.
        path: where it stands in the request.
        whose: what takes nothing else, such as `Ollama's API`.

    Raises:
        UnsupportedHere: 400; there is audio in it, or a document.
    """
    return content if isinstance(content, str) else seen_parts(content, path, whose)


def seen_parts(parts: Sequence[ContentPart], path: str, whose: str) -> tuple[SeenPart, ...]:
    """The same of parts.

    Raises:
        UnsupportedHere: as `seen_alone`.
    """
    read = without_audio(tuple(parts), path, whose)
    assert not isinstance(read, str)
    seen = tuple(part for part in read if not isinstance(part, DocumentContent))
    if len(seen) < len(read):
        raise not_taken("a document", path, whose)
    return seen
