"""Objects whose members keep their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw, Struct

from llama_compat.wire.json_fields import (
    encode_fields,
    encode_json,
    from_raw,
    parse_fields,
    parse_object,
    parse_objects,
    unicode_from_raw,
    with_items,
)
from llama_compat.wire.malformed import UNREADABLE

NUMBERS = b'"float":1.50,"big":123456789012345678901234567890,"tiny":1E-7,"zero":-0.0'


@pytest.mark.parametrize(
    "text",
    [
        b'"x"',
        b'"\\u00e9\\/\xc3\xa9"',
        b'"\\ud83d"',
        b'"\\ud83d\\ude42 \\uDE42 \\\\ud83d"',
        b'[{"inner":"\\udfff", "list":[1,  2.0]}]',
    ],
)
def test_values_keep_their_bytes(text: bytes) -> None:
    sent = b'{"text":%b,%b}' % (text, NUMBERS)
    assert encode_fields(parse_fields(sent)) == sent
    assert encode_fields(parse_fields(b'{"outer": %b}' % sent)) == b'{"outer":%b}' % sent


def test_members_of_members_keep_their_bytes() -> None:
    sent = b'{"text":"\\ud83d","float":1.50}'
    fields = parse_fields(b'{"one":%b,"many":[%b]}' % (sent, sent))
    assert encode_fields(parse_object(fields["one"])) == sent
    assert [encode_fields(each) for each in parse_objects(fields["many"])] == [sent]


def test_a_name_may_hold_an_escaped_character() -> None:
    fields = parse_fields(b'{"\\ud83d\\ude42":1,"half":"\\ud83d"}')
    assert list(fields) == ["\N{SLIGHTLY SMILING FACE}", "half"]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (
            b'{"\\ud83d":["\\ud83d\\ude42 \\ude42"]}',
            {"\ufffd": ["\N{SLIGHTLY SMILING FACE} \ufffd"]},
        ),
        (b'"\\\\ud83d \\udfff"', "\\ud83d \ufffd"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_text_may_be_wanted_without_halves_of_characters(raw: bytes, value: Any) -> None:
    assert unicode_from_raw(Raw(raw)) == value


def test_a_byte_order_mark_is_skipped() -> None:
    assert encode_fields(parse_fields(b'\xef\xbb\xbf{"a":1}')) == b'{"a":1}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"a":NaN}',
        b'{"a":01}',
        b'{"a":1,}',
        b'{"a":1} b',
        b'{"a":"\n"}',
        b'{"a":"\\x"}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud83d"',
        b'{"\\ud83d":1}',
        b'{"a":"\\ud83d","b":"\x7f"}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_object_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_fields(data)


class Said(Struct):
    text: str


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["\ud83dx"]},
        {"a": ("\ud83dx",)},
        {"a": [Raw(b'"\\ud83dx"')], "b": "\ud83d"},
        {"a": [Said("\ud83dx")]},
    ],
)
def test_half_a_character_can_be_written(value: Any) -> None:
    written = json.loads(encode_json(value))
    [said] = written["a"]
    assert said in ("\ufffdx", {"text": "\ufffdx"})


def test_what_is_whole_is_written_as_it_is() -> None:
    assert encode_json({"a": "\u00e9\U0001f642", "b": Raw(b"1.50")}) == (
        '{"a":"\u00e9\U0001f642","b":1.50}'.encode()
    )


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("read", [from_raw, unicode_from_raw])
def test_what_is_no_number_is_no_json(read: Callable[[Raw], Any], constant: str) -> None:
    for around in ('{"a": %s}', "[1, %s]", "%s"):
        with pytest.raises(ValueError, match=f"{constant} is not JSON"):
            read(Raw((around % constant).encode()))


def test_items_that_change_leave_the_others_their_bytes() -> None:
    listed = Raw(b'[ 1.50, {"a" :1},"x"]')
    changed = with_items(listed, lambda items: [items[0], Raw(b"{}"), items[2]])
    assert bytes(changed) == b'[1.50,{},"x"]'


def test_a_list_in_which_nothing_changes_is_the_very_same() -> None:
    listed = Raw(b"[ 1, 2]")
    assert with_items(listed, list) is listed


@pytest.mark.parametrize("listed", [b"7", b"[1", b"null", b'{"a":1}'])
def test_what_is_no_list_comes_back(listed: bytes) -> None:
    raw = Raw(listed)
    assert with_items(raw, lambda items: [Raw(b"9")]) is raw


@pytest.mark.parametrize("error", UNREADABLE)
def test_a_list_whose_items_can_not_be_read_comes_back(error: type[Exception]) -> None:
    def change(items: list[Raw]) -> list[Raw]:
        raise error

    listed = Raw(b"[1]")
    assert with_items(listed, change) is listed
