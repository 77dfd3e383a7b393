"""Python's short names for types, as JSON Schema: `list[int]` is an array of integers.

Tool definitions may be written that way: `{"numbers": "list[int]", "unit": "str | None"}`, or with
such a name as the `type` of a schema.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

_PLAIN: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array", "uniqueItems": True},
    "dict": {"type": "object"},
    "Any": {},
    # JSON Schema's own words, so that they can be used inside brackets
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "array": {"type": "array"},
    "object": {"type": "object"},
}

_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})

_ALIASES = {"List": "list", "Tuple": "tuple", "Set": "set", "Dict": "dict"}


def type_schema(python_type: str) -> Schema:
    """The JSON Schema of a Python type such as `list[int]`, `dict[str, float]` or `str | None`.

    Raises:
        ValueError: it is not such a type; the message says which part.
    """
    try:
        return _schema_of(ast.parse(python_type.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{python_type!r} is not a type") from None


def _schema_of(node: ast.expr) -> Schema:
    match node:
        case ast.Name(id=name) if _ALIASES.get(name, name) in _PLAIN:
            return dict(_PLAIN[_ALIASES.get(name, name)])
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _any_of([*_alternatives(left), *_alternatives(right)])
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _generic(_ALIASES.get(name, name), arguments, node)
    raise ValueError(f"{ast.unparse(node)!r} is not a type with a JSON Schema")


def _alternatives(node: ast.expr) -> list[Schema]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [_schema_of(node)]


def _any_of(schemas: Sequence[Schema]) -> Schema:
    if all(set(schema) == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": list(schemas)}


def _generic(name: str, arguments: Sequence[ast.expr], node: ast.expr) -> Schema:
    match name, arguments:
        case "list" | "set" | "array", [item]:
            return {**_PLAIN[name], "items": _schema_of(item)}
        case "tuple", [item, ast.Constant(value=value)] if value is ...:
            return {"type": "array", "items": _schema_of(item)}
        case "tuple", [*items]:
            return {
                "type": "array",
                "prefixItems": [_schema_of(item) for item in items],
                "minItems": len(items),
                "maxItems": len(items),
            }
        case "dict" | "object", [ast.Name(id="str" | "string"), value]:
            return {"type": "object", "additionalProperties": _schema_of(value)}
        case "Optional", [item]:
            return _any_of([*_alternatives(item), {"type": "null"}])
        case "Union", [*items]:
            return _any_of([_schema_of(item) for item in items])
        case "Literal", [*values] if all(_is_json_constant(value) for value in values):
            return {"enum": [ast.literal_eval(value) for value in values]}
    raise ValueError(f"{ast.unparse(node)!r} is not a type with a JSON Schema")


def _is_json_constant(node: ast.expr) -> bool:
    constant = isinstance(node, ast.Constant)
    return constant and isinstance(ast.literal_eval(node), str | int | float | None)


def parameters_schema(parameters: Mapping[str, Any]) -> Schema:
    """A tool's `parameters` as JSON Schema, whichever way they are written.

    A mapping of names to Python types is an object in which those without None are required. In a
    JSON Schema, a `type` that is a Python type is replaced by what it stands for; all else stays.

    Raises:
        ValueError: a type is neither JSON Schema's nor Python's.
    """
    only_text = bool(parameters) and all(isinstance(text, str) for text in parameters.values())
    if only_text and parameters.get("type") not in _JSON_TYPES:
        return _object_schema(parameters)
    expanded: Schema = _expand(parameters)
    return expanded


def _object_schema(types: Mapping[str, str]) -> Schema:
    properties = {name: type_schema(python_type) for name, python_type in types.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, schema in properties.items() if not _takes_null(schema)],
    }


def _takes_null(schema: Schema) -> bool:
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return any(_takes_null(alternative) for alternative in schema.get("anyOf", ()))


_SCHEMA_MEMBERS = ("items", "additionalProperties", "not")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPPINGS = ("properties", "$defs", "definitions", "patternProperties")


def _expand(schema: Any) -> Any:
    """`schema` with the Python types in it written out; what is no schema comes back as it is."""
    if not isinstance(schema, Mapping):
        return schema
    expanded: Schema = dict(schema)
    for member in _SCHEMA_MEMBERS:
        if member in schema:
            expanded[member] = _expand(schema[member])
    for member in _SCHEMA_LISTS:
        if isinstance(schema.get(member), list):
            expanded[member] = [_expand(item) for item in schema[member]]
    for member in _SCHEMA_MAPPINGS:
        if isinstance(schema.get(member), Mapping):
            expanded[member] = {name: _expand(item) for name, item in schema[member].items()}
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in _JSON_TYPES:
        del expanded["type"]
        expanded = {**type_schema(kind), **expanded}
    return expanded
