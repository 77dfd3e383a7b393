"""Documents in requests to Converse: what they may be called, and how they are written.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from llama_compat.media.documents import (
    SUFFIXES,
    UNNAMED,
    encoded_in,
    file_name,
    no_such_document,
)
from llama_compat.types import DocumentContent

ATTACHED = "(See the document.)"
"""What a user says who sends a document and no word."""

_FORMATS = frozenset({"pdf", "doc", "docx", "xls", "xlsx"})
"""Those that are no plain text, which is told as text."""

_MAX_NAME = 200
_MAX_NUMBER = 10
"""Characters that a number may add to a name."""


class DocumentNames:
    """The names of one request's documents, no two of which are the same: "Messages can't contain
    duplicate document names"."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """A name as near to `wanted` as may be: of letters and digits of ASCII, hyphens, brackets,
        and single spaces."""
        name = re.sub(r"[^A-Za-z0-9()\[\]-]+", " ", wanted)[: _MAX_NAME - _MAX_NUMBER].strip()
        name = name or UNNAMED
        free, number = name, 1
        while free.lower() in self._taken:
            number += 1
            free = f"{name} {number}"
        self._taken.add(free.lower())
        return free


def render_document(document: DocumentContent, path: str, names: DocumentNames) -> dict[str, Any]:
    """The block of a document, without the suffix of its name, whose dot is refused.

    Args:
        document: it; it has to be there as a `data:` URL.
        path: where it stands.
        names: those that the request's documents have.

    Raises:
        APIError: 400 naming `path`, the API has no form for it.
    """
    encoded = encoded_in(document, path, "Bedrock's API")
    format = SUFFIXES.get(encoded.media_type)
    if format not in _FORMATS:
        raise no_such_document(path, encoded.media_type, "Bedrock's API")
    name = names.take(PurePosixPath(file_name(document.name, encoded.media_type)).stem)
    return {"document": {"format": format, "name": name, "source": {"bytes": encoded.base64}}}
