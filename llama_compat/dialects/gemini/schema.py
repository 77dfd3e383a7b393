"""JSON Schema in the subset that Gemini's `Schema` has (https://ai.google.dev/api/caching#Schema).

A schema is said as it is or not at all. For what the subset has no word for, such as a recursive
`$ref`, `not`, or an enum of numbers, the API has JSON Schema fields beside those that want a
`Schema`: they take any schema, and enforce of it what they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llama_compat.errors import invalid_parameter
from llama_compat.wire.json_pointer import steps_of
from llama_compat.wire.malformed import UNREADABLE

MAX_NODES = 5000
"""A schema whose references unfold to more is not unfolded."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})

_COPIED = {
    "title",
    "description",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
}
"""Keywords that mean the same on both sides."""

_ANNOTATIONS = {
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "default",
    "deprecated",
    "examples",
    "readOnly",
    "writeOnly",
}
"""Keywords that allow and forbid nothing; those that are referred to are looked up elsewhere."""

_FORMATS = {
    "string": frozenset({"date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}


class _NotInSubsetError(Exception):
    """The subset has no word for a part of the schema."""


def render_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` as a Gemini `Schema`, its references unfolded; None if the subset can't say it."""
    try:
        return _Renderer(schema).render(schema, ())
    except (_NotInSubsetError, AttributeError, TypeError, KeyError, RecursionError):
        return None


class _Renderer:
    """Renders the parts of one schema.

    Args:
        root: the whole, where references lead.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def render(self, schema: Mapping[str, Any], references: tuple[str, ...]) -> dict[str, Any]:
        """`schema` itself; `references` are those that led to it."""
        self._nodes += 1
        if self._nodes > MAX_NODES or not isinstance(schema, Mapping):
            raise _NotInSubsetError
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in references:
                raise _NotInSubsetError
            beside = {name: value for name, value in schema.items() if name != "$ref"}
            return self.render({**self._resolve(reference), **beside}, (*references, reference))
        if isinstance(schema.get("type"), list):
            return self._render_types(schema, references)
        alternatives = _alternatives(schema)
        if alternatives is not None:
            return self._render_any_of(schema, alternatives, references)
        return self._render_one(schema, references)

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        if reference != "#" and not reference.startswith("#/"):
            raise _NotInSubsetError
        found: Any = self._root
        for step in steps_of(reference):
            found = found[step]
        if not isinstance(found, Mapping):
            raise _NotInSubsetError
        return found

    def _render_types(
        self, schema: Mapping[str, Any], references: tuple[str, ...]
    ) -> dict[str, Any]:
        """Several types at once: `null` among them is `nullable`."""
        types = [kind for kind in schema["type"] if kind != "null"]
        if len(types) != 1:
            raise _NotInSubsetError
        values = {name: value for name, value in schema.items() if name != "type"}
        if "enum" in values:
            values["enum"] = [value for value in values["enum"] if value is not None]
        rendered = self.render({**values, "type": types[0]}, references)
        return {**rendered, "nullable": True} if "null" in schema["type"] else rendered

    def _render_any_of(
        self,
        schema: Mapping[str, Any],
        alternatives: Iterable[Mapping[str, Any]],
        references: tuple[str, ...],
    ) -> dict[str, Any]:
        """Alternatives, of which `null` is `nullable`; a single other one is the schema itself."""
        around = {
            name: schema[name]
            for name in schema
            if name not in ("anyOf", "oneOf", "allOf") and name not in _ANNOTATIONS
        }
        if around.keys() - {"title", "description"}:
            raise _NotInSubsetError
        others = [each for each in alternatives if each != {"type": "null"}]
        if len(others) == 1:
            rendered = {**self.render(others[0], references), **around}
        else:
            rendered = {**around, "anyOf": [self.render(each, references) for each in others]}
        return {**rendered, "nullable": True} if {"type": "null"} in alternatives else rendered

    def _render_one(self, schema: Mapping[str, Any], references: tuple[str, ...]) -> dict[str, Any]:
        kind = schema.get("type")
        if kind is None and "properties" in schema:
            kind = "object"
        if kind is None and isinstance(schema.get("const"), str):
            kind = "string"
        if kind is None and "enum" in schema:
            kind = "string"
        if kind not in _TYPES:
            raise _NotInSubsetError
        rendered: dict[str, Any] = {"type": kind.upper()}
        for name, value in schema.items():
            if name in _COPIED:
                rendered[name] = value
            elif name not in _ANNOTATIONS and name != "type":
                rendered.update(self._render_keyword(kind, name, value, references))
        if kind == "array" and "items" not in rendered:
            raise _NotInSubsetError
        if kind == "object" and "properties" not in rendered:
            raise _NotInSubsetError
        if not set(rendered.get("required") or ()) <= set(rendered.get("properties") or ()):
            raise _NotInSubsetError  # `required[0]: property is not defined`
        return rendered

    def _render_keyword(
        self, kind: str, name: str, value: Any, references: tuple[str, ...]
    ) -> dict[str, Any]:
        if name == "properties" and value:
            properties = {key: self.render(each, references) for key, each in value.items()}
            # The API has no order among properties unless it is told one.
            return {"properties": properties, "propertyOrdering": list(properties)}
        if name == "items":
            return {"items": self.render(value, references)}
        if name == "nullable" and isinstance(value, bool):
            return {"nullable": value}
        if name == "additionalProperties" and isinstance(value, bool):
            return {}
        if name == "const":
            return self._render_keyword(kind, "enum", [value], references)
        # Of an empty one it says `enum[0]: cannot be empty`.
        if name == "enum" and kind == "string" and all(isinstance(e, str) and e for e in value):
            return {"enum": list(value), "format": "enum"}
        if name == "format" and value in _FORMATS.get(kind, ()):
            return {"format": value}
        raise _NotInSubsetError


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """The cases of `anyOf` or `oneOf`, and the one of an `allOf` that has but one."""
    found = [schema[name] for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if not found:
        return None
    all_of = schema.get("allOf")
    if len(found) > 1 or not found[0] or (all_of is not None and len(all_of) != 1):
        raise _NotInSubsetError
    return list(found[0])


# --------------------------------------------------------------------------------------------------
# The other way: a client's `Schema` as JSON Schema
# --------------------------------------------------------------------------------------------------

_NUMBERS = frozenset(
    {"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"}
)
"""They are 64 bits wide, which Google's JSON may write as text."""

_SNAKE_CASE = {
    "any_of": "anyOf",
    "property_ordering": "propertyOrdering",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "min_length": "minLength",
    "max_length": "maxLength",
}


def parse_schema(schema: Any, path: str) -> dict[str, Any]:
    """A Gemini `Schema` as JSON Schema; what is JSON Schema in it already stays.

    Raises:
        APIError: 400 naming `path`, it is none.
    """
    try:
        return _parse(schema)
    except UNREADABLE as error:
        raise invalid_parameter(path, f"Invalid schema in '{path}': {error}.") from None


def _parse(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise TypeError(f"expected an object, got {type(schema).__name__}")
    given = {_SNAKE_CASE.get(name, name): value for name, value in schema.items()}
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "type" if isinstance(value, str):
                if value != "TYPE_UNSPECIFIED":
                    parsed["type"] = value.lower()
            case "properties":
                parsed["properties"] = _ordered(value, given.get("propertyOrdering"))
            case "items":
                parsed["items"] = _parse(value)
            case "anyOf":
                parsed["anyOf"] = [_parse(each) for each in value]
            case "example":
                parsed["examples"] = [value]
            case "format" if value == "enum":
                continue
            case "nullable" | "propertyOrdering":
                continue
            case str():
                parsed[name] = int(value) if name in _NUMBERS else value
    return _with_null(parsed) if given.get("nullable") is True else parsed


def _ordered(properties: Any, order: Any) -> dict[str, Any]:
    parsed = {name: _parse(value) for name, value in properties.items()}
    first = [name for name in order or () if name in parsed]
    return {name: parsed[name] for name in dict.fromkeys([*first, *parsed])}


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return schema
