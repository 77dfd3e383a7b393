"""What a JSON text holds is told from its bytes as a parser would."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.wire import json_size, json_skeleton
from llama_compat.wire.json_size import MAX_DIGITS, has_too_long_number, has_too_many_values
from llama_compat.wire.json_skeleton import brackets, marks

TEXTS = st.text(st.sampled_from('{[}],:"\\\\x9 \n'), max_size=20)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def shape(value: object) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(shape, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(":" + shape(item) for item in value.values()) + "}"
    return ""


@given(VALUES, st.sampled_from([1, 2, 3, 5, 1 << 20]))
def test_the_marks_are_those_outside_of_strings(value: object, slice_bytes: int) -> None:
    before = json_skeleton.SLICE_BYTES
    json_skeleton.SLICE_BYTES = slice_bytes
    try:
        data = json.dumps(value).encode()
        assert marks(data).decode() == shape(value)
        assert brackets(data).decode() == shape(value).replace(",", "").replace(":", "")
    finally:
        json_skeleton.SLICE_BYTES = before


@pytest.mark.parametrize("where", [0, 1, 2149, 2150, 2151, 4299, 4300, 9999])
@pytest.mark.parametrize("sign", [b"", b"-"])
def test_a_number_is_too_long_wherever_it_begins(where: int, sign: bytes) -> None:
    before = b" " * where + b"[" + sign
    assert not has_too_long_number(before + b"9" * MAX_DIGITS + b"]")
    assert has_too_long_number(before + b"9" * (MAX_DIGITS + 1) + b"]")


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b'["@"]', False),
        (b'["\\"@"]', False),
        (b'["\\\\",@]', True),
        (b'["x",@,"y"]', True),
        (b'{"@":1}', False),
        (b'{"a":"@","b":@}', True),
        (b"[1.@]", True),
    ],
)
def test_digits_of_a_text_are_no_number(data: bytes, number: bool) -> None:
    assert has_too_long_number(data.replace(b"@", b"1" * 5000)) is number


@pytest.mark.parametrize(
    ("data", "values", "members"),
    [
        (b"[1,2,3]", 3, 0),
        (b'{"a":1,"b":[{}]}', 4, 2),
        (b'{",,,,":"[[[[::::"}', 1, 1),
        (b'["\\",,,,",1]', 2, 0),
    ],
)
def test_values_and_members_are_counted(
    monkeypatch: pytest.MonkeyPatch, data: bytes, values: int, members: int
) -> None:
    monkeypatch.setattr(json_size, "MAX_VALUES", values)
    monkeypatch.setattr(json_size, "MAX_MEMBERS", members)
    assert not has_too_many_values(data)
    if members:
        monkeypatch.setattr(json_size, "MAX_MEMBERS", members - 1)
        assert has_too_many_values(data)
        monkeypatch.setattr(json_size, "MAX_MEMBERS", members)
    monkeypatch.setattr(json_size, "MAX_VALUES", values - 1)
    assert has_too_many_values(data)
