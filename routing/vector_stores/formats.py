"""What is said in a file: plain text of any kind, HTML, PDF (by pypdf), and Word's DOCX.

Run as a program it reads a file from its standard input and prints its pieces: what people upload
may keep a parser busy, or have it take all memory there is, and a process can be ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import PurePosixPath
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from routing.tools.pages import page_text
from routing.vector_stores.chunking import TextChunk, chunks

MAX_XML_BYTES = 256 << 20
"""Of the text of a DOCX, unpacked."""

MEMORY_BYTES = 3 << 30
"""That the program may have."""

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


class UnreadableFile(Exception):
    """No text is found in a file.

    Args:
        code: OpenAI's word: `unsupported_file` or `invalid_file`.
        message: why, for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Pieces(Struct, frozen=True):
    """What a file comes to: its pieces, or why there are none (`code`, `message`)."""

    chunks: list[TextChunk] = []
    code: str = ""
    message: str = ""


def is_plain(filename: str, data: bytes) -> bool:
    """Whether nothing is needed to read a file but to decode it."""
    return _reader(filename, data) is decoded


def pieces(filename: str, data: bytes, size: int, overlap: int) -> Pieces:
    """The pieces of a file.

    Args:
        filename: its name.
        data: what is in it.
        size, overlap: as for `chunks`.
    """
    try:
        text = text_of(filename, data)
    except UnreadableFile as error:
        return Pieces(code=error.code, message=error.message)
    return Pieces(list(chunks(text, size, overlap)))


def text_of(filename: str, data: bytes) -> str:
    """The text of a file.

    Args:
        filename: its name, whose ending tells what it is where its bytes do not.
        data: what is in it.

    Raises:
        UnreadableFile: there is none, or nobody here can find it.
    """
    # PostgreSQL keeps no text with it, and nobody looks for it.
    text = _reader(filename, data)(data).replace("\x00", "")
    if not text.strip():
        raise UnreadableFile("invalid_file", f"There is no text in '{filename[:200]}'.")
    return text


def _reader(filename: str, data: bytes) -> Callable[[bytes], str]:
    ending = PurePosixPath(filename.lower()).suffix
    if data.startswith(b"%PDF-"):
        return of_pdf
    if data.startswith(b"PK\x03\x04") and ending in (".docx", ".docm"):
        return of_docx
    return of_html if ending in (".html", ".htm", ".xhtml") else decoded


def decoded(data: bytes) -> str:
    """Text in UTF-8, or in UTF-16 or UTF-32 that says so.

    Raises:
        UnreadableFile: it is none.
    """
    encoding = "utf-8-sig"
    for mark, name in _MARKS:
        if data.startswith(mark):
            encoding = name
            break
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise UnreadableFile(
            "unsupported_file",
            "The file is neither text in UTF-8 or UTF-16, nor HTML, PDF or DOCX. Upload its text.",
        )
    return text


_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def of_html(data: bytes) -> str:
    """What a page says.

    Raises:
        UnreadableFile: it is no text.
    """
    title, text = page_text(decoded(data))
    return f"{title}\n\n{text}" if title else text


def of_pdf(data: bytes) -> str:
    """What the pages of a PDF say, as far as it is text and no picture of one.

    Raises:
        UnreadableFile: it can't be read.
    """
    try:
        from pypdf import PdfReader
    except ImportError:
        raise UnreadableFile(
            "unsupported_file",
            "This server reads no PDF: its owner can have it do so by"
            " pip install 'llama-compat[vector-stores]'.",
        ) from None
    try:
        text = "\n\n".join(page.extract_text() for page in PdfReader(BytesIO(data)).pages)
    except Exception as error:  # pypdf has many, and those of what it is made with
        name = type(error).__name__
        raise UnreadableFile("invalid_file", f"The PDF can't be read ({name}).") from None
    if not text.strip():
        raise UnreadableFile(
            "invalid_file", "There is no text in the PDF: its pages are pictures, perhaps."
        )
    # What stands for no character at all in a font of the PDF's own.
    return text.encode("utf-8", "replace").decode()


def of_docx(data: bytes) -> str:
    """What the paragraphs of a document say.

    Raises:
        UnreadableFile: it can't be read.
    """
    try:
        with ZipFile(BytesIO(data)) as parts:
            if parts.getinfo("word/document.xml").file_size > MAX_XML_BYTES:
                raise UnreadableFile("invalid_file", "The document is too large unpacked.")
            with parts.open("word/document.xml") as file:
                root = ElementTree.fromstring(file.read(MAX_XML_BYTES))
    except (BadZipFile, KeyError, ElementTree.ParseError, OSError, RuntimeError, ValueError):
        raise UnreadableFile("invalid_file", "The file is no DOCX that can be read.") from None
    return "\n".join("".join(_run(each)) for each in root.iter(f"{_WORD}p"))


def _run(paragraph: ElementTree.Element) -> Iterator[str]:
    for each in paragraph.iter():
        if each.tag == f"{_WORD}t":
            yield each.text or ""
        elif each.tag in (f"{_WORD}tab", f"{_WORD}br", f"{_WORD}cr"):
            yield " "


def _main() -> None:
    filename, size, overlap, seconds = sys.argv[1:]
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    found = pieces(filename, sys.stdin.buffer.read(), int(size), int(overlap))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main()
