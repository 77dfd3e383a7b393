"""Members of Google's JSON: `topK` may also be written `top_k`, and a list of one as the one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from llama_compat.errors import invalid_parameter

_HUMP = re.compile("[A-Z]")


@cache
def _snake_case(name: str) -> str:
    return _HUMP.sub(lambda letter: f"_{letter[0].lower()}", name)


def spelling(value: Mapping[str, Any], name: str) -> str:
    """How the member `name` of `value` is written there; as it is if it is not there."""
    return name if name in value or _snake_case(name) not in value else _snake_case(name)


def member(value: Mapping[str, Any], name: str) -> Any:
    """The member `name` of `value`; None if it is not there."""
    found = value.get(name)
    return value.get(_snake_case(name)) if found is None else found


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
