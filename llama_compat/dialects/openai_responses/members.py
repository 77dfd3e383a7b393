"""The members of a request's JSON, each with its path for messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.errors import APIError, invalid_parameter, missing_parameter


def object_at(value: Any, path: str) -> dict[str, Any]:
    """`value`, which has to be an object.

    Raises:
        APIError: 400 naming `path`.
    """
    if not isinstance(value, dict):
        raise _wrong_type(path, "an object")
    return value


def list_at(value: Any, path: str) -> list[Any]:
    """`value`, which has to be an array; none at all is an empty one.

    Raises:
        APIError: 400 naming `path`.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong_type(path, "an array")
    return value


def text_in(holder: Mapping[str, Any], name: str, path: str) -> str:
    """The text that is the member `name` of `holder`, which is at `path`.

    Raises:
        APIError: 400, it is missing or no text.
    """
    text = optional_text_in(holder, name, path)
    if text is None:
        raise missing_parameter(f"{path}.{name}")
    return text


def optional_text_in(holder: Mapping[str, Any], name: str, path: str) -> str | None:
    """As `text_in`, but None where it is missing.

    Raises:
        APIError: 400, it is no text.
    """
    text = holder.get(name)
    if text is None or isinstance(text, str):
        return text
    raise _wrong_type(f"{path}.{name}", "a string")


def _wrong_type(path: str, expected: str) -> APIError:
    return invalid_parameter(
        path, f"Invalid type for '{path}': expected {expected}.", "invalid_type"
    )
