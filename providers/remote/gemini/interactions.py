"""Google's Interactions API: relayed for its own clients, and asked in the vocabulary.

Relayed interactions keep their bytes. Of the request only the name of the model, or of the agent,
is replaced; and steps are left out that Google has not said: thoughts that it has not sealed, and
would refuse, and calls of tools that this server has run.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec import Raw

from llama_compat.dialects import gemini, gemini_interactions
from llama_compat.dialects.counts import members
from llama_compat.dialects.gemini.grounding import paid_searches
from llama_compat.dialects.gemini_interactions.errors import DIALECT
from llama_compat.dialects.gemini_interactions.events import encode_event, interaction_events
from llama_compat.dialects.gemini_interactions.hosted import (
    OWN_IDS,
    SEARCH_CALL,
    is_own,
    queries_in,
)
from llama_compat.dialects.gemini_interactions.replies import LAST_STATUSES
from llama_compat.dialects.gemini_interactions.usage import parse_usage
from llama_compat.dialects.seals import OF_A_CALL
from llama_compat.exchange import Call, Reply, Target
from llama_compat.types import ChatCompletionRequest, StreamEvent, Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    parse_object,
    parse_objects,
    to_raw,
)
from providers.remote.relaying.json_objects import encode, read_reply
from providers.remote.relaying.native import speaking, whole_reply
from providers.remote.relaying.server_sent import (
    NamedEventsStream,
    part_says_something,
    plain_events,
)
from providers.remote.relaying.streams import stream_reply, with_searches
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import Below, Upstream
from providers.remote.upstream.vendor_errors import makes_no_sense

WIRE = "interactions"
"""The name of the operation."""

PATH = "/interactions"

_HEADERS = {"api-revision": gemini_interactions.REVISION}

_NULL = Raw(b"null")

_REQUIRED = ("status",)
"""What every interaction has."""


# In the vocabulary --------------------------------------------------------------------------------


def chat(
    provider: str, upstream: Upstream, request: ChatCompletionRequest
) -> AsyncGenerator[StreamEvent, None]:
    """Say the next message of a conversation.

    Raises (from the generator):
        APIError: whatever went wrong with the vendor.
    """
    body = encode(gemini_interactions.render_request(request))
    exchange = upstream.post(PATH, body, headers=_HEADERS, request_id=request.request_id)
    parse, parser = gemini_interactions.parse_reply, gemini_interactions.StreamParser()
    return read_reply(provider, exchange, parse, parser, stream=request.stream, required=_REQUIRED)


# Relayed ------------------------------------------------------------------------------------------


async def relay(provider: str, upstream: Upstream | Below, call: Call, target: Target) -> Reply:
    """Pass a call on to Google, and its reply back.

    Raises:
        APIError: whatever went wrong with Google.
    """
    body = encode_fields(_vendor_fields(call, target.model.removeprefix("models/")))
    headers = {**_HEADERS, **call.headers}
    exchange = upstream.post(PATH, body, headers=headers, request_id=call.request_id)
    exchange = speaking(DIALECT, exchange)
    if not call.stream:
        return await whole_reply(exchange, lambda answer: _checked(provider, answer))
    return await stream_reply(provider, exchange, InteractionStream(provider))


async def kept_reply(provider: str, upstream: Upstream, reply_id: str, *, cancel: bool) -> Reply:
    """An interaction that Google makes in the background, as it is now; with `cancel`, it is to end
    first.

    Raises:
        APIError: whatever went wrong with Google.
    """
    path = f"{PATH}/{quote(reply_id, safe='')}"
    exchange = (
        upstream.post(f"{path}/cancel", b"", headers=_HEADERS)
        if cancel
        else upstream.get(path, headers=_HEADERS)
    )
    exchange = speaking(DIALECT, exchange)
    return await whole_reply(exchange, lambda answer: _checked(provider, answer))


def _vendor_fields(call: Call, model: str) -> JSONFields:
    fields = dict(call.fields)
    fields["model" if "model" in fields else "agent"] = to_raw(model)
    with suppress(ValueError):  # Google says better what is wrong with them.
        fields["input"] = without_foreign_steps(fields["input"])
    return fields


_FOREIGN = re.compile(rb'"thought"|"%b' % OWN_IDS.encode())
"""One of these is where a step may be another's."""


def without_foreign_steps(input: Raw) -> Raw:
    """The `input` of a request without the thoughts that others had, and the tools that this server
    has run; all else keeps its bytes. A seal that generateContent has on a call is a thought's
    here.

    Raises:
        ValueError: it is no list of objects.
    """
    if not _FOREIGN.search(bytes(input)) or not bytes(input).lstrip().startswith(b"["):
        return input
    steps = parse_objects(input)
    kept = [fitted for step in steps if (fitted := _fitted(step)) is not None]
    return input if all(map(_same, kept, steps)) and len(kept) == len(steps) else to_raw(kept)


_IDS = {"id", "call_id"}


def _same(new: JSONFields, old: JSONFields) -> bool:
    return new is old


def _fitted(step: JSONFields) -> JSONFields | None:
    if _text(step.get("type")) != "thought":
        return None if is_own({name: from_raw(step[name]) for name in _IDS & step.keys()}) else step
    thought = gemini.parse_seal("", _text(step.get("signature")) or None)
    if thought.sealed_by == gemini.FAMILY:
        return step
    if thought.sealed_by != OF_A_CALL:
        return None
    seal, _, _ = (thought.signature or "").partition(" ")
    return {**step, "signature": to_raw(seal)}


def _checked(provider: str, body: bytes) -> tuple[bytes, Usage | None]:
    return body, _usage(reply_fields(provider, body, _REQUIRED))


def _usage(interaction: Mapping[str, Raw]) -> Usage | None:
    return parse_usage(from_raw(interaction["usage"])) if "usage" in interaction else None


_WITH_CONTENT = ("step.start", "step.delta")
"""The events that may say something."""


class InteractionStream(NamedEventsStream):
    """The stream of an interaction; what the client gets of it are the same events.

    Its last event is `interaction.completed`. It may end with a status after which nothing comes,
    and may come to such a one before that event.
    """

    plain = plain_events(rb"step\.(?:delta|start|stop)")
    search = b'"%b"' % SEARCH_CALL.encode()

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._has_last_status = False
        self._model: Any = None
        self._searched: set[str] = set()

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted at the end; and what it has searched for."""
        return with_searches(self._usage, paid_searches(self._searched, self._model))

    @property
    def complete(self) -> bool:
        """Whether all of the interaction has come."""
        return self.ended or self._has_last_status

    def whole(self, body: bytes) -> bytes:
        """A whole interaction, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        fields = reply_fields(self._provider, body, _REQUIRED)
        self._usage = _usage(fields)
        interaction: dict[str, Any] = {name: from_raw(raw) for name, raw in fields.items()}
        try:
            events = list(interaction_events(interaction))
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        self.ended = self.spoken = True
        return b"".join(encode_event(event.pop("event_type"), event) for event in events)

    def relay_members(self, event: sse.Event, data: bytes, fields: JSONFields) -> bytes:
        """What the client gets for an event whose data has these members."""
        kind = _text(fields.get("event_type")) or event.name.decode(errors="replace")
        if kind == "interaction.completed":
            self._complete(fields)
        elif kind == "interaction.created":
            self._model = members(from_raw(fields.get("interaction", _NULL))).get("model")
        elif self.search in data:
            for name in ("step", "delta"):
                step = members(from_raw(fields.get(name, _NULL)))
                self._searched.update(queries_in(step))
        elif kind == "interaction.status_update":
            self._has_last_status = _text(fields.get("status")) in LAST_STATUSES
        self.spoken = (
            self.spoken
            or self.complete
            or (kind in _WITH_CONTENT and part_says_something(fields, "step", "delta"))
        )
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _in_one_line(data))

    def _complete(self, fields: JSONFields) -> None:
        try:
            interaction = parse_object(fields.get("interaction", _NULL))
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        self._usage = _usage(interaction) or self._usage
        self.ended = True


def _in_one_line(data: bytes) -> bytes:
    return data.replace(b"\n", b" ") if b"\n" in data else data


def _text(raw: Raw | None) -> str:
    value = from_raw(raw) if raw is not None else None
    return value if isinstance(value, str) else ""
