"""Filters of files by their attributes: wire -> vocabulary, and what passes them.

https://platform.openai.com/docs/guides/retrieval#attribute-filtering, read 2026-11-23.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from llama_compat.dialects.members import as_object, text_in
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.hosted.vocabulary import AttributeFilter, Comparison, Compound

AttributeValue = str | float | bool

Attributes = Mapping[str, AttributeValue]

MAX_DEPTH = 8
"""Filters within each other."""

MAX_COMPARISONS = 100
"""Of one filter."""

MAX_INTEGER = 2**63 - 1
"""The largest whole number that everybody can read and write."""

MAX_ATTRIBUTES = 16
MAX_KEY = 64
MAX_VALUE = 512
"""What a file may have: so many, with names and texts of so many characters."""


def parse_attributes(value: Any, path: str) -> dict[str, AttributeValue]:
    """The attributes of a file.

    Raises:
        APIError: 400, they are none.
    """
    if value is None:
        return {}
    attributes = as_object(value, path)
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid_parameter(path, f"'{path}' may have {MAX_ATTRIBUTES} members at most.")
    for name, each in attributes.items():
        is_text = isinstance(each, str) and len(each) <= MAX_VALUE
        if len(name) > MAX_KEY or not (is_text or _is_number(each) or isinstance(each, bool)):
            raise invalid_parameter(
                f"{path}.{name[:MAX_KEY]}",
                f"'{path}' has names of up to {MAX_KEY} characters, and values that are booleans,"
                f" numbers, or texts of up to {MAX_VALUE} characters.",
            )
    return attributes


def parse_filter(value: Any, path: str) -> AttributeFilter | None:
    """A filter; None where there is none.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return None
    counted = [0]
    return _parse(value, path, 1, counted)


def _parse(value: Any, path: str, depth: int, counted: list[int]) -> AttributeFilter:
    found = as_object(value, path)
    if depth > MAX_DEPTH:
        raise invalid_parameter(path, f"Filters may be {MAX_DEPTH} within each other at most.")
    match text_in(found, "type", path):
        case "and" | "or" as operator:
            filters = found.get("filters")
            if not isinstance(filters, list) or not filters:
                raise invalid_parameter(
                    f"{path}.filters", f"'{path}.filters' must be a list of one filter or more."
                )
            return Compound(
                operator,
                tuple(
                    _parse(each, f"{path}.filters[{index}]", depth + 1, counted)
                    for index, each in enumerate(filters)
                ),
            )
        case ("eq" | "ne" | "gt" | "gte" | "lt" | "lte" | "in" | "nin") as operator:
            counted[0] += 1
            if counted[0] > MAX_COMPARISONS:
                raise invalid_parameter(
                    path, f"A filter may have {MAX_COMPARISONS} comparisons at most."
                )
            value = _parse_value(found, path, several=operator in ("in", "nin"))
            return Comparison(operator, text_in(found, "key", path), value)
    raise invalid_parameter(
        f"{path}.type",
        f"'{path}.type' must be one of eq, ne, gt, gte, lt, lte, in, nin, and, or.",
    )


def _parse_value(
    found: Mapping[str, Any], path: str, *, several: bool
) -> AttributeValue | tuple[AttributeValue, ...]:
    path = f"{path}.value"
    value = found.get("value")
    if value is None:
        raise missing_parameter(path)
    if several:
        if not isinstance(value, list) or not all(map(_is_value, value)):
            raise invalid_parameter(path, f"'{path}' must be a list of texts and numbers.")
        return tuple(value)
    if not _is_value(value):
        raise invalid_parameter(path, f"'{path}' must be a text, a number or a boolean.")
    known: AttributeValue = value
    return known


def _is_value(value: Any) -> bool:
    return isinstance(value, str | bool) or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= MAX_INTEGER
    return isinstance(value, float) and math.isfinite(value)


def passes(filter: AttributeFilter, attributes: Attributes) -> bool:
    """Whether a file with these attributes is meant.

    One that has not the attribute, or has it as a value of another type, is equal to nothing, and
    neither more nor less.
    """
    if isinstance(filter, Compound):
        verdicts = (passes(each, attributes) for each in filter.filters)
        if filter.operator == "none":
            return not any(verdicts)
        return all(verdicts) if filter.operator == "and" else any(verdicts)
    there, value = attributes.get(filter.key), filter.value
    match filter.operator:
        case "eq":
            return _is_equal(there, value)
        case "ne":
            return not _is_equal(there, value)
        case "in":
            return _is_one_of(there, value)
        case "nin":
            return not _is_one_of(there, value)
        case operator:
            return _is_comparable(there, value) and _ORDERS[operator](there, value)


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": lambda there, value: there > value,
    "gte": lambda there, value: there >= value,
    "lt": lambda there, value: there < value,
    "lte": lambda there, value: there <= value,
}


def _is_one_of(there: Any, values: Any) -> bool:
    return any(_is_equal(there, each) for each in values)


def _is_equal(there: Any, value: Any) -> bool:
    # To Python, True is 1.
    return isinstance(there, bool) == isinstance(value, bool) and bool(there == value)


def _is_comparable(there: Any, value: Any) -> bool:
    if isinstance(there, str) and isinstance(value, str):
        return True
    return _is_number(there) and _is_number(value)
