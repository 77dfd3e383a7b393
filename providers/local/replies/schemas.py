"""JSON Schemas as llguidance can keep them: the same values, said with what it knows.

What it can't keep is refused with its place, or left to the model where nobody asked for it to be
enforced. What it knows: https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from llama_compat.wire.json_pointer import step_to, steps_of
from providers.local.replies.repetitions import (
    LONGEST,
    check_repetitions,
    not_enforced,
    spelt_out,
)

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Python writes it. With free white space a small model may write nothing else."""

NO_SPELT_OUT = {"json_allowed_escapes": 'nrbtf\\"'}
"""No character of a text written as `\\u0078`: among the names that an object may have beside those
it lists llguidance would take a listed one that is spelt so, with any value."""

_SPELT_OUT = re.compile(r"\\u00[01]")
"""A control character, which JSON has no other way to write."""

NAMED = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value has a schema for each name."""

SINGLE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
"""Keywords whose value is a schema."""

LISTED = ("prefixItems", "anyOf", "oneOf", "allOf")
"""Keywords whose value is a list of schemas."""

COMBINED = ("anyOf", "oneOf", "allOf", "then", "else")
"""Of these, the keywords whose schemas are about the very value that they stand in."""

LOWEST, HIGHEST = -(2**63) + 1024, 2**63 - 1024
"""The bounds that llguidance can keep: those of 64 bits, as the float64 next to them."""

ENDLESS = 2**31
"""No reply is as long as this; what is allowed to be longer has no bound."""


def parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas that `schema` is made of, each with its path from there."""
    if not isinstance(schema, dict):
        return
    for name in NAMED:
        if isinstance(schema.get(name), dict):
            yield from ((f".{name}.{member}", part) for member, part in schema[name].items())
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield f".{name}", schema[name]
    for name in LISTED:
        if isinstance(schema.get(name), list):
            yield from ((f".{name}[{index}]", part) for index, part in enumerate(schema[name]))


def enforceable(schema: Mapping[str, Any], path: str, *, loose: bool = False) -> dict[str, Any]:
    """`schema` as llguidance is given it.

    Args:
        schema: as a request has it.
        path: where it stands in the request, for errors.
        loose: whether what can't be enforced is left to the model.

    Raises:
        APIError: 400; it has a number that can't be kept, at the path that it names.
    """
    preparing = _Preparing(schema, loose)
    made: dict[str, Any] = preparing.prepared(schema, path)
    options: dict[str, Any] = {**COMPACT, "lenient": True} if loose else COMPACT
    if preparing.has_open_names and not _SPELT_OUT.search(json.dumps(made)):
        options = options | NO_SPELT_OUT
    return {**made, "x-guidance": options}


class _Preparing:
    """One schema being made ready.

    Args:
        root: all of it, for what it refers to.
        loose: as `enforceable` has it.

    Attributes:
        has_open_names: whether any object may have other names than those it lists.
    """

    def __init__(self, root: Any, loose: bool) -> None:
        self._root = root
        self._loose = loose
        self.has_open_names = False

    def prepared(self, schema: Any, path: str) -> Any:
        """A schema or part of one, whose path is `path`."""
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        self._constants(made, path)
        self._bounds(made, path)
        # A format that is not known is an annotation, says JSON Schema.
        if isinstance(made.get("format"), str) and not _known({"format": made["format"]}):
            del made["format"]
        pattern = made.get("pattern")
        if isinstance(pattern, str):
            self._pattern(made, pattern, path)
        if made.get("uniqueItems") is False:
            del made["uniqueItems"]
        self._property_names(made)
        self._patterns_of_names(made, path)
        self._open_names(made, path)
        for name in NAMED:
            if isinstance(made.get(name), dict):
                made[name] = {
                    member: self.prepared(part, f"{path}.{name}.{member}")
                    for member, part in made[name].items()
                }
        for name in SINGLE:
            if name in made:
                made[name] = self.prepared(made[name], f"{path}.{name}")
        for name in LISTED:
            if isinstance(made.get(name), list):
                made[name] = [
                    self.prepared(part, f"{path}.{name}[{index}]")
                    for index, part in enumerate(made[name])
                ]
        return made

    def _constants(self, made: dict[str, Any], path: str) -> None:
        for name in ("const", "enum"):
            if name not in made or _is_kept(made[name]):
                continue
            if not self._loose:
                raise not_enforced(
                    f"{path}.{name}",
                    f"'{path}.{name}' can't be enforced: it has a whole number that takes more than"
                    " the 53 bits in which it can be kept. Ask for it as a string.",
                )
            del made[name]

    def _pattern(self, made: dict[str, Any], pattern: str, path: str) -> None:
        if not self._loose:
            check_repetitions(pattern, f"{path}.pattern")
        elif spelt_out(pattern) > LONGEST or not _known({"pattern": pattern}):
            del made["pattern"]

    def _bounds(self, made: dict[str, Any], path: str) -> None:
        """Each bound as the nearest within it that can be kept; nothing beyond it is let in."""
        for name, is_upper in (
            ("maximum", True),
            ("exclusiveMaximum", True),
            ("minimum", False),
            ("exclusiveMinimum", False),
        ):
            bound = made.get(name)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                continue
            beyond = bound < LOWEST if is_upper else bound > HIGHEST
            if beyond and not self._loose:
                raise not_enforced(
                    f"{path}.{name}",
                    f"'{path}.{name}' can't be enforced: a bound of numbers has to lie between"
                    f" {LOWEST} and {HIGHEST}.",
                )
            if beyond or bound in (math.inf, -math.inf):
                del made[name]
            else:
                made[name] = _kept_bound(bound, is_upper)
        for name in ("maxLength", "maxItems", "maxProperties"):
            if isinstance(made.get(name), int | float) and made[name] >= ENDLESS:
                del made[name]
        for name in ("minLength", "minItems", "minProperties"):
            if not isinstance(made.get(name), int | float) or made[name] < ENDLESS:
                continue
            if not self._loose:
                raise not_enforced(
                    f"{path}.{name}",
                    f"'{path}.{name}' can't be enforced: no reply is as long. Ask for less than"
                    f" {ENDLESS}.",
                )
            del made[name]

    def _property_names(self, made: dict[str, Any]) -> None:
        """`propertyNames` with a list of names, or a pattern, as the properties that it allows."""
        names = resolved(made.get("propertyNames"), self._root)
        if not isinstance(names, dict):
            return
        value = made.get("additionalProperties", True)
        listed = [names["const"]] if "const" in names else names.get("enum")
        if isinstance(listed, list) and "patternProperties" not in made:
            named = made.get("properties")
            named = named if isinstance(named, dict) else {}
            texts = [each for each in listed if isinstance(each, str)]
            made["properties"] = {
                **{name: part for name, part in named.items() if name in texts},
                **{name: value for name in texts if name not in named},
            }
        elif (
            self._loose
            and isinstance(names.get("pattern"), str)
            and not (
                {"properties", "patternProperties"} & made.keys() or names.keys() - _PATTERN_ONLY
            )
        ):
            made["patternProperties"] = {names["pattern"]: value}
        else:
            return
        made["additionalProperties"] = False
        del made["propertyNames"]

    def _patterns_of_names(self, made: dict[str, Any], path: str) -> None:
        """Patterns that only list names, as properties with those names: each comes once at most.

        Of other names a grammar can't remember which there were already.
        """
        patterns = made.get("patternProperties")
        if not isinstance(patterns, dict):
            return
        named = made.get("properties")
        listed: dict[str, Any] = {}
        left: dict[str, Any] = {}
        for pattern, part in patterns.items():
            names = _LISTED_NAMES.fullmatch(pattern)
            if names is None:
                if not self._loose or spelt_out(pattern) <= LONGEST:
                    left[pattern] = part
            else:
                listed |= dict.fromkeys((names[1] or names[2]).split("|"), part)
        if isinstance(named, dict) and listed.keys() & named.keys():
            left, listed = patterns, {}
        if left and not self._loose:
            raise not_enforced(
                f"{path}.patternProperties",
                f"'{path}.patternProperties' can't be enforced: a name that fits"
                f" {json.dumps(next(iter(left)), ensure_ascii=False)} could come twice in one"
                " object. Name the properties, or list their names, as in '^(a|b)$'.",
            )
        made["patternProperties"] = left
        if listed:
            made["properties"] = {**(named if isinstance(named, dict) else {}), **listed}
        if not left:
            del made["patternProperties"]

    def _open_names(self, made: dict[str, Any], path: str) -> None:
        """What is to be known of an object that may have other names than those it lists.

        A grammar can't remember those, so that one may come twice, and JSON counts it once.
        """
        if made.get("additionalProperties", True) is False:
            return
        self.has_open_names = self.has_open_names or bool(made.get("properties"))
        least, required = made.get("minProperties"), made.get("required")
        if self._loose or isinstance(least, bool) or not isinstance(least, int | float):
            return
        if least > 1 + (len(required) if isinstance(required, list) else 0):
            raise not_enforced(
                f"{path}.minProperties",
                f"'{path}.minProperties' can't be enforced: a name that is not listed could come"
                " twice in one object, and counts once. Name the properties, and require them.",
            )


_LISTED_NAMES = re.compile(r"\^(?:\((?:\?:)?([\w -]+(?:\|[\w -]+)*)\)|([\w -]+))\$", re.ASCII)
"""A pattern that is a list of names, `^(a|b)$`, or one name."""

_PATTERN_ONLY = {"type", "pattern", "title", "description"}


def resolved(schema: Any, root: Any, *, steps: int = 16) -> Any:
    """What `schema` refers to within `root`; itself if it is no reference.

    Args:
        schema: any.
        root: the whole.
        steps: how many references may follow on each other.
    """
    for _ in range(steps):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        found = root
        for step in steps_of(reference):
            found = found.get(step) if isinstance(found, dict) else None
        schema = found
    return schema


def _is_kept(value: Any) -> bool:
    """Whether every number in a constant comes out of a float64 as it went in."""
    if isinstance(value, dict):
        return all(map(_is_kept, value.values()))
    if isinstance(value, list):
        return all(map(_is_kept, value))
    if isinstance(value, bool) or not isinstance(value, int):
        return not isinstance(value, float) or math.isfinite(value)
    if abs(value) <= 2**53:
        return True
    # Some that are larger come out whole too.
    return abs(value) <= HIGHEST and Decimal(repr(float(value))) == value


def _kept_bound(bound: float, is_upper: bool) -> float:
    if not LOWEST <= bound <= HIGHEST:
        return HIGHEST if is_upper else LOWEST
    if isinstance(bound, float):
        return bound
    near = float(bound)
    if near > bound if is_upper else near < bound:
        near = math.nextafter(near, -math.inf if is_upper else math.inf)
    return int(near)


@lru_cache(256)
def _knows(schema: str) -> bool:
    from llguidance import LLMatcher

    found = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    return not found or found.startswith("WARNING")


def _known(schema: Mapping[str, Any]) -> bool:
    """Whether llguidance takes a schema of a text."""
    return _knows(json.dumps({"type": "string", **schema}))


# The arguments of tools ---------------------------------------------------------------------------


def closed(schema: Any) -> Any:
    """`schema` without members that it does not name, where it does not say that there may be more.

    One that says nothing of others allows any, and small models would write them without end.
    """
    return _Closing(schema).closed(schema)


class _Names:
    """What is said of an object's members.

    Attributes:
        all: the names that are mentioned, in order.
        described: whether any of them has a schema.
        more: whether it is said which others there may be.
    """

    def __init__(self) -> None:
        self.all: dict[str, None] = {}
        self.described = False
        self.more = False


class _Closing:
    """One schema being closed.

    An object is closed in one place: where all that is said of it comes together, by all the names
    that are mentioned there. Closed in a part as well, it could not have the names of the others.

    Args:
        root: all of the schema.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._open: set[str] = set()
        self._find_open(root, False)

    def closed(self, schema: Any, reference: str = "#", *, is_part: bool = False) -> Any:
        """`schema`, which `reference` refers to; one that is part of another stays open."""
        if not isinstance(schema, dict):
            return schema
        is_part = is_part or reference in self._open
        alone = _stands_alone(schema)
        made = {
            keyword: self._closed_value(
                keyword, value, f"{reference}/{keyword}", is_part=is_part or not alone
            )
            for keyword, value in schema.items()
        }
        if is_part or alone:
            return made
        names = _Names()
        self._gather(schema, names, set())
        if names.described and not names.more:
            own = made.get("properties")
            own = own if isinstance(own, dict) else {}
            made["properties"] = {**own, **{each: True for each in names.all if each not in own}}
            made["additionalProperties"] = False
        return made

    def _closed_value(self, keyword: str, value: Any, reference: str, *, is_part: bool) -> Any:
        is_part = is_part and keyword in COMBINED
        if keyword in NAMED and isinstance(value, dict):
            return {
                name: self.closed(part, f"{reference}/{step_to(name)}")
                for name, part in value.items()
            }
        if keyword in LISTED and isinstance(value, list):
            return [
                self.closed(part, f"{reference}/{index}", is_part=is_part)
                for index, part in enumerate(value)
            ]
        if keyword in ("items", "additionalProperties", "then", "else"):
            return self.closed(value, reference, is_part=is_part)
        return value

    def _find_open(self, schema: Any, is_part: bool) -> None:
        """Note what is referred to as a part of something else, which has to stay open."""
        if not isinstance(schema, dict):
            return
        is_part = is_part or not _stands_alone(schema)
        reference = schema.get("$ref")
        if is_part and isinstance(reference, str) and reference not in self._open:
            self._open.add(reference)
            self._find_open(resolved({"$ref": reference}, self._root, steps=1), True)
        for keyword, value in schema.items():
            inner = is_part and keyword in COMBINED
            if keyword in NAMED and isinstance(value, dict):
                value = list(value.values())
            if keyword in (*NAMED, *LISTED, *SINGLE):
                for part in value if isinstance(value, list) else [value]:
                    self._find_open(part, inner)

    def _gather(self, schema: Any, names: _Names, seen: set[str], *, inner: bool = False) -> None:
        if not isinstance(schema, dict):
            return
        if isinstance(properties := schema.get("properties"), dict):
            names.described = True
            names.all.update(dict.fromkeys(properties))
        if isinstance(required := schema.get("required"), list):
            names.all.update(dict.fromkeys(each for each in required if isinstance(each, str)))
        says_more = {"additionalProperties", "unevaluatedProperties", "propertyNames"}
        if says_more & schema.keys() or (inner and "patternProperties" in schema):
            names.more = True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            target = resolved({"$ref": reference}, self._root, steps=1)
            self._gather(target, names, seen, inner=True)
        for keyword in COMBINED:
            value = schema.get(keyword)
            for part in value if isinstance(value, list) else [value]:
                self._gather(part, names, seen, inner=True)


def _stands_alone(schema: Mapping[str, Any]) -> bool:
    """Whether one keyword says all that `schema` says of an object: a reference, or a choice."""
    said = [name for name in _OF_OBJECTS if name in schema]
    if said == ["allOf"]:
        return isinstance(schema["allOf"], list) and len(schema["allOf"]) == 1
    return said in ([], ["$ref"], ["anyOf"], ["oneOf"])


_OF_OBJECTS = ("$ref", "properties", "patternProperties", "required", *COMBINED)
