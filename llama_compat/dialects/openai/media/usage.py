"""What the replies of these calls say that they have cost.

Tokens are `input_tokens` and `output_tokens`, of which some are sound or images. For models that
are paid by the duration there are `seconds` (openai.types.audio.transcription, 2026-11-23). Other
vendors' names for the same are read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, structs

from llama_compat.dialects.counts import count, members
from llama_compat.types import Units, Usage
from llama_compat.wire.json_fields import JSONFields, from_raw

_NOTHING = Units()


def parse_usage(usage: Any, units: Units = _NOTHING) -> Usage | None:
    """A vendor's `usage`, and the `units` that are known otherwise; None where there is neither."""
    usage = members(usage)
    read = members(usage.get("input_tokens_details") or usage.get("input_token_details"))
    made = members(usage.get("output_tokens_details"))
    told = {
        "searches": amount(usage.get("search_units")),
        "seconds": amount(usage.get("seconds")),
        "audio_tokens": count(read.get("audio_tokens")),
        "image_tokens": count(read.get("image_tokens")),
        "drawn_tokens": count(made.get("image_tokens")),
    }
    units = structs.replace(
        units, **{name: value for name, value in told.items() if value is not None}
    )
    completion = _first(usage, "output_tokens", "completion_tokens") or 0
    prompt = _first(usage, "input_tokens", "prompt_tokens")
    if prompt is None:
        prompt = max(0, (count(usage.get("total_tokens")) or 0) - completion)
    if units == _NOTHING:
        return Usage(prompt, completion) if prompt or completion else None
    return Usage(prompt, completion, units=units)


def reply_usage(kind: str, fields: JSONFields) -> Usage | None:
    """What a whole reply to a request of this `kind` says; None where it says nothing."""
    usage = _member(fields, "usage")
    if kind == "image":
        return image_usage(usage, _length(fields.get("data")))
    seconds = amount(_member(fields, "duration")) if kind == "transcription" else None
    return parse_usage(usage, Units(seconds=seconds))


def _member(fields: JSONFields, name: str) -> Any:
    return from_raw(fields[name]) if name in fields else None


def _length(raw: Raw | None) -> int:
    """How many things there are in an array of large ones."""
    try:
        return 0 if raw is None else len(_things.decode(raw))
    except msgspec.MsgspecError:
        return 0


_things = msgspec.json.Decoder(list[Raw])


def image_usage(usage: Any, images: int) -> Usage | None:
    """That of so many images. What is made then are images, unless more is told."""
    drawn = count(members(usage).get("output_tokens"))
    return parse_usage(usage, Units(images=images or None, drawn_tokens=drawn))


def amount(value: Any) -> float | None:
    """A number of seconds or the like, which may come as text; None for what is none."""
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MANY and math.isfinite(value) else None


_MANY = 1e12
"""No reply has so many seconds or searches."""


def _first(usage: Mapping[str, Any], *names: str) -> int | None:
    return next((known for each in names if (known := count(usage.get(each))) is not None), None)
