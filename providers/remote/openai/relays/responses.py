"""OpenAI's Responses API relayed as it came, for every vendor that speaks it.

The model's name is replaced, in the request and in every event that holds the response object; all
other events pass as the bytes that they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Raw

from llama_compat.dialects.counts import members
from llama_compat.dialects.openai_responses.errors import error_event, response_error
from llama_compat.dialects.openai_responses.input.relayed import (
    for_other_servers,
    without_thoughts,
)
from llama_compat.dialects.openai_responses.output.events import LAST_EVENTS, EventWriter
from llama_compat.dialects.openai_responses.output.response_object import (
    SEARCH_CALL,
    is_search,
    repeated,
    response_object,
    response_usage,
)
from llama_compat.dialects.openai_responses.output.whole import whole_as_events
from llama_compat.errors import APIError
from llama_compat.exchange import JSON_HEADERS, Call, Reply
from llama_compat.types import EARLIER_THOUGHTS, Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    encode_json,
    from_raw,
    parse_fields,
    parse_object,
    to_raw,
)
from providers.remote.relaying.held import HeldBytes
from providers.remote.relaying.streams import RelayedStream, stream_reply, with_searches
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import UpstreamExchange
from providers.remote.upstream.vendor_errors import error_in_stream, makes_no_sense, relayed_headers

_REQUIRED = {"responses": "output", "compact": "output", "input_tokens": "input_tokens"}
"""What the whole reply to each call has."""

_BEGINNING = frozenset({"response.created", "response.queued", "response.in_progress"})
_BEGINNING_OF_PART = frozenset(
    {
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_summary_part.added",
    }
)
_EMPTY_ITEMS = (b'"message"', b'"reasoning"')
"""The items that say nothing when they are added; the others have a name at least."""

_MARKERS = (b'"response"', b'"error"', b"[DONE]", b'"%b"' % SEARCH_CALL.encode())
"""What has none of these passes as it is."""

_SEARCHED = SEARCH_CALL.encode()

_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')


async def relay_responses(
    provider: str,
    call: Call,
    model: str,
    post: Callable[[bytes], UpstreamExchange],
    *,
    reads_thoughts: bool = True,
) -> Reply:
    """Pass a call of the Responses API on, and its reply back.

    Where the vendor can't unseal what was thought, as another one's model began the conversation,
    or one of another account, it is asked again without that.

    Args:
        provider: the provider's id, for messages.
        call: what to pass on.
        model: what the vendor calls the model.
        post: sends a body to where the call's wire is.
        reads_thoughts: whether the vendor takes thoughts that are in clear.

    Raises:
        APIError: whatever went wrong with the vendor.
    """
    fields = {**call.fields, "model": to_raw(model)}
    given = fields.get("input")
    if given is None:
        return await _relayed(provider, call, post(encode_fields(fields)))
    fields["input"] = told = for_other_servers(given, reads_thoughts=reads_thoughts)
    try:
        return await _relayed(provider, call, post(encode_fields(fields)))
    except APIError as error:
        fields["input"] = without_thoughts(told)
        if error.code != _UNVERIFIED or fields["input"] is told:
            raise
    reply = await _relayed(provider, call, post(encode_fields(fields)))
    reply.dropped = (*reply.dropped, EARLIER_THOUGHTS)
    return reply


_UNVERIFIED = "invalid_encrypted_content"
"""400 "The encrypted content for item rs_... could not be verified" (openai/codex#8119)."""


async def _relayed(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    if not call.stream:
        return await whole_response(provider, exchange, call.operation.name, call.model)
    stream = ResponseStream(provider, call.model)
    return await stream_reply(provider, exchange, stream, render_error=stream.render_error)


async def whole_response(provider: str, exchange: UpstreamExchange, wire: str, model: str) -> Reply:
    """The whole reply to the call `wire`, naming `model` where it names one.

    Raises:
        APIError: whatever went wrong with the vendor.
    """
    async with exchange as response:
        whole = whole_fields(provider, await response.read(), _REQUIRED[wire], model)
    return Reply(
        encode_fields(whole),
        headers={**relayed_headers(response.headers), **JSON_HEADERS},
        read_usage=lambda: _usage(whole),
    )


def whole_fields(provider: str, body: bytes, required: str, model: str) -> JSONFields:
    """The members of a whole reply, naming `model` where it names one.

    Raises:
        APIError: 502, it is no such reply, or an error in spite of its status.
    """
    # A failed response has an `error` too, but an output beside it.
    fields = reply_fields(provider, body, [required], may_have_failed=True)
    if "model" in fields:
        fields["model"] = to_raw(model)
    return fields


def _usage(fields: JSONFields) -> Usage | None:
    told = {"usage": fields["usage"]} if "usage" in fields else {}
    if "output" in fields and _SEARCHED in bytes(fields["output"]):
        told["output"] = fields["output"]
    return response_usage({name: from_raw(raw) for name, raw in told.items()})


class ResponseStream(RelayedStream):
    """The stream of a response; `[DONE]` alone is no end of it.

    What says nothing yet (`response.created`) waits for what does: the client's headers wait too.

    Args:
        provider: its id, for messages.
        model: the model id that the client asked for.
    """

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(provider)
        self._model = model
        self._held = HeldBytes(provider, "a server-sent event")
        self._return = b""
        self._beginning: list[bytes] = []
        self._last = b""
        self._response: JSONFields = {}
        self._searches = 0

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted at the end; and what it has searched for."""
        return with_searches(self._usage, self._searches)

    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """See `RelayedStream`."""
        if not chunk:
            if left := self._held.take().strip():
                self._take_one(left + b"\n\n", out)  # it may be cut
            return
        if b"\r" in chunk or self._return:
            chunk = self._with_line_feeds(chunk)
        before = self._held.last
        end = (before + chunk).rfind(b"\n\n") + 2 - len(before)
        if end < 2 - len(before):
            self._held.hold(chunk)
            return
        whole = self._held.take(chunk[:end])
        self._held.hold(chunk[end:])
        self._take(whole, out)

    def whole(self, body: bytes) -> bytes:
        """A whole reply, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        fields = whole_fields(self._provider, body, "output", self._model)
        self._usage = _usage(fields)
        self.begun = self.spoken = self.ended = True
        try:
            return whole_as_events(from_raw(Raw(encode_fields(fields))))
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None

    def render_error(self, error: APIError) -> bytes:
        """The error, the response as failed, and the stream's end."""
        numbers = _NUMBER.findall(self._last)
        writer = EventWriter(int(numbers[-1]) + 1 if numbers else 0)
        failed: Mapping[str, Any] = {
            **response_object(
                repeated({}), response_id="", created=0, model=self._model, status="failed"
            ),
            **{name: from_raw(value) for name, value in self._response.items()},
            "status": "failed",
            "error": response_error(error),
        }
        return (
            writer.event("error", error_event(error))
            + writer.event("response.failed", {"response": failed})
            + sse.DONE
        )

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        chunk = self._return + chunk
        self._return = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, events: bytes, out: list[bytes]) -> None:
        looked_into = any(marker in events for marker in _MARKERS)
        is_plain = sse.is_utf8(events) and not sse.has_control_characters(events)
        if self.spoken and not looked_into and is_plain:
            self._give(events, out)
            return
        for event in _split(events):
            if self.ended:
                return
            self._take_one(event, out)

    def _give(self, events: bytes, out: list[bytes]) -> None:
        if events:
            self._last = events
            out.append(events)

    def _take_one(self, event: bytes, out: list[bytes]) -> None:
        comments = False
        for each in sse.EventDecoder().feed(event):
            comments = comments or each.comment is not None
            if each.data is None:
                continue
            if not each.is_done:
                self._take_data(event, each, out)
            return
        if comments and self.begun:
            out.append(event)

    def _take_data(self, event: bytes, parsed: sse.Event, out: list[bytes]) -> None:
        assert parsed.data is not None
        try:
            fields = parse_fields(parsed.data)
            kind = from_raw(fields["type"]) if "type" in fields else parsed.name.decode()
            if not isinstance(kind, str):
                raise ValueError("the type of an event is no text")
            if kind in _BEGINNING or kind in LAST_EVENTS:
                event = self._mended(kind, fields)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        if kind == "error" or parsed.name == b"error" or not kind:
            raise error_in_stream(self._provider, parsed.data)
        if kind in _BEGINNING and not self.begun:
            self._beginning.append(event)
            return
        self.begun = True
        self._searches += _is_search(kind, fields)
        self.spoken = self.spoken or _says_something(kind, fields)
        self._give(b"".join((*self._beginning, event)), out)
        self._beginning = []
        self.ended = kind in LAST_EVENTS

    def _mended(self, kind: str, fields: JSONFields) -> bytes:
        response = parse_object(fields.get("response", Raw(b"null")))
        response["model"] = to_raw(self._model)
        fields["response"] = Raw(encode_fields(response))
        encoded = b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_json(fields))
        if kind in _BEGINNING:
            self._response = response
            return encoded
        self._usage = _usage(response)
        return encoded


def _says_something(kind: str, fields: JSONFields) -> bool:
    if kind not in _BEGINNING_OF_PART:
        return kind not in _BEGINNING
    try:
        item = parse_object(fields.get("item", Raw(b"{}")))
    except ValueError:
        return True  # what is not known here is the client's to read
    return "type" in item and bytes(item["type"]) not in _EMPTY_ITEMS


def _is_search(kind: str, fields: JSONFields) -> bool:
    if kind != "response.output_item.done" or _SEARCHED not in bytes(fields.get("item", b"")):
        return False
    return is_search(members(from_raw(fields["item"])))


def _split(events: bytes) -> Iterator[bytes]:
    begin = 0
    while (begin := sse.behind_blank_lines(events, begin)) < len(events):
        end = events.find(b"\n\n", begin) + 2
        if end < 2:
            end = len(events)
        yield events[begin:end]
        begin = end
