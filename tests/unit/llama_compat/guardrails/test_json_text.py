"""JSON that models write as text says the same, wherever it is cut."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.guardrails.json_text import JSONText, escaped
from tests.examples import examples
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, cut

VALUES = st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3)


def read(pieces: list[str]) -> str:
    text = JSONText()
    return "".join((*map(text.push, pieces), text.flush()))


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, CUTS, st.booleans())
def test_what_it_says_stays(value: dict[str, str], cuts: list[int], in_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=in_ascii)
    said = read(cut(text, cuts))
    assert said == read([text])
    assert json.loads(escaped(said)) == value


def test_escapes_hide_nothing() -> None:
    assert read(['{"to": "alice\\u00', "40example.com\\", 'n"}']) == (
        '{"to": "alice@example.com\ue004"}'
    )
    assert escaped("a\ue000b\ue001c") == 'a\\"b\\\\c'


def test_an_escaped_backslash_begins_no_escape() -> None:
    assert read(['"\\\\', 'u0040"']) == '"\ue001u0040"'
