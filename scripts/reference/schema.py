"""A JSON Schema of templates, for editors."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from llama_compat.distribution import ConfigModel, Distribution
from providers.registry import config_model, provider_types
from scripts.reference.docstrings import of_fields
from scripts.reference.markdown import sentence

REFERENCE = {"type": "string", "pattern": r"\$\{env\.[A-Za-z_][A-Za-z0-9_]*(:[^}]*)?\}"}
"""What may stand in the place of any value."""

_SCALARS = ("integer", "number", "boolean")
_KEPT = frozenset(
    {
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
    }
)


def text() -> str:
    """The schema, as it is shipped."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """The schema of a template.

    It lets through what `llama-compat check` does, and catches what needs no look at the rest of
    the file: unknown settings, wrong types, values out of bounds.
    """
    definitions: dict[str, Any] = {}
    root = _of_model(Distribution, definitions, Distribution.__name__)
    configs: dict[str, str] = {}
    for type in provider_types():
        configs[type] = _definition(config_model(type), definitions, type)
    provider = definitions["ProviderSettings"]
    provider["properties"]["type"] = {
        "description": provider["properties"]["type"]["description"],
        "anyOf": [{"enum": provider_types()}, REFERENCE],
    }
    provider["allOf"] = [
        {
            "if": {"properties": {"type": {"const": type}}, "required": ["type"]},
            "then": {"properties": {"config": {"$ref": f"#/$defs/{name}"}}},
        }
        for type, name in configs.items()
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A template of llama_compat",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _definition(config: ConfigModel, definitions: dict[str, Any], name: str) -> str:
    """Puts a provider's settings among the definitions: all vendors' that are the same once."""
    made = _of_model(config.model, definitions, config.model.__name__)
    required = [each for each in made.pop("required", ()) if each not in config.defaults]
    if required:
        made["required"] = required
    for other, schema in definitions.items():
        if schema == made:
            return other
    definitions[name] = made
    return name


def _of_model(model: type[BaseModel], definitions: dict[str, Any], name: str) -> dict[str, Any]:
    raw = model.model_json_schema()
    classes = _classes(model)
    for inner, definition in raw.pop("$defs", {}).items():
        definitions.setdefault(inner, _described(_plain(definition), classes[inner]))
    return _described(_plain(raw), model)


def _classes(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The classes of settings inside `model`, by name."""
    from scripts.reference import annotations

    found: dict[str, type[BaseModel]] = {}
    for field in model.model_fields.values():
        for inner in annotations.described(field).models:
            if inner.__name__ not in found:
                found |= {inner.__name__: inner, **_classes(inner)}
    return found


def _described(schema: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    told = of_fields(model)
    for name, member in schema.get("properties", {}).items():
        # Beside a `$ref` nothing else counts.
        described = {"anyOf": [member]} if "$ref" in member else member
        schema["properties"][name] = {"description": sentence(told[name]), **described}
    return schema


def _plain(schema: Any) -> Any:
    """Pydantic's schema, less what editors need not know, and with references where they may be."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "oneOf" in schema:  # of unions that tell apart by what is given
        kept["anyOf"] = schema["oneOf"]
    if "properties" in kept:
        kept["properties"] = {name: _value(each) for name, each in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _value(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_value(each) for each in kept["anyOf"]]
    if isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = _value(kept["additionalProperties"])
    return kept


def _value(schema: Any) -> Any:
    plain = _plain(schema)
    if plain.get("$ref", "").endswith("LimitStoreSettings"):
        return {"anyOf": [plain, {"type": "string"}]}  # the store alone
    if plain.get("$ref", "").endswith("ServerSettings"):
        return {"anyOf": [plain, {"type": "null"}]}
    if plain.get("type") == "array":
        return {"anyOf": [plain, {"type": "null"}]}  # all of its items are commented out
    narrow = plain.get("type") in _SCALARS or {"enum", "const", "pattern"} & plain.keys()
    return {"anyOf": [plain, REFERENCE]} if narrow else plain
