"""Parameters of tools, as vendors want them that look at schemas."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from llama_compat.tools.parameters import has_choices, object_schema, without_choices

NUMBER, TEXT = {"type": "number"}, {"type": "string"}


def in_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, in_object()),
        ({"properties": {"a": TEXT}}, in_object(a=TEXT)),
        (in_object(a={"type": "array"}), in_object(a={"type": "array", "items": {}})),
        (
            in_object(a={"type": ["array", "null"]}),
            in_object(a={"type": ["array", "null"], "items": {}}),
        ),
        (
            in_object(a={"type": "array", "items": [NUMBER, {"type": "array"}]}),
            in_object(
                a={
                    "type": "array",
                    "prefixItems": [NUMBER, {"type": "array", "items": {}}],
                    "items": {},
                }
            ),
        ),
        (
            in_object(a={"items": [NUMBER, TEXT], "additionalItems": False}),
            in_object(a={"prefixItems": [NUMBER, TEXT], "items": {}, "maxItems": 2}),
        ),
        (
            in_object(a={"items": [NUMBER], "additionalItems": TEXT}),
            in_object(a={"prefixItems": [NUMBER], "items": TEXT}),
        ),
        (
            in_object(a={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
            in_object(a={"type": "number", "exclusiveMinimum": 0}),
        ),
        (
            in_object(a={"type": "number", "maximum": 9, "exclusiveMaximum": False}),
            in_object(a={"type": "number", "maximum": 9}),
        ),
        (in_object(a={"type": "string", "required": True}), in_object(a=TEXT)),
        (
            {**in_object(), "$defs": {"a": {"anyOf": [{"type": "array"}, TEXT]}}},
            {**in_object(), "$defs": {"a": {"anyOf": [{"type": "array", "items": {}}, TEXT]}}},
        ),
        # A member may be called as a keyword is.
        (in_object(items=TEXT, required=TEXT), in_object(items=TEXT, required=TEXT)),
    ],
)
def test_a_schema_is_that_of_an_object_in_the_words_of_today(given: Any, told: Any) -> None:
    assert object_schema(given) == told
    jsonschema.Draft202012Validator.check_schema(told)


def test_what_is_given_stays_as_it_is() -> None:
    given = in_object(a={"type": "array", "items": [NUMBER]})
    object_schema(given)
    assert given == in_object(a={"type": "array", "items": [NUMBER]})


A = {**in_object(by={"const": "a"}, x=TEXT), "required": ["by", "x"]}
B = {**in_object(by={"const": "b"}, y=NUMBER), "required": ["by", "y"]}
BY = {"anyOf": [{"const": "a"}, {"const": "b"}]}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"oneOf": [A, B]}, {"properties": {"by": BY, "x": TEXT, "y": NUMBER}, "required": ["by"]}),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}},
            {
                "properties": {"by": BY, "x": TEXT, "y": NUMBER},
                "required": ["by"],
                "$defs": {"a": A},
            },
        ),
        (
            {**in_object(x=TEXT), "required": ["x"], "allOf": [A, {"required": ["z"]}]},
            {**in_object(x=TEXT, by={"const": "a"}), "required": ["x", "by", "z"]},
        ),
        # One of several has to be there, which the tool sees to itself.
        (
            {**in_object(x=TEXT, y=NUMBER), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
            in_object(x=TEXT, y=NUMBER),
        ),
        (
            {"anyOf": [in_object(x=TEXT), {"oneOf": [in_object(x=NUMBER), in_object(x=TEXT)]}]},
            {"properties": {"x": {"anyOf": [TEXT, {"anyOf": [NUMBER, TEXT]}]}}},
        ),
        ({"anyOf": [{"$ref": "#"}, A, True]}, {"properties": A["properties"], "required": []}),
        ({"allOf": 7, "anyOf": "x"}, {"properties": {}}),
        ({"anyOf": [{"$ref": "#/nowhere"}]}, {"properties": {}}),
    ],
)
def test_choices_are_joined_to_one_object(given: dict[str, Any], told: dict[str, Any]) -> None:
    assert has_choices(given)
    joined = without_choices(given)
    assert not has_choices(joined)
    assert {"required": [], **joined} == {"required": [], **told}


def test_whatever_one_of_several_schemas_takes_the_object_takes() -> None:
    joined = jsonschema.Draft202012Validator(without_choices({"oneOf": [A, B]}))
    for value in ({"by": "a", "x": "1"}, {"by": "b", "y": 1}):
        assert joined.is_valid(value)
    assert not joined.is_valid({"by": "c"})


def test_schemas_that_refer_to_each_other_again_and_again_are_joined_in_time() -> None:
    defined = {f"d{each}": {"anyOf": [{"$ref": f"#/$defs/d{each + 1}"}] * 2} for each in range(100)}
    joined = without_choices({"anyOf": [A, {"$ref": "#/$defs/d0"}], "$defs": defined})
    assert joined["properties"] == A["properties"]


def test_schemas_that_lead_to_one_another_on_and_on_are_left_out() -> None:
    defined = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}]} for n in range(3000)}
    straight = {f"s{n}": {"$ref": f"#/$defs/s{n + 1}"} for n in range(3000)}
    ends = [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/s0"}]
    joined = without_choices({"anyOf": [A, *ends], "$defs": defined | straight})
    assert joined["properties"] == A["properties"]


@pytest.mark.parametrize("parameters", [None, {}, in_object(a={"anyOf": [TEXT, NUMBER]})])
def test_choices_further_in_are_none(parameters: Any) -> None:
    assert not has_choices(parameters)
