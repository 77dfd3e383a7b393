"""Schemas of MCP tools, as vendors take them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from routing.tools.mcp.schemas import as_vendors_take_it, is_fit

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
REFUSED = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$schema", "$id"}


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        ({"type": "object"}, {}, []),
        (with_properties(a=TEXT), {"a": TEXT}, ["a"]),
        (
            {**with_properties(a=TEXT), "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {"a": TEXT},
            ["a"],
        ),
        (
            {"oneOf": [with_properties(a=TEXT, b=TEXT), with_properties(a=TEXT, c=NUMBER)]},
            {"a": TEXT, "b": TEXT, "c": NUMBER},
            ["a"],
        ),
        (
            {"allOf": [with_properties(a=TEXT), with_properties(b=NUMBER)]},
            {"a": TEXT, "b": NUMBER},
            ["a", "b"],
        ),
        (
            {"anyOf": [with_properties(a=TEXT), with_properties(a=NUMBER), {"type": "null"}]},
            {"a": {"anyOf": [TEXT, NUMBER]}},
            [],
        ),
        (
            {"allOf": [{"oneOf": [with_properties(a=TEXT), with_properties(a=TEXT, b=TEXT)]}]},
            {"a": TEXT, "b": TEXT},
            ["a"],
        ),
        (
            {
                "anyOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/a~1b"}],
                "$defs": {"one": with_properties(a=TEXT), "a/b": with_properties(a=TEXT, b=TEXT)},
            },
            {"a": TEXT, "b": TEXT},
            ["a"],
        ),
        ({**with_properties(a=TEXT), "enum": [{"a": "x"}], "not": {}}, {"a": TEXT}, ["a"]),
        ({"anyOf": "none", "properties": 3, "required": 1}, {}, []),
    ],
)
def test_nothing_stands_at_the_top_that_vendors_refuse(
    schema: dict[str, Any], properties: dict[str, Any], required: list[str]
) -> None:
    dialect = {"$schema": "https://json-schema.org/draft-07/schema#"}
    flat, names, is_another = as_vendors_take_it({**dialect, **schema})
    assert names == {}
    assert is_another is not REFUSED.isdisjoint(schema)
    assert not REFUSED & set(flat)
    assert flat["type"] == "object"
    assert flat["properties"] == properties
    assert flat.get("required", []) == required


def test_what_is_below_stays() -> None:
    below = {"anyOf": [TEXT, {"type": "null"}], "not": {"const": ""}}
    schema = {**with_properties(a=below), "$defs": {"b": TEXT}, "additionalProperties": False}
    assert as_vendors_take_it(schema) == (schema, {}, False)


def test_names_that_go_in_circles_end() -> None:
    circle = {"anyOf": [{"$ref": "#/$defs/n1"}] * 2}
    names = {f"n{n}": {"anyOf": [{"$ref": f"#/$defs/n{n % 40 + 1}"}] * 2} for n in range(1, 41)}
    names["n40"]["properties"] = {"a": TEXT}  # type: ignore[assignment]
    flat, _, _ = as_vendors_take_it({**circle, "$defs": names})
    assert flat["properties"] == {"a": TEXT}


def test_names_that_vendors_refuse_are_others_for_the_model_alone() -> None:
    odd = ["From<", "From>", "From_", "$top", "naïve", "", "x" * 70, "x" * 64, "a.b-c"]
    told = as_vendors_take_it(
        {"properties": dict.fromkeys(odd, TEXT), "required": ["From>", "a.b-c"]}
    )
    assert told.is_another
    shown = list(told.schema["properties"])
    assert len(set(shown)) == len(odd)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", each) for each in shown)
    assert {"From_", "x" * 64, "a.b-c"} <= set(shown)
    assert told.schema["required"] == [shown[1], "a.b-c"]
    given = {name: place for place, name in enumerate(shown)}
    assert told.told_server({**given, "more": 1}) == {
        **{name: place for place, name in enumerate(odd)},
        "more": 1,
    }


def test_what_no_model_could_be_given() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"properties": {"x": deep}}
    assert is_fit(with_properties(a=TEXT))
    assert not is_fit(deep)
    assert not is_fit({"description": "x" * 100_000})
    assert not is_fit({"default": object()})
