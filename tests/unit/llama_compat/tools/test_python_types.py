"""Python's short names for types, as JSON Schema."""

from __future__ import annotations

import pytest

from llama_compat.tools.python_types import parameters_schema, type_schema

INTEGERS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("python_type", "schema"),
    [
        ("str", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("None", {"type": "null"}),
        ("list", {"type": "array"}),
        ("dict", {"type": "object"}),
        ("Any", {}),
        ("number", {"type": "number"}),
        (" list[int] ", INTEGERS),
        ("List[int]", INTEGERS),
        ("array[integer]", INTEGERS),
        ("list[list[int]]", {"type": "array", "items": INTEGERS}),
        ("set[str]", {"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
        ("tuple[int, ...]", INTEGERS),
        (
            "tuple[int, str]",
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        ("dict[str, list[int]]", {"type": "object", "additionalProperties": INTEGERS}),
        ("int | str | None", {"type": ["integer", "string", "null"]}),
        ("Optional[int]", {"type": ["integer", "null"]}),
        ("Union[int, list[int]]", {"anyOf": [{"type": "integer"}, INTEGERS]}),
        ("list[int] | None", {"anyOf": [INTEGERS, {"type": "null"}]}),
        (
            "Union[int, Optional[str]]",
            {"anyOf": [{"type": "integer"}, {"type": ["string", "null"]}]},
        ),
        ("Literal['a', 1, None]", {"enum": ["a", 1, None]}),
    ],
)
def test_types_have_schemas(python_type, schema):
    assert type_schema(python_type) == schema


@pytest.mark.parametrize(
    "python_type",
    [
        "",
        "thing",
        "list[thing]",
        "list[int",
        "dict[int, str]",
        "list[int, str]",
        "f(1)",
        "1",
        "Literal[...]",
        "Literal[b'a']",
        "Literal[x]",
        "int; str",
        "[" * 1000,
    ],
)
def test_other_text_is_no_type(python_type):
    with pytest.raises(ValueError, match="not a type"):
        type_schema(python_type)


def test_a_mapping_of_names_to_types_is_an_object():
    assert parameters_schema({"numbers": "list[int]", "type": "str", "unit": "str | None"}) == {
        "type": "object",
        "properties": {
            "numbers": INTEGERS,
            "type": {"type": "string"},
            "unit": {"type": ["string", "null"]},
        },
        "required": ["numbers", "type"],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "description": "int"},
        {
            "type": "object",
            "properties": {"x": {"type": "string", "enum": ["int"]}, "y": {"$ref": "#/$defs/y"}},
            "required": ["x"],
            "additionalProperties": False,
            "$defs": {"y": {"type": ["string", "null"], "default": {"type": "int"}}},
        },
    ],
)
def test_json_schema_stays_as_it_is(schema):
    assert parameters_schema(schema) == schema


def test_types_inside_a_json_schema_are_written_out():
    schema = {
        "type": "object",
        "properties": {
            "x": {"type": "list[int]", "description": "some", "items": {"type": "int"}},
            "y": {"anyOf": [{"type": "str"}, {"type": "dict[str, int]"}]},
        },
        "additionalProperties": {"type": "list[int]"},
    }
    assert parameters_schema(schema) == {
        "type": "object",
        "properties": {
            "x": {"type": "array", "description": "some", "items": {"type": "integer"}},
            "y": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "additionalProperties": {"type": "integer"}},
                ]
            },
        },
        "additionalProperties": INTEGERS,
    }


def test_a_schema_with_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="'thing'"):
        parameters_schema({"type": "object", "properties": {"x": {"type": "thing"}}})
