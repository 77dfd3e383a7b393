"""Forms with files (`multipart/form-data`, RFC 7578): what is in one, and one with other words.

A form is not taken apart into copies: its parts are places in the bytes that came, and it is put
together again from those. So a file passes as it is, whatever is in it. But the headers of each
part are written anew: whoever reads them next finds the names that were found here, and no other
model by another reading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from llama_compat.errors import APIError
from llama_compat.wire.json_fields import JSONFields, to_raw

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 256
"""A form has no more: sixteen images and their parameters are thirty."""

MAX_PADDING = 64
"""So many blanks may stand behind a boundary, of which the parser reads one after the other."""

MAX_TEXT_BYTES = 1 << 20
"""What the members of a form that are text come to: they are decoded, as files are not. A prompt
has 32,000 characters at most."""

_PLAIN = (b"7bit", b"8bit", b"binary")
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,199}[0-9A-Za-z'()+_,./:=?-]")
_TYPE = re.compile(r"[\x20-\x7e]{1,200}")


class Part(Struct, frozen=True):
    """One part of a form, as places in its bytes.

    Attributes:
        name: of the member that it is.
        file: the name of the file that it is; None for text.
        type: its media type; None where it says none.
        begin, end: of what is in it.
    """

    name: str
    file: str | None
    type: str | None
    begin: int
    end: int

    @property
    def head(self) -> bytes:
        """Its headers, and the line that ends them."""
        head = f'Content-Disposition: form-data; name="{_escaped(self.name)}"'
        if self.file is not None:
            head += f'; filename="{_escaped(self.file)}"'
        if self.type is not None:
            head += f"\r\nContent-Type: {self.type}"
        return f"{head}\r\n\r\n".encode()


_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


def _escaped(name: str) -> str:
    """As browsers write it (https://html.spec.whatwg.org/#multipart-form-data)."""
    return name.translate(_ESCAPES)


class Form(Struct, frozen=True):
    """A form as it came.

    Attributes:
        body: all of it.
        boundary: what is between the parts.
        parts: in their order.
    """

    body: bytes
    boundary: bytes
    parts: tuple[Part, ...]

    @property
    def content_type(self) -> str:
        """The header that says how what is rendered is taken apart."""
        return f'multipart/form-data; boundary="{self.boundary.decode()}"'

    def fields(self) -> JSONFields:
        """Its members as those of a JSON object: texts, and of each file its name. What comes
        several times is an array, since of two values each reader takes another.

        Raises:
            APIError: 400, a text is not UTF-8, or there is too much text.
        """
        texts = sum(part.end - part.begin for part in self.parts if part.file is None)
        if texts > MAX_TEXT_BYTES:
            raise too_much_text(MAX_TEXT_BYTES)
        values: dict[str, list[str]] = {}
        for part in self.parts:
            value = part.file
            if value is None:
                value = text_of(part.name, self.body[part.begin : part.end])
            values.setdefault(part.name, []).append(value)
        return {
            name: to_raw(several if len(several) > 1 else several[0])
            for name, several in values.items()
        }

    def with_file_names(self, names: Mapping[str, Iterable[str]]) -> Form:
        """The same form, whose files are called otherwise: those of a member, in their order."""
        others = {name: iter(each) for name, each in names.items()}
        parts = (
            each
            if each.file is None or each.name not in others
            else structs.replace(each, file=next(others[each.name], each.file))
            for each in self.parts
        )
        return structs.replace(self, parts=tuple(parts))

    def render(self, changed: Mapping[str, str], left_out: Collection[str] = ()) -> bytes:
        """The same form, with other texts for the members in `changed`, and some left out."""
        body, pieces = memoryview(self.body), []
        for part in self.parts:
            if part.name in left_out:
                continue
            text = changed.get(part.name)
            pieces += [
                b"--",
                self.boundary,
                b"\r\n",
                part.head,
                body[part.begin : part.end] if text is None else text.encode(),
                b"\r\n",
            ]
        return b"".join((*pieces, b"--", self.boundary, b"--\r\n"))


def parse_form(body: bytes, content_type: str) -> Form:
    """The form that `body` is.

    Raises:
        APIError: 400, it is none: it has no boundary or does not end with it, or has it where no
            part begins; a part has no name, or there are too many.
    """
    boundary = boundary_in(content_type)
    delimiters = Delimiters(b"--" + boundary, MAX_PARTS)
    delimiters.see(body)
    reader = _Reader()
    parse(MultipartParser(boundary, reader.callbacks()), body)
    if not reader.ended:
        raise not_whole()
    if delimiters.count > len(reader.parts) + 1:
        # Others are not as strict about line ends, and would find a part there.
        raise invalid_form("its boundary is in one of its parts, too")
    return Form(body, boundary, tuple(reader.parts))


# What holds for forms that are there whole, and for those that are read while they arrive ---------


def boundary_in(content_type: str) -> bytes:
    """What is between the parts of a form.

    Raises:
        APIError: 400, the header `content-type` is of no form, or names none that can be one.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
        raise invalid_form(
            "the header 'content-type' is no multipart/form-data with a boundary, or with one that"
            " can be none"
        )
    return boundary


class Delimiters:
    """Looks for what would keep the parser busy for long, before it gets it: it reads what follows
    a delimiter byte by byte, a thousand times as slowly as what is in a part.

    Args:
        delimiter: what stands between two parts.
        most: parts that the form may have.

    Attributes:
        count: delimiters so far.
    """

    def __init__(self, delimiter: bytes, most: int) -> None:
        self.count = 0
        self._delimiter, self._most = delimiter, most
        self._padded = re.compile(re.escape(delimiter) + rb"[ \t]{%d}" % MAX_PADDING)
        self._last = b""

    def see(self, piece: bytes) -> None:
        """The next bytes of the form.

        Raises:
            APIError: 400, there are too many delimiters, or blanks behind one.
        """
        seen = self._last + piece
        new = max(0, len(self._last) - len(self._delimiter) + 1)
        self.count += seen.count(self._delimiter, new)
        if self.count > self._most + 1:
            raise too_many_parts(self._most)
        if self._padded.search(seen):
            raise invalid_form("there are blanks behind a boundary")
        self._last = seen[1 - len(self._delimiter) - MAX_PADDING :]


def parse(parser: MultipartParser, piece: bytes) -> None:
    """Give `parser` the next bytes of its form.

    Raises:
        APIError: 400, they can't be taken apart.
    """
    try:
        parser.write(piece)
    except FormParserError as error:
        raise invalid_form(str(error).rstrip(".") or "it can't be taken apart") from None


def names_in(headers: Mapping[bytes, bytes], number: int) -> tuple[str, str | None]:
    """The names of a part and of the file that it is, None for text.

    Args:
        headers: of the part.
        number: counted from 1.

    Raises:
        APIError: 400, it has no name, or is written in other bytes than those that are meant.
    """
    options = parse_options_header(headers.get(b"content-disposition", b""))[1]
    if b"name" not in options:
        raise invalid_form(f"part {number} has no name")
    encoding = headers.get(b"content-transfer-encoding", b"binary").strip().lower()
    if encoding not in _PLAIN:
        raise invalid_form("a part has a content-transfer-encoding, which RFC 7578 took away")
    file = options.get(b"filename")
    return _decoded(options[b"name"]), None if file is None else _decoded(file)


def text_of(name: str, value: bytes | bytearray) -> str:
    """The text of the member `name`.

    Raises:
        APIError: 400, it is none.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid_form(f"'{name[:100]}' is not text in UTF-8", name) from None


def invalid_form(why: str, param: str | None = None) -> APIError:
    """400: the body is no form that is read here."""
    return APIError(
        400, f"The request body is no proper form: {why}.", param=param, code="invalid_form"
    )


def not_whole() -> APIError:
    """400: a form breaks off."""
    return invalid_form("it does not end with its boundary, so that some of it may be missing")


def too_many_parts(most: int) -> APIError:
    """400: a form has more than `most` parts."""
    return invalid_form(f"it has more than {most} parts")


def too_much_text(most: int) -> APIError:
    """400: a form has more than `most` bytes that are no file."""
    return invalid_form(f"what is no file in it has more than {most} bytes")


def _decoded(name: bytes) -> str:
    """The parser reads headers as Latin-1, which clients write in UTF-8."""
    return name.decode("utf-8", "replace")


_HEADERS_END = b"\r\n\r\n"


class _Reader:
    """Notes where the parts of a form are, which is parsed in one piece."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._begin_part()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin_part,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        if len(self.parts) >= MAX_PARTS:
            raise too_many_parts(MAX_PARTS)
        self._body, self._head = b"", -1
        self._begin = self._finish = -1
        self._name = self._value = b""
        self._headers: dict[bytes, bytes] = {}

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        if self._head < 0:
            self._body, self._head = data, start
        self._name = data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value = data[start:end]

    def _end_header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._value = b""

    def _end_headers(self) -> None:
        # Headers hold no empty line, so the first one ends them.
        empty = self._body.find(_HEADERS_END, self._head)
        self._begin = self._finish = empty + len(_HEADERS_END)

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._finish = end

    def _end_part(self) -> None:
        name, file = names_in(self._headers, len(self.parts) + 1)
        type = self._headers.get(b"content-type", b"").decode("latin-1")
        self.parts.append(
            Part(
                name,
                file,
                type if _TYPE.fullmatch(type) else None,
                self._begin,
                self._finish,
            )
        )

    def _end(self) -> None:
        self.ended = True
