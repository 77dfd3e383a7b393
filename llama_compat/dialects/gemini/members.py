"""Members of Google's JSON: `topK` may also be written `top_k`, and a list of one as the one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from llama_compat.errors import invalid_parameter

_HUMP = re.compile("[A-Z]")
_DIGITS = re.compile(r"-?[0-9]{1,20}")


@cache
def _snake_case(name: str) -> str:
    return _HUMP.sub(lambda letter: f"_{letter[0].lower()}", name)


@cache
def spellings(name: str) -> tuple[str, ...]:
    """All ways in which the member `name` may be written, each once."""
    return tuple(dict.fromkeys((name, _snake_case(name))))


def spelling(value: Mapping[str, Any], name: str) -> str:
    """How the member `name` of `value` is written there; as it is if it is not there."""
    return name if name in value or _snake_case(name) not in value else _snake_case(name)


def member(value: Mapping[str, Any], name: str) -> Any:
    """The member `name` of `value`; None if it is not there."""
    found = value.get(name)
    return value.get(_snake_case(name)) if found is None else found


def the_member(value: Mapping[str, Any], name: str, path: str) -> Any:
    """The member `name` of `value`, which is at `path`, where nobody may read another one.

    Raises:
        APIError: 400, it is there in both spellings, and they may differ.
    """
    other = _snake_case(name)
    if other != name and value.get(name) is not None and value.get(other) is not None:
        raise invalid_parameter(
            path, f"'{path}' is there twice, also as '{other}'. Leave one of them out."
        )
    return member(value, name)


def integer_in(value: Mapping[str, Any], name: str, path: str) -> Any:
    """The member `name` of `value`, which is at `path`, as an integer, which may be written `40.0`
    or `"40"` (https://protobuf.dev/programming-guides/json); what is none is given as it is, for a
    check to refuse.

    Raises:
        APIError: as `the_member`.
    """
    found = the_member(value, name, path)
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, str) and _DIGITS.fullmatch(found):
        return int(found)
    return found


def object_in(value: Any, path: str) -> dict[str, Any]:
    """`value`, which is at `path`, as an object.

    Raises:
        APIError: 400, it is none.
    """
    if not isinstance(value, dict):
        raise invalid_parameter(path, f"'{path}' must be an object.", "invalid_type")
    return value


def list_in(value: Any, path: str) -> list[Any]:
    """`value`, which is at `path`, as a list: an object is a list of one, and nothing is empty.

    Raises:
        APIError: 400, it is neither.
    """
    if value is None:
        return []
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise invalid_parameter(path, f"'{path}' must be an array.", "invalid_type")
    return value


def text_in(value: Mapping[str, Any], name: str, path: str) -> str | None:
    """The text that is the member `name` of `value`, which is at `path`; None if it is not there.

    Raises:
        APIError: 400, it is no text.
    """
    text = member(value, name)
    if text is None or isinstance(text, str):
        return text
    raise invalid_parameter(f"{path}.{name}", f"'{path}.{name}' must be a string.", "invalid_type")
