"""A form with a file, in pieces of any size."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from llama_compat.wire.form_stream import MAX_PARTS, MAX_TEXT_BYTES, FormWithFile
from llama_compat.wire.forms import MAX_PADDING

TYPE = "multipart/form-data; boundary=cut"


def form(*parts: tuple[str, str]) -> bytes:
    pieces = [
        f"--cut\r\nContent-Disposition: form-data; {head}\r\n\r\n{text}\r\n" for head, text in parts
    ]
    return ("".join(pieces) + "--cut--\r\n").encode()


FILE = ('name="file"; filename="lines.jsonl"', "one\r\n--cu\r\ntwo")
PURPOSE = ('name="purpose"', "batch")


def read(body: bytes, size: int) -> tuple[FormWithFile, bytes]:
    parsed, data = FormWithFile(TYPE), b""
    for at in range(0, len(body), size):
        parsed.feed(body[at : at + size])
        data += parsed.data
        parsed.data = bytearray()
    parsed.finish()
    return parsed, data


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("parts", [(PURPOSE, FILE), (FILE, PURPOSE)])
def test_it_is_the_same_however_it_is_cut(size: int, parts: tuple[tuple[str, str], ...]) -> None:
    parsed, data = read(form(*parts), size)
    assert data == b"one\r\n--cu\r\ntwo"
    assert (parsed.filename, parsed.texts) == ("lines.jsonl", {"purpose": "batch"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (form(PURPOSE), "'file'"),
        (form(PURPOSE, FILE)[:-12], "does not end"),
        (form(FILE, FILE), "one file"),
        (form(('name="file"', "text")), "one file"),
        (form(("filename=x", "text")), "has no name"),
        (form(('name="purpose"', "x" * MAX_TEXT_BYTES), FILE), "more than"),
        (b"nonsense", "form"),
        (form(('name="file"; filename=a\r\nContent-Transfer-Encoding: base64', "YQ==")), "encod"),
        (form(FILE).replace(b"--cut--", b"--cut" + b" " * MAX_PADDING), "blanks behind"),
        (form(('name="file"; filename=a', "\r\n--cuts" * (MAX_PARTS + 1)), FILE), "more than 32"),
    ],
)
@pytest.mark.parametrize("size", [1, 16, 10_000])
def test_what_is_wrong_is_said(body: bytes, said: str, size: int) -> None:
    with pytest.raises(APIError, match=said) as caught:
        read(body, size)
    assert caught.value.status == 400


def test_a_file_may_have_the_boundary_within_its_lines() -> None:
    text = "a --cut\r\n" * (2 * MAX_PARTS) + "--cu" + " " * 2 * MAX_PADDING
    assert read(form(('name="file"; filename=a', text)), 100)[1] == text.encode()


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", ""])
def test_what_is_no_form_is_refused(kind: str) -> None:
    with pytest.raises(APIError, match="no multipart/form-data"):
        FormWithFile(kind)
