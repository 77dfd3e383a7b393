"""The members of a request's objects, each checked where it is read.

All raise APIError (400) with the path of what is missing or of the wrong type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.dialects.counts import MAX_COUNT
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.tools.python_types import parameters_schema


def path_of(path: str, name: str) -> str:
    """The path of the member `name` of what is at `path`."""
    return f"{path}.{name}" if path else name


def wrong_type(path: str, expected: str) -> APIError:
    """400: what is at `path` is not what is `expected`."""
    return invalid_parameter(path, f"'{path}' must be {expected}.", "invalid_type")


def as_object(value: Any, path: str) -> dict[str, Any]:
    """`value`, which is an object."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object")
    return value


def as_list(value: Any, path: str) -> list[Any]:
    """`value`, which is an array; none at all is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong_type(path, "an array")
    return value


def objects_among(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of an array, for who looks on before it is checked: what is none is passed over,
    and anything but an array has none."""
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )


def messages_of(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The messages of a conversation, each with its path, of which there is one at least."""
    if value is None:
        raise missing_parameter("messages")
    if not isinstance(value, list) or not value:
        raise invalid_parameter("messages", "'messages' must be an array of at least one message.")
    for index, item in enumerate(value):
        path = f"messages[{index}]"
        yield as_object(item, path), path


def object_in(parent: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    """The member `name`, which is an object."""
    where = path_of(path, name)
    if parent.get(name) is None:
        raise missing_parameter(where)
    return as_object(parent[name], where)


def text_in(parent: Mapping[str, Any], name: str, path: str) -> str:
    """The member `name`, which is a string."""
    text = optional_text_in(parent, name, path)
    if text is None:
        raise missing_parameter(path_of(path, name))
    return text


def optional_text_in(parent: Mapping[str, Any], name: str, path: str = "") -> str | None:
    """The member `name`, which is a string if it is there."""
    text = parent.get(name)
    if text is None or isinstance(text, str):
        return text
    raise wrong_type(path_of(path, name), "a string")


def optional_flag_in(parent: Mapping[str, Any], name: str, path: str) -> bool | None:
    """The member `name`, which is a boolean if it is there."""
    flag = parent.get(name)
    if flag is None or isinstance(flag, bool):
        return flag
    raise wrong_type(path_of(path, name), "a boolean")


def optional_number_in(
    parent: Mapping[str, Any], name: str, path: str, low: float, high: float | None = None
) -> float | None:
    """The member `name`, which is a number from `low` to `high` (`MAX_COUNT`) if it is there."""
    number, where = parent.get(name), path_of(path, name)
    if number is None:
        return None
    if type(number) not in (int, float):
        raise wrong_type(where, "a number")
    return _in_range(number, where, low, high)


def optional_integer_in(
    parent: Mapping[str, Any], name: str, path: str, low: int, high: int | None = None
) -> int | None:
    """The member `name`, which is an integer from `low` to `high` (`MAX_COUNT`) if it is there."""
    number, where = parent.get(name), path_of(path, name)
    if number is None:
        return None
    if type(number) is not int:
        raise wrong_type(where, "an integer")
    return int(_in_range(number, where, low, high))


def _in_range(number: float, where: str, low: float, high: float | None) -> float:
    most = MAX_COUNT if high is None else high
    if low <= number <= most:
        return number
    bounds = f"at least {low}" if high is None and number < low else f"between {low} and {most}"
    raise invalid_parameter(where, f"Invalid value for '{where}': expected {bounds}.")


def optional_schema_in(parent: Mapping[str, Any], name: str, path: str) -> dict[str, Any] | None:
    """The member `name`, which is the schema of a function's parameters if it is there, in any way
    of writing one that `parameters_schema` knows."""
    schema, where = parent.get(name), path_of(path, name)
    if schema is None:
        return None
    try:
        return parameters_schema(as_object(schema, where))
    except ValueError as error:
        raise invalid_parameter(where, f"Invalid schema in '{where}': {error}.") from None
    except RecursionError:
        raise invalid_parameter(where, f"Invalid schema in '{where}': nested too deeply.") from None
