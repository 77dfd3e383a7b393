"""The parameters of tools as APIs want them that take nothing but the schema of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """A tool's `parameters` as the schema of an object that says which members it has.

    Tools without any have half of that, or nothing, in many MCP servers and in APIs that take it.
    OpenAI's does not: `schema must be a JSON Schema of 'type: "object"'`, or else `object schema
    missing properties`.
    """
    return {"type": "object", "properties": {}, **(parameters or {})}
