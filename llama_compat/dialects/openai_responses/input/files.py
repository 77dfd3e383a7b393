"""Where items name files that were uploaded, in place of what is in them: `{"type": "input_file",
"file_id": ...}`, and images in the same way."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

from llama_compat.dialects.base import NamedFile, WireFiles
from llama_compat.dialects.openai.chat.files import put_file
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import uploaded_type


def _named(items: Any) -> Iterator[NamedFile]:
    """Those in the value of `input`. What is malformed names none: who reads it says so."""
    for index, item in enumerate(items if isinstance(items, list) else ()):
        for member in ("content", "output") if isinstance(item, dict) else ():
            parts = item.get(member)
            for place, part in enumerate(parts if isinstance(parts, list) else ()):
                at = f"input[{index}].{member}[{place}]"
                match part:
                    case {"type": "input_file", "file_id": str(file_id)}:
                        put = partial(put_file, part, part, "input_text", at)
                        yield NamedFile(file_id, at, put)
                    case {"type": "input_image", "file_id": str(file_id)}:
                        yield NamedFile(file_id, at, partial(_put_image, part, at))


def _put_image(part: dict[str, Any], path: str, name: str, media_type: str, data: bytes) -> None:
    kind = uploaded_type(media_type, data, path)
    del part["file_id"]
    part["image_url"] = EncodedFile(kind, base64.b64encode(data).decode()).data_url


FILES = WireFiles(member="input", named=_named)
