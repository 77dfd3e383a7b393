"""Anthropic's API as a way in: its calls, and what is looked at before one goes anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_compat.dialects.anthropic_messages.errors import (
    DIALECT,
    render_error,
    render_stream_error,
    status,
)
from llama_compat.dialects.anthropic_messages.events import PING
from llama_compat.dialects.anthropic_messages.input.call import parse_request, parse_token_count
from llama_compat.dialects.anthropic_messages.input.files import FILES
from llama_compat.dialects.anthropic_messages.input.parameters import (
    TOLD_HINTS,
    effort_in,
    parameters_asked,
    say_effort,
    usual_parameters,
)
from llama_compat.dialects.anthropic_messages.input.turns import REPLIES, TURNS
from llama_compat.dialects.anthropic_messages.rate_limits import rate_limit_headers
from llama_compat.dialects.anthropic_messages.rendering import withheld
from llama_compat.dialects.base import Asked, Dialect, Operation
from llama_compat.dialects.members import optional_flag_in, optional_integer_in
from llama_compat.dialects.openai.operations import required_model
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.extent import NOTHING, Extent, Prompt, largest
from llama_compat.wire.json_fields import JSONFields, from_raw

ANTHROPIC = Dialect(
    name=DIALECT,
    render_error=render_error,
    render_stream_error=render_stream_error,
    status=status,
    reply_headers=lambda request_id: {"request-id": request_id},
    keep_alive=PING,
    keep_alive_seconds=15.0,
    forwarded_headers=frozenset({"anthropic-version", "anthropic-beta"}),
    rate_limit_headers=rate_limit_headers,
)

_LOOKED_AT = ("stream", "max_tokens")


@dataclass(frozen=True, slots=True)
class _Look:
    """The look at a request of one call.

    Attributes:
        needs_limit: whether `max_tokens` has to be there, as something is generated.
    """

    needs_limit: bool

    def __call__(self, fields: JSONFields, path: Mapping[str, str]) -> Asked:
        model = required_model(fields)
        # Not decoded, as they may be all of a large request.
        begin = bytes(memoryview(fields["messages"])[:4]) if "messages" in fields else b"null"
        if begin == b"null":
            raise missing_parameter("messages")
        if not begin.startswith(b"["):
            raise invalid_parameter(
                "messages", "'messages' must be an array of messages.", "invalid_type"
            )
        given = {name: from_raw(fields[name]) for name in _LOOKED_AT if name in fields}
        # 0 only fills a cache, which is for the vendor to do.
        max_tokens = optional_integer_in(given, "max_tokens", "", 0)
        if max_tokens is None and self.needs_limit:
            raise missing_parameter("max_tokens")
        extent = NOTHING
        if self.needs_limit:
            read = Prompt(fields, "tools", "system", "messages")
            extent = Extent(read, max_tokens=largest(max_tokens))
        return Asked(model, optional_flag_in(given, "stream", "") or False, extent)


MESSAGES = Operation(
    dialect=ANTHROPIC,
    name="messages",
    kind="chat",
    look=_Look(needs_limit=True),
    parameters=parameters_asked,
    usual=usual_parameters,
    hints=lambda body: TOLD_HINTS,
    stop_members=frozenset({"stop_sequences"}),
    parse=parse_request,
    effort=effort_in,
    say_effort=say_effort,
    turns=TURNS,
    withheld=withheld,
    replies=REPLIES,
    files=FILES,
)
COUNT_TOKENS = Operation(
    dialect=ANTHROPIC,
    name="count_tokens",
    kind="token_count",
    look=_Look(needs_limit=False),
    parse=parse_token_count,
    files=FILES,
)
