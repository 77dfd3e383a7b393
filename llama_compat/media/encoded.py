"""A file inside a request or a reply: its bytes in base64, and what they are."""

from __future__ import annotations

from typing import NamedTuple


class EncodedFile(NamedTuple):
    """A file's bytes in base64, and their media type, such as `image/png`."""

    media_type: str
    base64: str

    @property
    def data_url(self) -> str:
        """The `data:` URL (RFC 2397) that holds the file."""
        return f"data:{self.media_type};base64,{self.base64}"
