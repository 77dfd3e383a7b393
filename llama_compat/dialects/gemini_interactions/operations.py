"""The Interactions API as a way in: its call, and the look at a request before it goes anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from llama_compat.dialects.base import Asked, Dialect, Operation
from llama_compat.dialects.gemini_interactions.call import HINTS, parameters, parse_request
from llama_compat.dialects.gemini_interactions.errors import (
    DIALECT,
    render_error,
    render_stream_error,
)
from llama_compat.dialects.gemini_interactions.events import DONE
from llama_compat.dialects.gemini_interactions.generation import CONFIG, parse_max_tokens
from llama_compat.dialects.gemini_interactions.replies import REPLIES
from llama_compat.dialects.gemini_interactions.streams import withheld
from llama_compat.dialects.openai.operations import required_model
from llama_compat.dialects.openai.parameters import CHECKS, Check, check_parameters
from llama_compat.extent import Extent, Prompt
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, from_raw

INTERACTIONS_API = Dialect(
    name=DIALECT,
    render_error=render_error,
    render_stream_error=render_stream_error,
    stream_end=DONE,
    keep_alive=sse.encode_comment(b" keepalive"),
    forwarded_headers=frozenset({"api-revision"}),
    counts_bytes=True,
)

_CHECKS: dict[str, Check] = {
    "stream": CHECKS["stream"],
    "store": CHECKS["stream"],
    "background": CHECKS["stream"],
    "previous_interaction_id": CHECKS["user"],
}


def _look(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    checked = check_parameters(fields, _CHECKS)
    config = from_raw(fields[CONFIG]) if CONFIG in fields else None
    # An agent is asked for as a model is, so that it can be routed to whoever has it.
    agent = "agent" in fields and "model" not in fields
    model = required_model({"model": fields["agent"]} if agent else fields)
    extent = Extent(
        Prompt(fields, "tools", "system_instruction", "input"),
        # What holds no number is for whoever answers to refuse.
        max_tokens=parse_max_tokens(config) if isinstance(config, dict) else None,
    )
    return Asked(model, checked.get("stream", False), extent)


_NO = (None, Raw(b"null"), Raw(b"false"))


def _lasts(fields: Mapping[str, Raw]) -> bool:
    # An agent has a place of its own where it works, in the background mostly.
    return fields.get("background") not in _NO or "agent" in fields


INTERACTIONS = Operation(
    dialect=INTERACTIONS_API,
    name="interactions",
    kind="chat",
    shows_images=True,
    look=_look,
    parameters=parameters,
    hints=lambda body: HINTS,
    stop_members=frozenset({CONFIG}),
    parse=parse_request,
    withheld=withheld,
    replies=REPLIES,
    lasts=_lasts,
)
