"""A call that is relayed, as its target's model takes it (`llama_compat.fitting.fit`).

Members that nothing has to be done about keep the bytes that the client sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from llama_compat.dialects.base import Operation
from llama_compat.exchange import Call
from llama_compat.fitting.fit import (
    GO_ON,
    INSTRUCTIONS,
    PREFILL,
    Fit,
    Fitted,
    ends_with_reply,
    features,
    fit_members,
    member_at,
    set_member,
)
from llama_compat.types import ThinkingForm
from llama_compat.wire.json_depth import too_deep
from llama_compat.wire.json_fields import JSONFields, from_raw, to_raw

_JSON = frozenset({"json_schema", "json_object"})


class FittedFields(Struct, frozen=True):
    """The members to relay.

    Attributes:
        fields: they.
        adapted, dropped: as in `llama_compat.exchange.Reply`.
    """

    fields: Mapping[str, Raw]
    adapted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def fit_fields(fit: Fit, call: Call) -> FittedFields | None:
    """The members of `call` as the model takes them; what it refuses besides is left for its vendor
    to say.

    Returns:
        None for a call whose reply has to be rendered anew, so that it has to be translated.
    """
    operation = call.operation
    if operation.kind not in ("chat", "completion") or too_deep(call.fields) is not None:
        return FittedFields(call.fields)
    body: dict[str, Any] = {name: from_raw(raw) for name, raw in call.fields.items()}
    asked = operation.parameters(body)
    wanted = features(body, asked)
    if fit.facts.structured_output is False and "json_schema" in wanted:
        return None
    if fit.facts.json_beside_tools is False and "tools" in wanted and wanted & _JSON:
        return None
    fitted = fit_members(fit, body, asked, lenient=True, effort=operation.effort)
    touched = {_member(entry, body) for entry in (*fitted.adapted, *fitted.dropped)}
    touched |= _unstated(fit, body, operation, fitted)
    touched |= _fit_effort(fit, body, operation, asked, fitted)
    if operation.name == "chat":
        touched |= _fit_names(fit, body, fitted)
        touched |= _fit_roles(fit, body, fitted)
        touched |= _fit_prefill(fit, body, fitted)
    fields: JSONFields = {}
    for name, raw in call.fields.items():
        if name in body:
            fields[name] = to_raw(body[name]) if name in touched else raw
    fields |= {name: to_raw(body[name]) for name in body if name not in call.fields}
    return FittedFields(fields, tuple(fitted.adapted), tuple(fitted.dropped))


def _member(entry: str, body: Mapping[str, Any]) -> str:
    """The member of the request that an entry such as `a.b=1` is about."""
    path = entry.partition("=")[0]
    return path if path in body else path.partition(".")[0]


def _unstated(fit: Fit, body: dict[str, Any], operation: Operation, fitted: Fitted) -> set[str]:
    """Leave out what asks for nothing, but is refused all the same: an empty list, a penalty of 0.
    It is not among what is asked, and OpenAI's APIs alone have it there."""
    if operation.dialect.name != "openai":
        return set()
    refused = (fit.refused - fit.unthinking) & body.keys()
    names = {name for name in refused if not body[name]}
    for name in names:
        del body[name]
        fitted.adapted.append(name)
    return names


def _fit_effort(
    fit: Fit, body: dict[str, Any], operation: Operation, asked: Mapping[str, str], fitted: Fitted
) -> set[str]:
    if operation.say_effort is not None and operation.effort is not None:
        wanted = operation.effort(body)
        if wanted is None:
            return set()
        effort = fit.effort(wanted)
        changed = set(operation.say_effort(body, effort, fit.form or ThinkingForm()))
        fitted.adapted += [f"{name}={effort}" for name in sorted(changed)]
        return changed
    for path, name in asked.items():
        if name != "reasoning_effort" or path in fitted.dropped or path in fitted.adapted:
            continue
        value = member_at(body, path)
        if isinstance(value, str) and (effort := fit.effort(value)) != value:
            set_member(body, path, effort)
            fitted.adapted.append(f"{path}={effort}")
            return {path.partition(".")[0]}
    return set()


def _fit_names(fit: Fit, body: dict[str, Any], fitted: Fitted) -> set[str]:
    changed = set()
    for name, known in (fit.facts.renamed or {}).items():
        if name in body and known not in body:
            body[known] = body.pop(name)
            fitted.adapted.append(f"{name}={known}")
            changed |= {name, known}
    return changed


def _fit_roles(fit: Fit, body: dict[str, Any], fitted: Fitted) -> set[str]:
    role, messages = fit.facts.instructions, body.get("messages")
    if role is None or not isinstance(messages, list):
        return set()
    others = [
        each
        for each in messages
        if isinstance(each, dict) and each.get("role") in INSTRUCTIONS and each["role"] != role
    ]
    for each in others:
        each["role"] = role
    if not others:
        return set()
    fitted.adapted.append(f"messages.role={role}")
    return {"messages"}


def _fit_prefill(fit: Fit, body: dict[str, Any], fitted: Fitted) -> set[str]:
    messages = body.get("messages")
    if fit.facts.prefill is not False or not isinstance(messages, list):
        return set()
    if not ends_with_reply(_turn(each) for each in messages if isinstance(each, dict)):
        return set()
    messages.append({"role": "user", "content": GO_ON})
    fitted.adapted.append(PREFILL)
    return {"messages"}


def _turn(message: Mapping[str, Any]) -> tuple[str, bool]:
    role, content = message.get("role"), message.get("content")
    says = bool(content.strip() if isinstance(content, str) else content)
    return str(role), says or role != "assistant"
