"""JSON Schema in the subset to which Anthropic and Bedrock hold replies and strict tools.

Its objects have to say that they have no other members, and limits of numbers, texts and lists are
refused: "For 'integer' type, property 'minimum' is not supported". Anthropic's own SDKs say such
limits in descriptions, which the model reads
(https://platform.claude.com/docs/en/build-with-claude/structured-outputs, and `anthropic` 2.12.0,
lib/_parse/_transform.py, 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIMITS = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
    }
)

_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "time",
        "uri",
        "uuid",
    }
)

_NAMED = frozenset({"properties", "$defs", "definitions"})


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with what it leaves open closed, and limits that nobody is held to as words.

    What is said to be open stays so, and so does an object of which no member is named: the vendor
    says better that it can't be than a reply in which nothing is left of it.
    """
    return _closed(schema, is_part=False)


def _closed(schema: Mapping[str, Any], *, is_part: bool) -> dict[str, Any]:
    """`is_part`: other schemas hold for the same value, and would be closed to this one's."""
    closed: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _LIMITS or (name == "format" and str(value) not in _FORMATS):
            limits[name] = value
        elif name == "minItems" and value not in (0, 1):
            limits[name] = value
            closed[name] = 1
        elif name in _NAMED and isinstance(value, dict):
            closed[name] = {each: _inner(inner) for each, inner in value.items()}
        elif name in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
            parts = [_inner(each, is_part=is_part or name == "allOf") for each in value]
            # It knows the first alone, which takes more.
            closed["anyOf" if name == "oneOf" and "anyOf" not in schema else name] = parts
        elif name == "items":
            closed[name] = _inner(value)
        elif name != "$schema":
            closed[name] = value
    if closed.get("properties") and not is_part:
        closed.setdefault("additionalProperties", False)
    if limits:
        words = ", ".join(f"{name}: {value}" for name, value in limits.items())
        said = schema.get("description")
        closed["description"] = f"{said} ({words})" if said else words
    return closed


def _inner(schema: Any, *, is_part: bool = False) -> Any:
    return _closed(schema, is_part=is_part) if isinstance(schema, dict) else schema
