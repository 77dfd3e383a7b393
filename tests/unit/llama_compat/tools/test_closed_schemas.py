"""Schemas as Claude takes them."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.tools.closed_schemas import closed_schema

TEXT = {"type": "string"}
OPEN = {"type": "object", "properties": {"a": TEXT}}
CLOSED = {**OPEN, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (OPEN, CLOSED),
        ({"$schema": "x", **OPEN}, CLOSED),
        ({"properties": {"a": OPEN}}, {"properties": {"a": CLOSED}, "additionalProperties": False}),
        ({"type": "array", "items": OPEN}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [OPEN, TEXT]}, {"anyOf": [CLOSED, TEXT]}),
        ({"oneOf": [OPEN, TEXT]}, {"anyOf": [CLOSED, TEXT]}),
        (
            {"$defs": {"A": OPEN}, "$ref": "#/$defs/A"},
            {"$defs": {"A": CLOSED}, "$ref": "#/$defs/A"},
        ),
        # Each would be closed to what the others name.
        ({"allOf": [OPEN, {"anyOf": [OPEN]}]}, {"allOf": [OPEN, {"anyOf": [OPEN]}]}),
        # A map would be empty if it were closed.
        ({"type": "object"}, {"type": "object"}),
        ({**OPEN, "additionalProperties": TEXT}, {**OPEN, "additionalProperties": TEXT}),
        (
            {"type": "integer", "minimum": 0, "maximum": 9},
            {"type": "integer", "description": "minimum: 0, maximum: 9"},
        ),
        (
            {**TEXT, "maxLength": 9, "description": "A name."},
            {**TEXT, "description": "A name. (maxLength: 9)"},
        ),
        ({**TEXT, "format": "uri"}, {**TEXT, "format": "uri"}),
        ({**TEXT, "format": "int64"}, {**TEXT, "description": "format: int64"}),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}),
        (
            {"type": "array", "minItems": 3},
            {"type": "array", "minItems": 1, "description": "minItems: 3"},
        ),
        # Names of members are no keywords.
        (
            {"properties": {"minimum": TEXT, "$schema": TEXT}},
            {"properties": {"minimum": TEXT, "$schema": TEXT}, "additionalProperties": False},
        ),
        (
            {"items": True, "anyOf": [True], "properties": 7},
            {"items": True, "anyOf": [True], "properties": 7, "additionalProperties": False},
        ),
        ({"format": ["x"]}, {"description": "format: ['x']"}),
    ],
)
def test_what_claude_is_held_to(schema: dict[str, Any], closed: dict[str, Any]) -> None:
    assert closed_schema(schema) == closed
