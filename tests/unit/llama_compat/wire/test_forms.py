"""Forms with files: what is found in one, and that nothing else is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.errors import APIError
from llama_compat.wire.forms import MAX_PARTS, MAX_TEXT_BYTES, parse_form
from llama_compat.wire.json_fields import from_raw

TYPE = "multipart/form-data; boundary=XX"


def form(*parts: tuple[str, bytes]) -> bytes:
    pieces = [
        b"--XX\r\nContent-Disposition: form-data; "
        + head.encode()
        + b"\r\n\r\n"
        + content
        + b"\r\n"
        for head, content in parts
    ]
    return b"".join(pieces) + b"--XX--\r\n"


@given(
    content=st.binary(max_size=300),
    tail=st.sampled_from(
        [b"", b"\r", b"\r\n", b"\r\n-", b"\r\n--", b"\r\n--X", b"\r\n--XY", b"--"]
    ),
)
def test_a_file_passes_as_it_is(content: bytes, tail: bytes) -> None:
    content = content.replace(b"XX", b"") + tail
    body = form(('name="model"', b"one"), ('name="file"; filename="a b.mp3"', content))
    rendered = parse_form(body, TYPE).render({"model": "other"})
    assert rendered == form(
        ('name="model"', b"other"), ('name="file"; filename="a b.mp3"', content)
    )


def test_members_are_texts_and_the_names_of_files() -> None:
    text = ('name="model"', "gr\u00fc\u00dfe".encode())
    body = form(text, ('name=file; filename="a.mp3"', b"\xff"))
    fields = parse_form(body, TYPE).fields()
    decoded = {name: from_raw(raw) for name, raw in fields.items()}
    assert decoded == {"model": "gr\u00fc\u00dfe", "file": "a.mp3"}


def test_what_is_left_out() -> None:
    body = form(('name="a"', b"1"), ('name="b"', b"2"), ('name="a"', b"3"))
    parsed = parse_form(body, TYPE)
    assert parsed.render({}, ["a"]) == form(('name="b"', b"2"))
    assert parsed.content_type == 'multipart/form-data; boundary="XX"'


@pytest.mark.parametrize(
    "head",
    [
        'name="x"; name="model"',
        'name="mo\\"del"',
        "name=\"model\"; name*=utf-8''x",
        'name="x"\r\nContent-Disposition: form-data; name="y"',
        'name="x"\r\nX-Other: "model"',
        'name="x"\r\nX-Empty:',
    ],
)
def test_headers_are_written_anew(head: str) -> None:
    """What is read in two ways is written so that there is one."""
    parsed = parse_form(form((head, b"text")), TYPE)
    (part,) = parsed.parts
    name = part.name.replace('"', "%22")
    assert parsed.render({}) == form((f'name="{name}"', b"text"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        form(('name="a"', b"1"))[:-8],
        form(("other=1", b"1")),
        form(*[('name="a"', b"")] * (MAX_PARTS + 1)),
        form(('name="a"\r\nContent-Transfer-Encoding: base64', b"bW9kZWw=")),
        form(('name="a"', b"1")).replace(b"--XX\r", b"--XX" + b" " * 1000 + b"\r"),
        form(('name="a"', b'1\n--XX\nContent-Disposition: form-data; name="model"\n\nother\n')),
        form(('name="a"; filename="b"', b"\r\n--XXa" * 100_000)),
        form(('name="a"', b"1")) + form(('name="model"', b"other")),
    ],
)
def test_what_is_no_form(body: bytes) -> None:
    with pytest.raises(APIError) as raised:
        parse_form(body, TYPE)
    assert (raised.value.status, raised.value.code) == (400, "invalid_form")


@pytest.mark.parametrize("boundary", ["", '"a\\"b"', "x" * 300, "a;b"])
def test_a_boundary_that_is_none(boundary: str) -> None:
    with pytest.raises(APIError) as raised:
        parse_form(form(), f"multipart/form-data; boundary={boundary}")
    assert raised.value.code == "invalid_form"


def test_what_comes_several_times_is_an_array() -> None:
    """Some readers take the first of them, and some the last."""
    body = form(
        ('name="n"', b"128"),
        ('name="image"; filename="a.png"', b""),
        ('name="n"', b"1"),
        ('name="image"; filename="b.png"', b""),
    )
    fields = parse_form(body, TYPE).fields()
    decoded = {name: from_raw(raw) for name, raw in fields.items()}
    assert decoded == {"n": ["128", "1"], "image": ["a.png", "b.png"]}


def test_there_is_only_so_much_text() -> None:
    """As JSON, a byte of it may be six."""
    half = b"\x01" * (MAX_TEXT_BYTES // 2 + 1)
    file = form(('name="file"; filename="a"', half * 2), ('name="model"', b"one"))
    assert parse_form(file, TYPE).fields()
    with pytest.raises(APIError) as raised:
        parse_form(form(('name="a"', half), ('name="b"', half)), TYPE).fields()
    assert raised.value.code == "invalid_form"
