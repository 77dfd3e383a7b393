"""Schemas that are the same are there once, and nothing else is taken for the same."""

from __future__ import annotations

import json
from typing import Any

from routing.schema_sharing import share, shared
from tests.unit.routing.ingress.test_apis import application


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def text(name: str) -> dict[str, Any]:
    return {"type": "string", "title": name}


def test_what_is_called_and_says_the_same_is_one() -> None:
    schemas = {
        "A.Text": text("Text"),
        "B.Text": text("Text"),
        "B.Name": text("Text"),
        "C.Text": text("another"),
    }
    assert shared(schemas) == {"B.Text": "A.Text"}


def test_what_refers_to_others_is_not_the_same() -> None:
    schemas = {
        "A.List": {"items": ref("A.Item")},
        "A.Item": {"anyOf": [ref("A.Text"), ref("A.List")]},
        "A.Text": text("one"),
        "B.List": {"items": ref("B.Item")},
        "B.Item": {"anyOf": [ref("B.Text"), ref("B.List")]},
        "B.Text": text("another"),
        "C.List": {"items": ref("C.Item")},
        "C.Item": {"anyOf": [ref("C.Text"), ref("C.List")]},
        "C.Text": text("one"),
    }
    assert shared(schemas) == {f"C.{name}": f"A.{name}" for name in ("List", "Item", "Text")}
    document: dict[str, Any] = {
        "components": {"schemas": schemas},
        "paths": {"/c": {"post": {"schema": ref("C.List")}}},
    }
    share(document, schemas)
    assert set(schemas) == {f"{root}.{name}" for root in "AB" for name in ("List", "Item", "Text")}
    assert document["paths"]["/c"]["post"]["schema"] == ref("A.List")
    assert "C." not in json.dumps(document)


def test_the_document_is_no_larger_than_it_has_to_be() -> None:
    document = application().openapi()
    schemas = document["components"]["schemas"]
    assert shared(schemas) == {}
    assert len(json.dumps(document)) < 700_000
