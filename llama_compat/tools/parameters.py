"""The parameters of tools as APIs want them that take nothing but the schema of an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_compat.wire.json_pointer import steps_of

_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_INNER = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")

CHOICES = ("anyOf", "oneOf", "allOf")
_LISTED = (*CHOICES, "prefixItems")


def object_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """A tool's `parameters` as the schema of an object that says which members it has.

    Tools without any have half of that, or nothing, in many MCP servers and in APIs that take it.
    OpenAI's does not: `schema must be a JSON Schema of 'type: "object"'`, or else `object schema
    missing properties`, or `array schema missing items` (ogx-ai/ogx#3602). And what drafts before
    2020-12 say otherwise is said in its words: "JSON schema is invalid. It must match JSON Schema
    draft 2020-12" (anthropics/claude-code#63673; 2026-11-28).
    """
    return _up_to_date({"type": "object", "properties": {}, **(parameters or {})})


def _inner(schema: Any) -> Any:
    return _up_to_date(schema) if isinstance(schema, dict) else schema


def _up_to_date(schema: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(schema)
    for name in _BY_NAME:
        if isinstance(inner := told.get(name), dict):
            told[name] = {each: _inner(value) for each, value in inner.items()}
    for name in _LISTED:
        if isinstance(listed := told.get(name), list):
            told[name] = [_inner(each) for each in listed]
    if isinstance(told.get("items"), list):
        _say_places(told)
    for name in _INNER:
        if name in told:
            told[name] = _inner(told[name])
    for name, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(excluded := told.get(name), bool):
            del told[name]
            if excluded and bound in told:
                told[name] = told.pop(bound)
    if isinstance(told.get("required"), bool):
        del told["required"]
    kind = told.get("type")
    if "items" not in told and (kind == "array" or (isinstance(kind, list) and "array" in kind)):
        told["items"] = {}
    return told


def _say_places(schema: dict[str, Any]) -> None:
    """A list of a schema for each place, which was `items`, and what comes after those."""
    places = [_inner(each) for each in schema.pop("items")]
    more = schema.pop("additionalItems", None)
    schema["prefixItems"] = places
    schema["items"] = more if isinstance(more, dict) else {}
    most = schema.get("maxItems", len(places))
    if more is False and isinstance(most, int):
        schema["maxItems"] = min(most, len(places))


def has_choices(parameters: Mapping[str, Any] | None) -> bool:
    """Whether `parameters` are one of several schemas, or all of them."""
    return parameters is not None and any(parameters.get(name) for name in CHOICES)


MAX_PARTS = 1000
MAX_REFERENCES = 100
"""What is beyond in schemas that refer to each other, and how many lead to one another, is left out
of what they are joined to."""


def without_choices(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one object that has whatever member the `parameters` may have, and has to have
    those that they always have."""
    return _Joiner(parameters).joined(parameters, ())


class _Joiner:
    """Joins the parts of one schema.

    Args:
        root: the whole, where references lead.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts = 0

    def joined(self, schema: Mapping[str, Any], references: tuple[str, ...]) -> dict[str, Any]:
        """`schema` as one object; `references` are those that led to it."""
        self._parts += 1
        gone = (*CHOICES, "required")
        told = {name: value for name, value in schema.items() if name not in gone}
        properties: dict[str, Any] = dict(_object(told.get("properties")))
        required = dict.fromkeys(_texts(schema.get("required")))
        for name in CHOICES:
            parts = self._each(schema.get(name), references)
            for part in parts:
                for member, said in _object(part.get("properties")).items():
                    properties[member] = _either(properties.get(member), said, name)
            required |= dict.fromkeys(_always([part.get("required") for part in parts], name))
        told["properties"] = properties
        if required:
            told["required"] = list(required)
        return told

    def _each(self, listed: Any, references: tuple[str, ...]) -> Sequence[dict[str, Any]]:
        parts = []
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and self._parts < MAX_PARTS:
                parts.append(self.joined(*self._meant(each, references)))
        return parts

    def _meant(
        self, schema: Mapping[str, Any], references: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """What a schema names, if it names another one, and what led there; nothing where names go
        in circles, or on and on."""
        while isinstance(reference := schema.get("$ref"), str):
            if reference in references or len(references) == MAX_REFERENCES:
                return {}, references
            references = (*references, reference)
            schema = _defined(self._root, reference)
        return schema, references


def _defined(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found: Any = root
    for step in steps_of(reference):
        found = _object(found).get(step)
    return _object(found)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _either(known: Any, said: Any, choice: str) -> Any:
    if known is None or known == said:
        return said
    combined = "allOf" if choice == "allOf" else "anyOf"
    others = known[combined] if isinstance(known, dict) and known.keys() == {combined} else [known]
    return known if said in others else {combined: [*others, said]}


def _always(listed: Iterable[Any], choice: str) -> Sequence[str]:
    """The members that all of the parts name, or, where all of them hold, any."""
    named = [_texts(each) for each in listed]
    if choice == "allOf":
        return [name for each in named for name in each]
    first, *others = named or [[]]
    return [name for name in first if all(name in each for each in others)]
