"""The schemas of tools' arguments: which can be given to a model, and how vendors take them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from llama_compat.hosted.vocabulary import free_name
from llama_compat.tools.python_types import parameters_schema
from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper
from llama_compat.wire.json_fields import encode_json

MAX_BYTES = 64 * 1024

_MAX_NAME = 64
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{_MAX_NAME}}}")
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]")
"""What Anthropic refuses in the names of arguments, and with them the whole request: "Property keys
should match pattern '^[a-zA-Z0-9_.-]{1,64}$'" (https://github.com/twilio-labs/mcp/issues/56)."""

_UNNAMED = ("$schema", "$id")
_ALL, _EITHER = ("allOf",), ("anyOf", "oneOf")
_OTHERS = ("enum", "const", "not")
"""With the two before them, what OpenAI and Anthropic refuse at the top of a schema, and with it
all of the request: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/
'not' at the top level", "input_schema does not support oneOf, allOf, or anyOf at the top level"
(https://github.com/makenotion/notion-mcp-server/issues/340)."""

Schema = dict[str, Any]


def is_fit(schema: Any) -> bool:
    """Whether a schema can be given to a model: no larger and no deeper than makes sense."""
    try:
        encoded = encode_json(schema)
    except (ValueError, TypeError, RecursionError):
        return False
    return len(encoded) <= MAX_BYTES and not is_deeper(encoded, MAX_DEPTH)


class ModelSchema(NamedTuple):
    """What a model is told of a tool's arguments.

    Attributes:
        schema: theirs.
        names: of those that it knows by another name than the tool's server, the server's.
        is_another: whether it allows more than the server's, or calls something otherwise.
    """

    schema: Schema
    names: Mapping[str, str]
    is_another: bool

    def told_server(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What a model gives, as the server knows it."""
        return {self.names.get(name, name): value for name, value in arguments.items()}


def as_vendors_take_it(schema: Mapping[str, Any]) -> ModelSchema:
    """A tool's schema as an object's, which names no dialect of JSON Schema and has no alternatives
    at its top, nor names there that Anthropic refuses.

    What may be given in any of the alternatives may be given, and has to be what all of them ask
    for. Which go together only the tool's server knows, which says so where they don't.
    """
    try:
        flat = _Folding(schema).folded(schema)
        whole = parameters_schema({"properties": {}, **flat, "type": "object"})
    except (ValueError, RecursionError):
        return ModelSchema({"type": "object", "properties": {}}, {}, is_another=True)
    names = _fit_names(whole["properties"])
    if not names:
        is_another = any(name in schema for name in (*_ALL, *_EITHER, *_OTHERS))
        return ModelSchema(whole, {}, is_another)
    whole["properties"] = {names.get(name, name): v for name, v in whole["properties"].items()}
    if "required" in whole:
        whole["required"] = [names.get(name, name) for name in whole["required"]]
    return ModelSchema(whole, {fit: name for name, fit in names.items()}, is_another=True)


def _fit_names(properties: Mapping[str, Any]) -> dict[str, str]:
    """The names that can't be, as what each is called instead."""
    taken = {name for name in properties if _NAME.fullmatch(name)}
    others = (name for name in properties if name not in taken)
    return {
        name: free_name(_UNNAMEABLE.sub("_", name)[:_MAX_NAME] or "_", taken) for name in [*others]
    }


class _Folding:
    """Takes the alternatives of a schema together.

    Args:
        root: the schema, in which others are named (`#/$defs/NAME`).
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._seen: set[str] = set()

    def folded(self, schema: Mapping[str, Any]) -> Schema:
        """`schema` without alternatives at its top."""
        gone = (*_UNNAMED, *_ALL, *_EITHER, *_OTHERS, "properties", "required")
        flat = {name: value for name, value in schema.items() if name not in gone}
        properties = dict(_object(schema.get("properties")))
        required = _names(schema.get("required"))
        for each in self._parts(schema, _ALL):
            _add(properties, each)
            required |= _names(each.get("required"))
        for name in _EITHER:
            parts = self._parts(schema, (name,))
            for each in parts:
                _add(properties, each)
            asked = [_names(each.get("required")) for each in parts]
            if asked:
                required |= {name: None for name in asked[0] if all(name in of for of in asked)}
        if properties:
            flat["properties"] = properties
        if required:
            flat["required"] = list(required)
        return flat

    def _parts(self, schema: Mapping[str, Any], names: tuple[str, ...]) -> list[Schema]:
        """The alternatives under `names`, each without alternatives of its own."""
        parts = [each for name in names for each in _list(schema.get(name))]
        return [self.folded(self._meant(each)) for each in parts if isinstance(each, dict)]

    def _meant(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a schema names, if it names another one; each is followed once, as they may go in
        circles."""
        name = schema.get("$ref")
        if not isinstance(name, str) or not name.startswith("#/"):
            return schema
        if name in self._seen:
            return {}
        self._seen.add(name)
        found: Any = self._root
        for step in name[2:].split("/"):
            found = _object(found).get(step.replace("~1", "/").replace("~0", "~"))
        return self._meant(_object(found))


def _add(properties: Schema, part: Mapping[str, Any]) -> None:
    """Add what may be given in one alternative to what may be given."""
    for name, schema in _object(part.get("properties")).items():
        known = properties.setdefault(name, schema)
        if known != schema:
            others = (
                known["anyOf"] if isinstance(known, dict) and set(known) == {"anyOf"} else [known]
            )
            properties[name] = {"anyOf": [*others, schema]}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> dict[str, None]:
    return dict.fromkeys(each for each in _list(value) if isinstance(each, str))
