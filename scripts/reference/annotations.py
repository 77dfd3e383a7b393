"""What a pydantic field takes, in words."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ByteSize, SecretStr, StringConstraints
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

NAMES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    SecretStr: "text, a secret",
    Path: "path",
    ByteSize: "size, as `12GB`",
    date: "date",
    datetime: "time",
    Any: "anything",
    object: "anything",
}


class Described(NamedTuple):
    """A field's type and bounds in words, and the models that it may hold."""

    type: str
    bounds: str
    models: tuple[type[BaseModel], ...] = ()


def described(field: FieldInfo) -> Described:
    """What `field` takes."""
    kind, models, bounds = _kind(field.annotation)
    return Described(kind, ", ".join([*_bounds(field.metadata), *bounds]), tuple(models))


def default(field: FieldInfo) -> str:
    """A field's default as a template would have it; in words where that can't be."""
    factory = field.default_factory
    if factory is not None:
        if factory in (dict, list):
            return "`{}`" if factory is dict else "`[]`"
        told = (factory.__doc__ or "").strip().rstrip(".")
        return told[:1].lower() + told[1:]
    if field.default is PydanticUndefined:
        return "**required**"
    return _value(field.default)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its own defaults"
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_yaml(each) for each in value) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _kind(annotation: Any) -> tuple[str, list[type[BaseModel]], list[str]]:
    """A type in words, the models in it, and the bounds of what is inside it."""
    if isinstance(annotation, types.GenericAlias) or get_origin(annotation) is not None:
        return _generic(annotation)
    if annotation in NAMES:
        return NAMES[annotation], [], []
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{title(annotation)}](#{anchor(annotation)})", [annotation], []
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{each.value}`" for each in annotation), [], []
    raise TypeError(f"no words for the type {annotation!r}")


def _generic(annotation: Any) -> tuple[str, list[type[BaseModel]], list[str]]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, models, bounds = _kind(arguments[0])
        return kind, models, [*_bounds(arguments[1:]), *bounds]
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments), [], []
    if origin in (Union, types.UnionType):
        found = [_kind(each) for each in arguments if each is not type(None)]
        kind = " or ".join(dict.fromkeys(each[0] for each in found))
        return kind, [m for each in found for m in each[1]], [b for each in found for b in each[2]]
    if origin in (list, tuple, set, frozenset):
        kind, models, bounds = _kind(arguments[0])
        inner = [f"each {bound}" for bound in bounds]
        return f"list of {kind}" if not kind.startswith("`") else f"list of: {kind}", models, inner
    if origin is dict:
        (key, _, _), (value, models, _) = map(_kind, arguments)
        return f"map of {key} to {value}", models, []
    raise TypeError(f"no words for the type {annotation!r}")


def _bounds(metadata: Iterable[Any]) -> list[str]:
    found = []
    for each in metadata:
        if isinstance(each, FieldInfo):
            found += _bounds(each.metadata)
        for kind, name, sign in (
            (Ge, "ge", "≥"),
            (Gt, "gt", ">"),
            (Le, "le", "≤"),
            (Lt, "lt", "<"),
        ):
            if isinstance(each, kind):
                found.append(f"{sign} {_yaml(getattr(each, name))}")
        if isinstance(each, MinLen) and each.min_length == 1:
            found.append("not empty")
        if isinstance(each, StringConstraints) and each.pattern:
            found.append(f"`{each.pattern}`")
    return found


def title(model: type[BaseModel]) -> str:
    """What a model is called on a page."""
    return model.__name__.removesuffix("Settings").removesuffix("Config")


def anchor(model: type[BaseModel]) -> str:
    """Where its section is."""
    return title(model).lower()
