"""Anthropic's Messages API relayed as it came, for every vendor that speaks it.

The model's name is replaced, in the request and back in the reply, and thinking blocks that are
marked as ours are left out of the request; nothing else is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Raw

from llama_compat.dialects.anthropic_messages.errors import DIALECT, threads_unsupported
from llama_compat.dialects.anthropic_messages.events import encode_event, message_events
from llama_compat.dialects.anthropic_messages.hosted_blocks import SEARCH_RESULT, has_found
from llama_compat.dialects.anthropic_messages.input.cache_marks import with_cache_marks
from llama_compat.dialects.anthropic_messages.seals import without_marked
from llama_compat.dialects.anthropic_messages.usage import Counts
from llama_compat.dialects.anthropic_messages.versions import VERSION
from llama_compat.dialects.counts import members
from llama_compat.errors import APIError
from llama_compat.exchange import JSON_HEADERS, VENDORS_ID_HEADER, Call, Reply
from llama_compat.off_loop import off_loop
from llama_compat.types import Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    parse_fields,
    parse_object,
    to_raw,
)
from llama_compat.wire.malformed import MALFORMED
from providers.remote.relaying.server_sent import (
    NamedEventsStream,
    part_says_something,
    plain_events,
)
from providers.remote.relaying.streams import stream_reply, with_searches
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import UpstreamExchange
from providers.remote.upstream.vendor_errors import (
    makes_no_sense,
    relayed_headers,
    says_error_in,
)

Post = Callable[[bytes, Mapping[str, str]], UpstreamExchange]
"""Sends a body with these headers to where the call's wire is."""

_NULL = Raw(b"null")

_REQUIRED = {"messages": "content", "count_tokens": "input_tokens"}
"""What the whole reply to each call has."""


async def relay_messages(
    provider: str,
    call: Call,
    model: str,
    post: Post,
    *,
    marks: bool = False,
    has_threads: bool = False,
) -> Reply:
    """Pass a call of `messages` or `count_tokens` on, and its reply back.

    Args:
        provider: the provider's id, for messages.
        call: what to pass on.
        model: what the vendor calls the model.
        post: where to.
        marks: whether the prompt is marked for the vendor's cache, where the client has not.
        has_threads: whether the vendor keeps conversations (`thread`). Others would pass the word
            over, and later be sent what is new of a conversation alone.

    Raises:
        APIError: 400 for a thread that nobody keeps; whatever went wrong with the vendor, in its
            own words where they are Anthropic's.
    """
    if not has_threads and bytes(call.fields.get("thread", b"null")) != b"null":
        raise threads_unsupported()
    headers = {"anthropic-version": VERSION, **call.headers}
    fields = _vendor_fields(call, model)
    if marks and call.operation.name == "messages":
        fields = await off_loop(call.size, with_cache_marks, fields)
    exchange = post(encode_fields(fields), headers)
    try:
        if call.stream and call.operation.name == "messages":
            stream = MessagesStream(provider, to_raw(call.model))
            return await stream_reply(provider, exchange, stream, reply_headers=_reply_headers)
        return await _relay_whole(provider, call, exchange)
    except APIError as error:
        _keep_words(error)
        raise


def _vendor_fields(call: Call, model: str) -> JSONFields:
    fields = {**call.fields, "model": to_raw(model)}
    with suppress(ValueError):  # The vendor says better what is wrong with them.
        fields["messages"] = without_marked(fields["messages"])
    return fields


def _keep_words(error: APIError) -> None:
    """See to it that the client gets the vendor's own words where it understands them."""
    if error.vendor_body is None:
        return
    _, body = error.vendor_body
    if _is_anthropics(body):
        error.vendor_body = (DIALECT, body)
        error.headers.update(_own_id(error.headers))


def _is_anthropics(body: bytes) -> bool:
    try:
        fields = parse_fields(body)
    except ValueError:
        return False
    return bytes(fields.get("type", b"")) == b'"error"' and bytes(
        fields.get("error", b"")
    ).startswith(b"{")


def _reply_headers(headers: Mapping[str, str]) -> dict[str, str]:
    relayed = relayed_headers(headers)
    return relayed | _own_id(relayed)


def _own_id(headers: Mapping[str, str]) -> dict[str, str]:
    """What Anthropic calls the request, under its own name."""
    said = headers.get(VENDORS_ID_HEADER)
    return {} if said is None else {"request-id": said}


async def _relay_whole(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    async with exchange as response:
        body = await response.read()
        fields = reply_fields(provider, body, [_REQUIRED[call.operation.name]])
    if "model" in fields:
        fields["model"] = to_raw(call.model)
    return Reply(
        encode_fields(fields),
        headers={**_reply_headers(response.headers), **JSON_HEADERS},
        read_usage=lambda: _usage([fields.get("usage")]),
    )


def _usage(told: Sequence[Raw | None]) -> Usage | None:
    """What the vendor counted, in what it told one after another; None if that makes no sense."""
    counts = Counts()
    known = [members(from_raw(usage)) for usage in told if usage is not None]
    for usage in known:
        counts.update(usage)
    return counts.usage() if any(known) else None


class MessagesStream(NamedEventsStream):
    """The stream of a message.

    Only events that are not about a block are looked into. What comes before `message_start` is
    left out, for the client's headers wait for that event.

    Args:
        provider: its id, for messages.
        model: the model id that the client asked for, in JSON.
    """

    plain = plain_events(rb"content_block_(?:delta|start|stop)")
    search = b'"%b"' % SEARCH_RESULT.encode()

    def __init__(self, provider: str, model: Raw) -> None:
        super().__init__(provider)
        self._model = model
        self._usages: list[Raw | None] = [None, None]
        self._searches = 0

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted last, if it counted; and what it has searched for until then."""
        return with_searches(_usage(self._usages), self._searches)

    def whole(self, body: bytes) -> bytes:
        """A whole message, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        fields = reply_fields(self._provider, body, ["content"])
        fields["model"] = self._model
        self._usages[0] = fields.get("usage")
        try:
            events = b"".join(message_events(fields))
        except (*MALFORMED, ValueError) as error:
            raise makes_no_sense(self._provider, ValueError(f"no message: {error}")) from None
        self.ended = self.spoken = True
        return events

    def relay_members(self, event: sse.Event, data: bytes, fields: JSONFields) -> bytes:
        """What the client gets for an event whose data has these members; empty for a ping before
        the message begins."""
        kind = _kind(fields, event.name)
        if kind == "message_start":
            data = self._start(fields)
        elif not self.begun:
            if kind == "ping":
                return b""
            raise makes_no_sense(
                self._provider, ValueError(f"its stream begins with '{kind}', not 'message_start'")
            )
        elif kind == "content_block_start" and self.search in data:
            self._searches += has_found(members(from_raw(fields.get("content_block", _NULL))))
        elif kind == "message_delta":
            self._usages[1] = fields.get("usage")
        elif kind == "message_stop":
            self.ended = True
        if not self.spoken:
            says = part_says_something(fields, "content_block", "delta")
            self.spoken = kind == "message_delta" or self.ended or says
        return encode_event(kind, data)

    def _start(self, fields: JSONFields) -> bytes:
        try:
            message = parse_object(fields.get("message", _NULL))
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        self.begun = True
        self._usages[0] = message.get("usage")
        message["model"] = self._model
        return encode_fields({**fields, "message": to_raw(message)})

    def _members(
        self, data: bytes, name: bytes, is_error: Callable[[JSONFields], bool] = says_error_in
    ) -> JSONFields:
        try:
            return super()._members(data, name, is_error)
        except APIError as error:
            _keep_words(error)
            raise


def _kind(fields: JSONFields, name: bytes) -> str:
    kind = from_raw(fields["type"]) if "type" in fields else None
    return kind if isinstance(kind, str) and kind.isidentifier() else name.decode("latin-1")
