"""Schemas as they are enforced: what is sound is taken, and nothing is let in that it excludes."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import ipaddress
import json
import re
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest

llguidance = pytest.importorskip("llguidance", reason="needs an extra for local models")

import pydantic
from pydantic import BaseModel, Field, create_model

from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.types import ToolDefinition
from providers.local.replies.call_grammar import arguments_schema, json_rule
from providers.local.replies.schemas import closed, enforceable

BYTES = llguidance.LLTokenizer("byte")
"""A tokenizer whose tokens are the bytes."""


def compiled(schema: dict[str, Any]) -> Any:
    """What follows `schema`, as it is enforceable.

    Raises:
        ValueError: it can't be enforced.
    """
    grammar = llguidance.LLMatcher.grammar_from_lark(f"start: {json_rule(schema)}")
    matcher = llguidance.LLMatcher(BYTES, grammar, log_level=0)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    return matcher


def allows(schema: dict[str, Any], value: Any) -> bool:
    """Whether a reply may be `value`, its members in the order that they have."""
    matcher = compiled(schema)
    written = json.dumps(value, ensure_ascii=False).encode()
    return all(matcher.consume_token(byte) for byte in written) and matcher.is_accepting()


# Pydantic's types ---------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    x: int
    name: str | None = None


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Pair(NamedTuple):
    first: int
    second: str


KEYS = Annotated[str, pydantic.StringConstraints(pattern="^k[0-9]+$")]

TYPES: list[tuple[Any, Any, bool]] = [
    (set[int], [1, 2], False),
    (frozenset[str], ["a"], False),
    (Path, "/tmp/x", True),
    (pydantic.FilePath, "x.txt", True),
    (bytes, "abc", True),
    (pydantic.Base64Bytes, "YWJj", True),
    (pydantic.SecretStr, "secret", True),
    (pydantic.SecretBytes, "secret", True),
    (dict[Color, int], {"red": 5}, True),
    (dict[Literal["a", "b"], bool], {"a": True, "b": False}, True),
    (dict[KEYS, int], {"k1": 5}, False),
    (dict[str, int], {"any": 5}, True),
    (dict[int, str], {"5": "x"}, True),
    (collections.Counter[str], {"x": 1}, True),
    (decimal.Decimal, 1.5, True),
    (datetime.datetime, "2026-01-02T03:04:05Z", True),
    (datetime.date, "2026-01-02", True),
    (datetime.time, "03:04:05Z", True),
    (datetime.timedelta, "P1DT2H", True),
    (uuid.UUID, "123e4567-e89b-12d3-a456-426614174000", True),
    (pydantic.UUID4, "any", True),
    (pydantic.AnyUrl, "https://example.com/x", True),
    (pydantic.PostgresDsn, "postgres://user@host/db", True),
    (ipaddress.IPv4Address, "127.0.0.1", True),
    (ipaddress.IPv6Network, "2001:db8::/32", True),
    (pydantic.IPvAnyAddress, "::1", True),
    (re.Pattern, "^a$", True),
    (pydantic.Json, "{}", True),
    (complex, "1+2j", True),
    (pydantic.ByteSize, 5, True),
    (tuple[int, str], [1, "a"], True),
    (tuple[int, ...], [1, 2, 3], True),
    (collections.deque[int], [1], True),
    (Pair, [1, "a"], True),
    (Color, "blue", True),
    (Literal["a", 1, None], 1, True),
    (int | str | None, None, True),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "tricks": ["sit"]}, True),
    (Place, {"x": 1}, True),
    (Tree, {"name": "a", "children": [{"name": "b", "children": []}]}, True),
    (list[Place], [{"x": 1, "name": None}], True),
    (Annotated[int, Field(ge=0, le=2**64 - 1)], 2**60, True),
    (Annotated[int, Field(ge=-(2**63), le=2**63 - 1)], -5, True),
    (Annotated[float, Field(gt=0, lt=1)], 0.5, True),
    (Annotated[str, Field(json_schema_extra={"pattern": "^(?=a)[a-z]+$"})], "abc", False),
    (Annotated[list[int], Field(min_length=1, max_length=2**40)], [1], True),
    (Literal[9007199254740993], 9007199254740993, False),
    (Any, {"x": [None]}, True),
]
"""A type, a value of it, and whether it can be enforced to the letter."""


@pytest.mark.parametrize(("annotation", "value", "kept"), TYPES, ids=lambda each: str(each)[:60])
def test_arguments_of_pydantics_types(annotation: Any, value: Any, kept: bool) -> None:
    schema = create_model("Arguments", v=(annotation, ...)).model_json_schema()
    loose = arguments_schema(ToolDefinition("f", None, schema))
    assert allows(loose, {"v": value})
    assert not allows(loose, {"w": value})
    assert not allows(loose, {"v": value, "w": 1})
    strict = ToolDefinition("f", None, schema, strict=True)
    # Before 2.13 pydantic writes the pattern of a decimal with a look ahead, which nobody keeps.
    if kept and "(?!" not in json.dumps(schema):
        assert allows(arguments_schema(strict), {"v": value})
    else:
        with pytest.raises((APIError, ValueError)):
            compiled(arguments_schema(strict))


def test_keys_that_are_listed_are_the_only_ones_and_come_once() -> None:
    schema = create_model("Arguments", v=(dict[Color, int], ...)).model_json_schema()
    for strict in (True, None):
        enforced = arguments_schema(ToolDefinition("f", None, schema, strict=strict))
        assert allows(enforced, {"v": {"red": 1, "blue": 2}})
        assert not allows(enforced, {"v": {"green": 1}})
        matcher = compiled(enforced)
        assert not all(matcher.consume_token(byte) for byte in b'{"v": {"red": 1, "red": 2}}')


@pytest.mark.parametrize("pattern", ["^(red|blue)$", "^(?:red|blue)$"])
def test_a_pattern_that_lists_names_lets_each_come_once(pattern: str) -> None:
    schema = {"type": "object", "patternProperties": {pattern: {"type": "integer"}, "^c$": {}}}
    enforced = enforceable({**schema, "additionalProperties": False}, "x")
    for value in ({"red": 1, "blue": 2, "c": None}, {"blue": 2}, {"c": 1}, {}):
        assert allows(enforced, value)
    assert not allows(enforced, {"red": "x"})
    assert not allows(enforced, {"green": 1})
    matcher = compiled(enforced)
    assert not all(matcher.consume_token(byte) for byte in b'{"red": 1, "red": 2}')


@pytest.mark.parametrize("pattern", ["^x-", "^(a|b+)$", "a|b", "^(a|b)", "^a.c$"])
def test_a_pattern_of_names_that_could_come_twice_is_refused(pattern: str) -> None:
    schema = {"items": {"patternProperties": {"^(a|b)$": {}, pattern: {"type": "integer"}}}}
    with pytest.raises(UnsupportedHere) as caught:
        enforceable(schema, "s")
    assert caught.value.param == "s.items.patternProperties"
    assert f'a name that fits "{pattern}" could come twice' in caught.value.message
    compiled(enforceable(schema, "s", loose=True))


OPEN = {"properties": {"x": {"type": "integer"}}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize("path", [(), ("items",), ("properties", "inner"), ("anyOf", 0)])
def test_a_listed_name_is_not_spelt_in_another_way(path: tuple[Any, ...]) -> None:
    schema: Any = {"type": "object", **OPEN}
    before, after = "", ""
    for step in reversed(path):
        match step:
            case "items":
                schema, before, after = {"type": "array", "items": schema}, "[", "]"
            case "inner":
                schema = {"type": "object", "properties": {"inner": schema}}
                before, after = '{"inner": ', "}"
            case 0:
                schema = {"anyOf": [schema, {"type": "null"}]}
    enforced = enforceable(schema, "x")
    for name, value, is_allowed in (
        ("x", "1", True),
        ("y", '"a\\n"', True),
        ("x", '"a"', False),
        (r"\u0078", '"a"', False),
        (r"\u0078", "1", False),
    ):
        written = f'{before}{{"{name}": {value}}}{after}'.encode()
        matcher = compiled(enforced)
        taken = all(matcher.consume_token(byte) for byte in written) and matcher.is_accepting()
        assert taken == is_allowed, written


def test_control_characters_may_come_where_they_have_to() -> None:
    escape = "\x1b[0m"
    assert allows(enforceable({"type": "object", **OPEN, "required": ["x"]}, "s"), {"x": 1})
    assert allows(enforceable({"type": "string"}, "s"), escape)
    listed = {"properties": {"x": {"const": escape}}, "required": ["x"]}
    assert allows(enforceable({"type": "object", **listed}, "s"), {"x": escape})


@pytest.mark.parametrize("least", [2, 3])
def test_a_number_of_names_that_could_come_twice_is_refused(least: int) -> None:
    schema = {"type": "object", "additionalProperties": {}, "minProperties": least}
    with pytest.raises(UnsupportedHere) as caught:
        enforceable({"items": schema}, "s")
    assert caught.value.param == "s.items.minProperties"
    assert "could come twice" in caught.value.message
    compiled(enforceable(schema, "s", loose=True))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("string", "minLength"), ("array", "minItems"), ("object", "minProperties")],
)
def test_what_is_longer_than_any_reply_is_refused_by_its_name(kind: str, name: str) -> None:
    schema = {"type": kind, name: 2**40}
    with pytest.raises(UnsupportedHere, match="no reply is as long") as caught:
        enforceable({"items": schema}, "s")
    assert caught.value.param == f"s.items.{name}"
    compiled(enforceable(schema, "s", loose=True))


def test_a_number_of_names_that_can_be_counted_is_kept() -> None:
    one = enforceable({"type": "object", "additionalProperties": {}, "minProperties": 1}, "s")
    assert allows(one, {"a": 1})
    assert not allows(one, {})
    schema = {"type": "object", **OPEN, "required": ["x"], "minProperties": 2}
    assert allows(enforceable(schema, "s"), {"x": 1, "y": "a"})
    assert not allows(enforceable(schema, "s"), {"x": 1})


@pytest.mark.parametrize("name", ["path", "binary", "password", "ipv4network", "made-up"])
def test_an_unknown_format_is_an_annotation(name: str) -> None:
    assert allows(enforceable({"type": "string", "format": name}, "x"), "anything")


def test_a_known_format_is_kept() -> None:
    schema = enforceable({"type": "string", "format": "date"}, "x")
    assert allows(schema, "2026-01-02")
    assert not allows(schema, "yesterday")


# Objects that are closed --------------------------------------------------------------------------

A, B, C = {"a": {"type": "integer"}}, {"b": {"type": "integer"}}, {"c": {"type": "integer"}}
OBJECT = {"type": "object"}

CLOSED: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"properties": A}, [{}, {"a": 1}], [{"z": 1}, {"a": 1, "z": 1}]),
    (
        {"properties": A | B, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [{}, {"a": 1, "z": 1}],
    ),
    (
        {"properties": A, "anyOf": [{"properties": B}, {"properties": C, "required": ["c"]}]},
        [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "c": 1}],
        [{"a": 1, "z": 1}],
    ),
    (
        {"properties": A, "oneOf": [{"properties": B, "required": ["b"]}]},
        [{"a": 1, "b": 1}],
        [{"a": 1}, {"a": 1, "b": 1, "z": 1}],
    ),
    ({"properties": A, "required": ["a", "n"]}, [{"a": 1, "n": "x"}], [{"a": 1}, {"n": 1, "z": 1}]),
    (
        {"allOf": [{"properties": A}, {"properties": B, "required": ["b"]}]},
        [{"a": 1, "b": 1}, {"b": 1}],
        [{"a": 1}, {"b": 1, "z": 1}],
    ),
    (
        {"$defs": {"d": {"properties": A}}, "allOf": [{"$ref": "#/$defs/d"}], "properties": B},
        [{"b": 1, "a": 1}],
        [{"b": 1, "z": 1}],
    ),
    (
        {
            "$defs": {"d": {"allOf": [{"$ref": "#/$defs/e"}]}, "e": {"properties": A}},
            "allOf": [{"$ref": "#/$defs/d"}, {"properties": B}],
        },
        [{"a": 1, "b": 1}],
        [{"a": 1, "z": 1}],
    ),
    (
        {"$defs": {"d": {"properties": A}}, "$ref": "#/$defs/d", "required": ["a"]},
        [{"a": 1}],
        [{}, {"a": 1, "z": 1}],
    ),
    (
        {"anyOf": [{"properties": A, "required": ["a"]}, {"properties": B, "required": ["b"]}]},
        [{"a": 1}, {"b": 1}],
        [{}, {"a": 1, "b": 1}, {"a": 1, "z": 1}],
    ),
    (
        {"properties": A, "additionalProperties": {"type": "null"}},
        [{"a": 1, "z": None}],
        [{"z": 1}],
    ),
    (
        {"properties": A, "anyOf": [{"additionalProperties": {"type": "null"}}]},
        [{"z": None}],
        [{"z": 1}],
    ),
    ({"properties": A, "patternProperties": {"^x": {}}}, [{"a": 1, "xy": 5}], [{"a": 1, "z": 1}]),
    (
        {"properties": {"o": {"properties": A, "required": ["a", "n"]}}},
        [{"o": {"a": 1, "n": 1}}],
        [{"o": {"a": 1, "n": 1, "z": 1}}],
    ),
    (
        {"properties": A | {"next": {"$ref": "#"}}},
        [{"a": 1, "next": {"a": 2}}],
        [{"next": {"z": 1}}],
    ),
    ({}, [{"z": 1}, {}], [5]),
]


@pytest.mark.parametrize(("schema", "may", "may_not"), CLOSED, ids=lambda each: str(each)[:70])
def test_objects_have_the_names_that_are_mentioned(
    schema: dict[str, Any], may: list[Any], may_not: list[Any]
) -> None:
    enforced = enforceable(closed(OBJECT | schema), "x", loose=True)
    for value in may:
        assert allows(enforced, value), value
    for value in may_not:
        assert not allows(enforced, value), value


def test_what_is_closed_is_left_as_it_was() -> None:
    schema = {"properties": A, "anyOf": [{"properties": B}], "enum": [9]}
    before = json.dumps(schema)
    enforceable(closed(schema), "x", loose=True)
    assert json.dumps(schema) == before
