"""The text of files of each kind, and what is said of those that have none."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from routing.vector_stores.extraction import pieces_of
from routing.vector_stores.formats import UnreadableFile, pieces, text_of
from tests.unit.routing.process.test_programs import command, has_ended, until


def docx(xml: str) -> bytes:
    made = BytesIO()
    with ZipFile(made, "w") as parts:
        parts.writestr("word/document.xml", xml)
    return made.getvalue()


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DOCUMENT = (
    f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>Hello</w:t><w:tab/><w:t>there</w:t>'
    "</w:r></w:p><w:p><w:r><w:t>again</w:t></w:r></w:p></w:body></w:document>"
)


def pdf(text: str) -> bytes:
    """The smallest PDF that says something."""
    stream = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\n" % table
    return made + end + b"startxref\n%d\n%%%%EOF\n" % len(made)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.txt", "Grüße".encode(), "Grüße"),
        ("a.md", b"\xef\xbb\xbf# Title", "# Title"),
        ("a.json", b'{"a": 1}', '{"a": 1}'),
        ("a.py", b"print(1)", "print(1)"),
        ("noname", "hé".encode("utf-16"), "hé"),
        (
            "a.html",
            b"<html><head><title>T</title><script>x</script></head><body><p>One<p>Two</body>",
            "T\n\nOne\nTwo",
        ),
        ("a.docx", docx(DOCUMENT), "Hello there\nagain"),
    ],
)
def test_what_a_file_says(name: str, data: bytes, text: str) -> None:
    assert text_of(name, data) == text


def test_what_a_pdf_says() -> None:
    pytest.importorskip("pypdf", reason="needs the extra 'vector-stores'")
    assert "Hello PDF" in text_of("a.pdf", pdf("Hello PDF"))


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00", "unsupported_file"),
        ("a.txt", b"caf\xe9", "unsupported_file"),
        ("a.txt", b"  \n", "invalid_file"),
        ("a.docx", b"PK\x03\x04 nonsense", "invalid_file"),
        ("a.docx", docx("<w"), "invalid_file"),
        ("a.zip", docx(DOCUMENT), "unsupported_file"),
    ],
)
def test_what_has_no_text_says_why(name: str, data: bytes, code: str) -> None:
    with pytest.raises(UnreadableFile) as caught:
        text_of(name, data)
    assert caught.value.code == code
    assert caught.value.message
    assert pieces(name, data, 100, 50).code == code


def test_a_broken_pdf_says_why() -> None:
    pytest.importorskip("pypdf", reason="needs the extra 'vector-stores'")
    with pytest.raises(UnreadableFile) as caught:
        text_of("a.pdf", b"%PDF-1.7 nonsense")
    assert caught.value.code == "invalid_file"


async def test_large_ones_and_documents_are_read_in_a_process() -> None:
    found = await pieces_of("a.docx", docx(DOCUMENT), size=100, overlap=0, seconds=60)
    assert [each.text for each in found] == ["Hello there\nagain"]
    large = b"many words " * 200_000
    found = await pieces_of("-a b.txt", large, size=4096, overlap=0, seconds=60)
    assert "".join(each.text for each in found) == large.decode()


async def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(UnreadableFile) as caught:
        await pieces_of("a.txt", b"many words " * 200_000, size=800, overlap=400, seconds=0.001)
    assert "0.001 seconds" in caught.value.message


async def test_what_its_reader_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, reader = tmp_path / "child", tmp_path / "reader"
    shell, _, script = command(child)
    reader.write_text(f"#!/bin/{shell}\n{script}\n")
    reader.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(reader))
    reading = asyncio.create_task(
        pieces_of("a.docx", docx(DOCUMENT), size=100, overlap=0, seconds=60)
    )
    await until(lambda: child.exists() and bool(child.read_text().strip()))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reading, 60)
    await until(lambda: has_ended(child))
