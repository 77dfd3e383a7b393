"""A form with one file, taken apart while it arrives.

What is in the file is handed on in pieces; of the rest of the form, which is short text, as much is
kept as it may have. `llama_compat.wire.forms` reads forms that are there whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from python_multipart.multipart import MultipartParser, parse_options_header

from llama_compat.errors import APIError
from llama_compat.wire.forms import (
    Delimiters,
    boundary_in,
    invalid_form,
    names_in,
    not_whole,
    parse,
    text_of,
    too_many_parts,
    too_much_text,
)

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 32
MAX_TEXT_BYTES = 16 * 1024
"""What all that is not the file may come to, the headers of its parts included."""


class FormWithFile:
    """A form of which one part is a file named `file`.

    Args:
        content_type: the header of the request.
        needs_name: whether the file has to have a name.

    Attributes:
        texts: the other members, as far as they have come.
        filename: of the file, empty where it has none; None as long as there is no file.
        media_type: what its part says that it is; empty where that says nothing.
        data: what has come of it, for whoever takes it from here.

    Raises:
        APIError: 400, it is no form.
    """

    def __init__(self, content_type: str, *, needs_name: bool = True) -> None:
        boundary = boundary_in(content_type)
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._part_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)
        # What is in a file may hold the boundary in the middle of a line.
        self._delimiters = Delimiters(b"\r\n--" + boundary, MAX_PARTS)
        self._needs_name = needs_name
        self.texts: dict[str, str] = {}
        self.filename: str | None = None
        self.media_type = ""
        self.data = bytearray()
        self._parts = self._text_bytes = 0
        self._is_file = self._ended = False
        self._name = ""
        self._header, self._value, self._text = bytearray(), bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the form.

        Raises:
            APIError: 400, it is wrong.
        """
        self._delimiters.see(chunk)
        parse(self._parser, chunk)

    def finish(self) -> None:
        """There is no more of it.

        Raises:
            APIError: 400, it is not whole, or has no file.
        """
        if not self._ended:
            raise not_whole()
        if self.filename is None:
            raise APIError(
                400,
                "Missing required parameter: 'file', a part of the form with a file name.",
                param="file",
                code="missing_required_parameter",
            )

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise too_many_parts(MAX_PARTS)
        self._headers, self._text, self._is_file = {}, bytearray(), False

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _end_headers(self) -> None:
        self._name, filename = names_in(self._headers, self._parts)
        if self._name == "file":
            if self.filename is not None or (filename is None and self._needs_name):
                raise invalid_form("'file' has to be one file with a name", "file")
            self.filename = filename or ""
            kind = parse_options_header(self._headers.get(b"content-type", b""))[0]
            self.media_type = kind.decode("latin-1")
            self._is_file = True

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.data += memoryview(data)[start:end]
        else:
            self._count(end - start)
            self._text += data[start:end]

    def _end_part(self) -> None:
        if not self._is_file:
            self.texts[self._name] = text_of(self._name, self._text)

    def _end(self) -> None:
        self._ended = True

    def _count(self, size: int) -> None:
        self._text_bytes += size
        if self._text_bytes > MAX_TEXT_BYTES:
            raise too_much_text(MAX_TEXT_BYTES)
