"""The schemas of tools' arguments: which can be given to a model, and how vendors take them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from llama_compat.hosted.vocabulary import free_name
from llama_compat.tools.members import ANTHROPIC_MEMBERS
from llama_compat.tools.parameters import CHOICES, without_choices
from llama_compat.tools.python_types import parameters_schema
from llama_compat.wire.json_depth import MAX_DEPTH, is_deeper
from llama_compat.wire.json_fields import encode_json

MAX_BYTES = 64 * 1024

_UNNAMEABLE = re.compile(f"[^{ANTHROPIC_MEMBERS.characters}]")

_UNNAMED = ("$schema", "$id")
_OTHERS = ("enum", "const", "not")
"""With `CHOICES`, what OpenAI and Anthropic refuse at the top of a schema, and with it
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
        flat = without_choices(schema)
        shown = {name: value for name, value in flat.items() if name not in (*_UNNAMED, *_OTHERS)}
        whole = parameters_schema({**shown, "type": "object"})
    except (ValueError, RecursionError):
        return ModelSchema({"type": "object", "properties": {}}, {}, is_another=True)
    names = _fit_names(whole["properties"])
    if not names:
        is_another = any(name in schema for name in (*CHOICES, *_OTHERS))
        return ModelSchema(whole, {}, is_another)
    whole["properties"] = {names.get(name, name): v for name, v in whole["properties"].items()}
    if "required" in whole:
        whole["required"] = [names.get(name, name) for name in whole["required"]]
    return ModelSchema(whole, {fit: name for name, fit in names.items()}, is_another=True)


def _fit_names(properties: Mapping[str, Any]) -> dict[str, str]:
    """The names that can't be, as what each is called instead."""
    taken = {name for name in properties if ANTHROPIC_MEMBERS.takes(name)}
    others = [name for name in properties if name not in taken]
    longest = ANTHROPIC_MEMBERS.length
    return {name: free_name(_UNNAMEABLE.sub("_", name)[:longest] or "_", taken) for name in others}
