"""Which files pass which filters, and which filters are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.errors import APIError
from llama_compat.hosted.asked.filters import Attributes, parse_attributes, parse_filter, passes
from llama_compat.hosted.vocabulary import Comparison

FILE: Attributes = {"region": "eu", "year": 2024, "draft": False, "rating": 4.5}


def is_meant(filter: dict[str, Any], attributes: Attributes = FILE) -> bool:
    parsed = parse_filter(filter, "filters")
    assert parsed is not None
    return passes(parsed, attributes)


@pytest.mark.parametrize(
    ("operator", "key", "value", "meant"),
    [
        ("eq", "region", "eu", True),
        ("eq", "region", "EU", False),
        ("eq", "year", 2024.0, True),
        ("eq", "draft", False, True),
        ("eq", "draft", 0, False),
        ("eq", "nothing", "eu", False),
        ("ne", "region", "us", True),
        ("ne", "nothing", "us", True),
        ("ne", "region", "eu", False),
        ("gt", "year", 2023, True),
        ("gt", "year", 2024, False),
        ("gte", "year", 2024, True),
        ("lt", "rating", 4.6, True),
        ("lte", "rating", 4.4, False),
        ("gt", "region", "de", True),
        ("gt", "region", 1, False),
        ("lt", "nothing", 1, False),
        ("gt", "draft", -1, False),
        ("in", "region", ["us", "eu"], True),
        ("in", "region", [], False),
        ("in", "year", ["2024"], False),
        ("nin", "region", ["us"], True),
        ("nin", "region", ["eu"], False),
        ("nin", "nothing", ["eu"], True),
    ],
)
def test_a_comparison(operator: str, key: str, value: Any, meant: bool) -> None:
    assert is_meant({"type": operator, "key": key, "value": value}) is meant


def test_all_and_any() -> None:
    eu = {"type": "eq", "key": "region", "value": "eu"}
    old = {"type": "lt", "key": "year", "value": 2000}
    assert not is_meant({"type": "and", "filters": [eu, old]})
    assert is_meant({"type": "or", "filters": [old, eu]})
    assert is_meant({"type": "and", "filters": [eu, {"type": "or", "filters": [old, eu]}]})


values = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
attributes = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(attributes, st.sampled_from("abcd"), values)
def test_opposites_are_opposites(file: Any, key: str, value: Any) -> None:
    def of(operator: Any, value: Any = value) -> bool:
        return passes(Comparison(operator, key, value), file)

    assert of("eq") is not of("ne")
    assert of("in", (value,)) is of("eq")
    assert of("nin", (value,)) is of("ne")
    assert of("gte") is (of("gt") or (of("eq") and not isinstance(value, bool)))
    assert of("lte") is (of("lt") or (of("eq") and not isinstance(value, bool)))
    assert not (of("lt") and of("gt"))


@given(attributes, st.lists(st.tuples(st.sampled_from("abcd"), values), min_size=1, max_size=4))
def test_not_all_is_any_not(file: Any, pairs: list[tuple[str, Any]]) -> None:
    def several(operator: str, each: str) -> bool:
        filters = [{"type": each, "key": key, "value": value} for key, value in pairs]
        return is_meant({"type": operator, "filters": filters}, file)

    assert several("and", "eq") is not several("or", "ne")


@pytest.mark.parametrize(
    ("filter", "param"),
    [
        ("eq", "filters"),
        ({}, "filters.type"),
        ({"type": "like", "key": "a", "value": 1}, "filters.type"),
        ({"type": "eq", "value": 1}, "filters.key"),
        ({"type": "eq", "key": "a"}, "filters.value"),
        ({"type": "eq", "key": "a", "value": [1]}, "filters.value"),
        ({"type": "in", "key": "a", "value": 1}, "filters.value"),
        ({"type": "and", "filters": []}, "filters.filters"),
        ({"type": "or", "filters": [{"type": "eq", "value": 1}]}, "filters.filters[0].key"),
    ],
)
def test_what_is_no_filter_is_named(filter: Any, param: str) -> None:
    with pytest.raises(APIError) as caught:
        parse_filter(filter, "filters")
    assert (caught.value.status, caught.value.param) == (400, param)


def test_filters_have_bounds() -> None:
    one = {"type": "eq", "key": "a", "value": 1}
    deep: dict[str, Any] = one
    for _ in range(7):
        deep = {"type": "and", "filters": [deep]}
    many = {"type": "or", "filters": [one] * 100}
    for filter in (deep, many):
        assert parse_filter(filter, "filters") is not None
    for filter in ({"type": "and", "filters": [deep]}, {**many, "filters": [one] * 101}):
        with pytest.raises(APIError):
            parse_filter(filter, "filters")


@pytest.mark.parametrize(
    "value",
    [
        1,
        {"a": None},
        {"a": 2**63},
        {"a": -(2**63)},
        {"a": [1]},
        {"a" * 65: 1},
        {"a": "x" * 513},
        {str(n): n for n in range(17)},
    ],
)
def test_what_are_no_attributes(value: Any) -> None:
    with pytest.raises(APIError) as caught:
        parse_attributes(value, "attributes")
    assert caught.value.status == 400


def test_what_are_attributes() -> None:
    assert parse_attributes(None, "attributes") == {}
    assert parse_attributes(FILE, "attributes") == FILE


@pytest.mark.parametrize(
    "value",
    [
        {"a": 2**63 - 1},
        {"a": 1 - 2**63},
        {"a" * 64: 1},
        {"a": "x" * 512},
        {str(n): n for n in range(16)},
    ],
)
def test_what_has_as_much_as_it_may_are_attributes(value: Any) -> None:
    assert parse_attributes(value, "attributes") == value
