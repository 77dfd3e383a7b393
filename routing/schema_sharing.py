"""Schemas of an OpenAPI document that are the same under several names, made one.

The types of a request, of its reply and of a stream's events hold many types that they share, and
each comes with copies of its own: most of the document would be those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_REF = re.compile(rb'"\$ref":"#/components/schemas/([^"]+)"')


def shared(schemas: Mapping[str, Any]) -> dict[str, str]:
    """The name to use in the place of each name of `schemas` whose schema another name has too.

    Two are the same if they are called the same behind the last dot, say the same, and what they
    refer to is the same.
    """
    encoder = msgspec.json.Encoder(order="deterministic")
    texts = {name: encoder.encode(schema) for name, schema in schemas.items()}
    refers = {name: [each.decode() for each in _REF.findall(text)] for name, text in texts.items()}
    said = {name: _REF.sub(b"", text) for name, text in texts.items()}
    # All that say the same are one class at first, which what they refer to takes apart.
    classes = _numbered({name: (_short(name), said[name]) for name in schemas})
    while True:
        finer = _numbered(
            {
                name: (classes[name], *(classes.get(each) for each in refers[name]))
                for name in schemas
            }
        )
        if len(set(finer.values())) == len(set(classes.values())):
            break
        classes = finer
    first: dict[int, str] = {}
    for name in schemas:
        first.setdefault(classes[name], name)
    return {name: first[classes[name]] for name in schemas if first[classes[name]] != name}


def share(document: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Leave one of each of `schemas` that are the same in the OpenAPI document `document`."""
    names = shared(schemas)
    for name in names:
        del document["components"]["schemas"][name]
    _rename(
        document,
        {f"#/components/schemas/{a}": f"#/components/schemas/{b}" for a, b in names.items()},
    )


def _rename(value: Any, references: Mapping[str, str]) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str):
                if each in references:
                    value[name] = references[each]
            else:
                _rename(each, references)
    elif isinstance(value, list):
        for each in value:
            _rename(each, references)


def _numbered(keys: Mapping[str, Any]) -> dict[str, int]:
    numbers: dict[Any, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in keys.items()}


def _short(name: str) -> str:
    return name.rpartition(".")[2]
