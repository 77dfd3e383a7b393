"""pydantic's validation errors told in plain sentences, each at its place in the template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llama_compat.distribution.problems import KeyPath, Problem, did_you_mean
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.settings.model import TemplateSettings

_EXPECTED = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "path_type": "a path",
    "url_type": "a URL",
    "url_parsing": "a URL such as http://localhost:8000/v1",
    "url_scheme": "a URL that begins with http:// or https://",
}
"""What was wanted, by pydantic's error type
(https://docs.pydantic.dev/latest/errors/validation_errors/)."""

_OUT_OF_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_BOUND_NAMES = {Gt: "gt", Ge: "ge", Lt: "lt", Le: "le"}
_BOUND_WORDS = {Gt: "above", Ge: "of at least", Lt: "below", Le: "of at most"}


def explain(
    error: ValidationError, model: type[BaseModel], document: ResolvedDocument, base: KeyPath = ()
) -> Iterator[Problem]:
    """The problems that `model` has with the part of `document` at `base`, one a place."""
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        by_path.setdefault(_path_of(details, document, base), []).append(details)
    for path, same_place in by_path.items():
        branches = same_place[0]["loc"]
        field = _field_at(model, path[len(base) :], branches)
        match same_place[0]["type"]:
            case "missing":
                yield document.problem(path, _required(document, path))
            case "extra_forbidden":
                owner = _model_at(model, path[len(base) : -1], branches)
                yield document.problem(path, _unknown_key(str(path[-1]), owner), at_key=True)
            case "value_error" if any(each[: len(path)] == path for each in document.unread):
                pass  # what could not be read in it is told, and nobody knows what it comes to
            case _:
                yield document.problem(path, _sentence(same_place, field, document, path))


def _path_of(details: ErrorDetails, document: ResolvedDocument, base: KeyPath) -> KeyPath:
    # pydantic's own path also names the branches of unions and the validators on the way.
    path = base
    for part in details["loc"]:
        if (*path, part) in document.places:
            path = (*path, part)
    if details["type"] == "missing" and path[-1:] != details["loc"][-1:]:
        path = (*path, details["loc"][-1])
    return path


def _required(document: ResolvedDocument, path: KeyPath) -> str:
    variable = document.left_out.get(path)
    return (
        f"required: set the environment variable {variable}"
        if variable
        else "required, but missing"
    )


def _unknown_key(key: str, model: type[BaseModel] | None) -> str:
    if model is not None and issubclass(model, TemplateSettings) and key in model.gone:
        return f"'{key}' is no setting any more: {model.gone[key]}"
    known = list(model.model_fields) if model else []
    hint = did_you_mean(key, known) or f"; the keys here are {', '.join(known)}"
    return f"unknown key '{key}'{hint if known else ''}"


def _sentence(
    errors: Sequence[ErrorDetails],
    field: FieldInfo | None,
    document: ResolvedDocument,
    path: KeyPath,
) -> str:
    expected = list(dict.fromkeys(filter(None, (_expected(each, field) for each in errors))))
    if not expected:
        return document.redact(path, _own_words(errors[0]))
    value = errors[0]["input"]
    wanted = " or ".join(expected)
    if wanted == "text" and isinstance(value, (int, float)):
        # It may be a key that is all digits, so it is not shown.
        kind = "true or false" if isinstance(value, bool) else "a number"
        return f"expected text, got {kind}; put it in quotes"
    hint = ""
    if isinstance(value, str) and path not in document.variables:
        hint = did_you_mean(value, re.findall(r"'([^']+)'", wanted))
    return f"expected {wanted}, got {_got(value, document, path)}{hint}"


def _expected(details: ErrorDetails, field: FieldInfo | None) -> str | None:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _OUT_OF_BOUNDS:
        whole = field is not None and int in _parts(field.annotation)
        return f"a {'whole ' if whole else ''}number{_bounds(field)}"
    if kind in ("literal_error", "enum"):
        return str(context["expected"])
    if kind in ("string_too_short", "too_short") and context["min_length"] == 1:
        return "text that is not empty" if kind == "string_too_short" else "at least one"
    expected = _EXPECTED.get(kind)
    return expected + _bounds(field) if expected and "number" in expected else expected


def _own_words(details: ErrorDetails) -> str:
    raised = details.get("ctx", {}).get("error")
    if raised is not None:
        return str(raised)
    message = details["msg"]
    return message[:1].lower() + message[1:]


def _got(value: Any, document: ResolvedDocument, path: KeyPath) -> str:
    if path in document.variables:
        return f"the value of {document.shown(path, value)}"
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return document.shown(path, value)
        case []:
            return "none"
        case list():
            return "a list"
    return "a mapping"


# --------------------------------------------------------------------------------------------------
# What a model says of its fields
# --------------------------------------------------------------------------------------------------


def _field_at(model: type[BaseModel], path: KeyPath, branches: KeyPath) -> FieldInfo | None:
    names = [part for part in path if isinstance(part, str)]
    owner = _model_at(model, tuple(names[:-1]), branches)
    return owner.model_fields.get(names[-1]) if owner and names else None


def _model_at(model: type[BaseModel], path: KeyPath, branches: KeyPath) -> type[BaseModel] | None:
    """The model at `path`; of several, the one that pydantic's own path, `branches`, names."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, str) and current is not None:
            field = current.model_fields.get(part)
            found = [each for each in _parts(field.annotation) if _is_model(each)] if field else []
            named = [each for each in found if each.__name__ in branches]
            current = next(iter(named or found), None)
    return current


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _parts(annotation: Any) -> list[Any]:
    """`annotation` and what is in it: members of unions, items of lists, constraints."""
    inner = annotation.metadata if isinstance(annotation, FieldInfo) else get_args(annotation)
    return [annotation, *(part for each in inner for part in _parts(each))]


def _bounds(field: FieldInfo | None) -> str:
    """Such as ` from 1 to 65535`, from what the field says of its numbers."""
    if field is None:
        return ""
    constraints = [*field.metadata, *_parts(field.annotation)]
    bounds = {
        type(each): getattr(each, _BOUND_NAMES[type(each)])
        for each in constraints
        if type(each) in _BOUND_NAMES
    }
    if Ge in bounds and Le in bounds:
        return f" from {bounds[Ge]} to {bounds[Le]}"
    words = [f"{_BOUND_WORDS[kind]} {bound}" for kind, bound in bounds.items()]
    return f" {' and '.join(words)}" if words else ""
