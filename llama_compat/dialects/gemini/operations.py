"""Gemini's API as a way in: its calls, and what is looked at before one of them goes anywhere.

The model and whether a stream is wanted stand in the path, and in its query how the stream is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from llama_compat.dialects.base import UNKNOWN, Asked, Dialect, Operation, stream_headers
from llama_compat.dialects.gemini.embeddings import (
    batch_asked,
    embed_asked,
    parse_batch_request,
    parse_embed_request,
)
from llama_compat.dialects.gemini.errors import render_error
from llama_compat.dialects.gemini.frames import ArrayFrame, EventFrame, Frame
from llama_compat.dialects.gemini.input.call import parse_count, parse_generate
from llama_compat.dialects.gemini.input.generation_config import (
    CONFIG,
    config_asked,
    config_hints,
    effort_in,
    parse_candidate_count,
    parse_max_tokens,
    say_effort,
)
from llama_compat.dialects.gemini.input.tools import tools_asked
from llama_compat.dialects.gemini.input.turns import REPLIES, TURNS
from llama_compat.dialects.gemini.members import spelling, spellings, the_member
from llama_compat.dialects.gemini.responses import withheld
from llama_compat.dialects.gemini.seals import FAMILY
from llama_compat.extent import NOTHING, Extent, Prompt
from llama_compat.wire.json_fields import JSONFields, from_raw

GEMINI = Dialect(
    name=FAMILY,
    render_error=render_error,
    render_stream_error=lambda error, request_id: EventFrame().fail(error),
    # Google's own client takes a comment for a response, but not a blank line.
    keep_alive=b"\r\n",
    counts_bytes=True,
)

GEMINI_ARRAY = replace(
    GEMINI,
    render_error=lambda error, request_id: b"[%b]" % render_error(error, request_id),
    render_stream_error=lambda error, request_id: ArrayFrame().fail(error),
    stream_headers=stream_headers("application/json; charset=utf-8"),
    stream_end=ArrayFrame.END,
)
"""The same for a stream without `alt=sse`."""


def new_frame(operation: Operation) -> Frame:
    """The frame of a stream that answers `operation`."""
    return ArrayFrame() if operation.dialect is GEMINI_ARRAY else EventFrame()


# --------------------------------------------------------------------------------------------------
# The look
# --------------------------------------------------------------------------------------------------


_CONFIGS = spellings(CONFIG)


def _look(fields: JSONFields, path: Mapping[str, str], *, stream: bool = False) -> Asked:
    given = {name: from_raw(raw) for name, raw in fields.items() if name in _CONFIGS}
    config = the_member(given, CONFIG, CONFIG)
    # What holds no number is for whoever answers to refuse.
    config = config if isinstance(config, dict) else {}
    extent = Extent(
        _prompt(fields, "tools", "systemInstruction", "contents"),
        choices=parse_candidate_count(config),
        max_tokens=parse_max_tokens(config),
    )
    return Asked(path["model"], stream, extent)


def _look_at_count(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    return Asked(path["model"], extent=NOTHING)


def _look_at_embedding(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    return Asked(path["model"], extent=Extent(_prompt(fields, "content", "requests"), choices=0))


def _prompt(fields: JSONFields, *names: str) -> Prompt:
    return Prompt(fields, *(written for name in names for written in spellings(name)))


# --------------------------------------------------------------------------------------------------
# The parameters
# --------------------------------------------------------------------------------------------------

_ALWAYS_HONOURED = ("contents", "model", "systemInstruction")
_HINTS = ("safetySettings", "labels", "serviceTier", "store")
_HINT_NAMES = dict.fromkeys(_HINTS, UNKNOWN) | {"serviceTier": "service_tier"}
_LOOKED_INTO = (CONFIG, "tools", "toolConfig")


def _parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    known = {spelling(body, name) for name in (*_ALWAYS_HONOURED, *_HINTS, *_LOOKED_INTO)}
    others = {name: name for name, value in body.items() if value and name not in known}
    return {**others, **tools_asked(body), **config_asked(body)}


def _hints(body: Mapping[str, Any]) -> Mapping[str, str]:
    names = {spelling(body, name): known for name, known in _HINT_NAMES.items()}
    return {**names, **config_hints(body)}


# --------------------------------------------------------------------------------------------------
# The calls
# --------------------------------------------------------------------------------------------------

GENERATE = Operation(
    dialect=GEMINI,
    name="gemini_generate",
    shows_images=True,
    kind="chat",
    look=_look,
    parameters=_parameters,
    hints=_hints,
    stop_members=frozenset(_CONFIGS),
    parse=parse_generate,
    effort=effort_in,
    say_effort=say_effort,
    turns=TURNS,
    replies=REPLIES,
)
STREAM_EVENTS = replace(
    GENERATE,
    look=partial(_look, stream=True),
    parse=partial(parse_generate, stream=True),
    withheld=withheld,
)
STREAM_ARRAY = replace(
    STREAM_EVENTS,
    dialect=GEMINI_ARRAY,
    parse=partial(parse_generate, stream=True, new_frame=ArrayFrame),
    withheld=None,
)
COUNT_TOKENS = Operation(
    dialect=GEMINI,
    name="gemini_count_tokens",
    kind="token_count",
    look=_look_at_count,
    parse=parse_count,
)
EMBED = Operation(
    dialect=GEMINI,
    name="gemini_embed",
    kind="embedding",
    look=_look_at_embedding,
    parameters=embed_asked,
    parse=parse_embed_request,
)
BATCH_EMBED = Operation(
    dialect=GEMINI,
    name="gemini_batch_embed",
    kind="embedding",
    look=_look_at_embedding,
    parameters=batch_asked,
    parse=parse_batch_request,
)
