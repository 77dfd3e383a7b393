"""A client's OpenAI request as a vendor wants it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Raw

from llama_compat.dialects.openai.parameters import HINTS, is_neutral
from llama_compat.errors import unsupported_parameter
from llama_compat.exchange import Call, Target
from llama_compat.fitting.fit import WISHES
from llama_compat.wire.json_fields import JSONFields, from_raw, to_raw
from providers.remote.openai.vendor import Vendor


def vendor_fields(
    call: Call, target: Target, vendor: Vendor, provider: str, *, unsupported: str | None
) -> tuple[JSONFields, tuple[str, ...]]:
    """The members to send: the client's, with the vendor's name for the model.

    Args:
        call, target: what to ask, and of which model.
        vendor: what it refuses, and what it calls otherwise.
        provider: the provider's id, for messages.
        unsupported: what the template says to do with what the vendor can't honour: `drop` it, or
            `adapt` to it, which drops mere wishes; otherwise the request is refused. Hints are
            dropped unless it says `refuse`.

    Returns:
        The members, and the names of those left out although they ask for something.

    Raises:
        APIError: 400 `unsupported_parameter`.
    """
    fields = {**call.fields, "model": model_json(vendor_model(target.model, vendor))}
    if not vendor.knows_stream_options:
        fields.pop("stream_options", None)
    elif call.stream and call.counts_usage:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
    if vendor.refused.isdisjoint(fields) and vendor.renamed.keys().isdisjoint(fields):
        return fields, ()
    left_out = list(vendor.refused & fields.keys())
    if call.operation.name == "chat" and not vendor.renamed.keys().isdisjoint(fields):
        left_out += [
            name for name, known in vendor.renamed.items() if name in fields and known in fields
        ]
    dropped = tuple(name for name in left_out if _asks_for_something(name, fields[name]))
    if dropped and unsupported != "drop":
        passed_over = _PASSED_OVER.get(unsupported, frozenset())
        missed = [name for name in dropped if name not in passed_over]
        if missed:
            raise unsupported_parameter(missed[0], provider)
    for name in left_out:
        del fields[name]
    if call.operation.name == "chat" and not vendor.renamed.keys().isdisjoint(fields):
        fields = {vendor.renamed.get(name, name): value for name, value in fields.items()}
    return fields, dropped


_NEUTRAL: Mapping[str, Any] = {
    "n": 1,
    "metadata": {},
    "parallel_tool_calls": True,
    "service_tier": "auto",
}
"""What asks for nothing in fields of which translated calls have no need to know that."""

_PASSED_OVER: Mapping[str | None, frozenset[str]] = {None: HINTS, "adapt": HINTS | WISHES}
"""What is left out all the same, by `unsupported`: a hint asks for nothing that a client would
miss. A call that is translated brings none."""


def _with_usage(options: Raw | None) -> Raw:
    given = from_raw(options) if options is not None else None
    return to_raw({**(given if isinstance(given, dict) else {}), "include_usage": True})


def vendor_model(model: str, vendor: Vendor) -> str:
    """`model` with the prefix that the vendor's ids have."""
    return model if "/" in model else vendor.model_prefix + model


@lru_cache(maxsize=1024)
def model_json(model: str) -> Raw:
    """A model's name as JSON; every request and reply has one of a few."""
    return to_raw(model)


def wants_base64(fields: Mapping[str, Raw]) -> bool:
    """Whether the embeddings are to be base64 rather than numbers."""
    return "encoding_format" in fields and from_raw(fields["encoding_format"]) == "base64"


def _asks_for_something(name: str, raw: Raw) -> bool:
    value = from_raw(raw)
    neutral = _NEUTRAL.get(name)
    if value is None or (type(value) is type(neutral) and value == neutral):
        return False
    return not is_neutral(name, value)
