"""What is kept of a reply, and what is made of that for another form, or another client's API."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llama_compat.events import reply_events
from llama_compat.exchange import GUARDRAILS_HEADER, Call, Recording, Reply
from llama_compat.off_loop import off_loop
from llama_compat.types import (
    ImageDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    Usage,
)
from routing.cache.asked import CacheableCall
from routing.cache.replies.store import Entry, MemoryReplies
from routing.policy.targets import TargetState

log = logging.getLogger(__name__)

_FINISHED = (StopReason.end_of_turn, StopReason.end_of_message)
"""How a reply ends that may be kept: neither cut nor withheld."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[StreamEvent]]).decode


_KEPT = ("content-type", GUARDRAILS_HEADER)
"""Headers that are a reply's own, whoever is given it."""


def entry_of(call: Call, asked: CacheableCall, reply: Reply, body: bytes) -> Entry | None:
    """What is kept of a reply; None where nothing is.

    Raises:
        ValueError: it can't be read.
    """
    said: bytes | None = None
    choices, draws, pays_each_choice = 1, False, False
    recording, usage = reply.recording, reply.usage
    if recording is not None:
        if not _is_finished(recording):
            return None
        try:
            said = _encode(recording.choices)
        except (UnicodeEncodeError, TypeError):
            said = None  # half a character
        choices, pays_each_choice = len(recording.choices), recording.pays_each_choice
        draws = any(_draws(event) for events in recording.choices for event in events)
    elif not _has_finished(call, usage, body):
        return None
    if asked.written is None and said is None:
        return None
    return Entry(
        asked.keys,
        asked.wire,
        body,
        usage,
        said,
        pays_each_choice,
        choices,
        draws,
        dict(own_headers(reply)),
        reply.dropped,
        reply.adapted,
        asked=asked,
    )


class Unread(Struct, gc=False):
    """A whole reply that was relayed, as long as nobody has looked at it: most are asked for once.

    Attributes:
        asked: what it answers.
        read_usage: as in `llama_compat.exchange.Reply`.
        own: its headers that are kept, as `own_headers` gives them.
        target: who answered.
    """

    asked: CacheableCall
    read_usage: Callable[[], Usage | None]
    own: tuple[tuple[str, str], ...]
    target: TargetState

    def __call__(self, entry: Entry) -> bool:
        """See `Entry.unread`."""
        call = self.asked.call
        try:
            usage = self.read_usage()
            if not _has_finished(call, usage, entry.body):
                return False
        except ValueError as error:
            log.debug("%s is not kept, as it can't be read: %s", call.request_id, error)
            return False
        except Exception:
            log.exception("the reply to %s is not kept", call.request_id)
            return False
        entry.usage, entry.headers = usage, told_of(self.target, self.own)
        return True


def own_headers(reply: Reply) -> tuple[tuple[str, str], ...]:
    """Those of a reply's headers that whoever is given it again is told, too."""
    headers = reply.headers
    return tuple([(name, headers[name]) for name in _KEPT if name in headers])


def told_of(target: TargetState, own: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The headers of a reply that is kept: whose it is, and its own."""
    return _told_of(tuple(target.headers), own)


@lru_cache(maxsize=1024)
def _told_of(
    target: tuple[tuple[bytes, bytes], ...], own: tuple[tuple[str, str], ...]
) -> Mapping[str, str]:
    return {**{name.decode(): value.decode() for name, value in target}, **dict(own)}


def _has_finished(call: Call, usage: Usage | None, body: bytes) -> bool:
    """Whether every choice of a reply that was relayed says something, and comes to the end that it
    was to come to."""
    replies = call.operation.replies
    if replies is None or not replies.finished(body, call.stream, max(1, call.extent.given)):
        return False
    return usage is None or usage.completion_tokens > 0


async def keep_copy(store: MemoryReplies, entry: Entry, asked: CacheableCall, reply: Reply) -> None:
    """Keep a reply that was made of `entry` as long as that is kept: who asks in this form again
    gets the same bytes."""
    assert asked.written is not None
    if isinstance(reply.body, bytes):
        body = reply.body
    else:
        async with aclosing(reply.body) as rest:
            body = b"".join([reply.first, *[piece async for piece in rest]])
        reply.first, reply.body = body, _nothing()
    copy = Entry(
        (asked.written.exact,),
        asked.wire,
        body,
        reply.usage,
        headers={
            **entry.headers,
            **{name: value for name, value in reply.headers.items() if name == "content-type"},
        },
        dropped=reply.dropped,
        adapted=reply.adapted,
        kept_at=entry.kept_at,
        asked=asked,
    )
    await store.keep(copy)
    entry.copies.append(copy.number)


async def read_back(entry: Entry) -> Recording | None:
    """What was said in a reply that is kept; None where nobody here can tell."""
    if entry.recording is None:
        return None if entry.asked is None else await off_loop(len(entry.body), _said_in, entry)
    choices = await off_loop(len(entry.recording), _decode, entry.recording)
    return Recording(choices, entry.pays_each_choice)


def _said_in(entry: Entry) -> Recording | None:
    """The same, of one that was relayed, and has been read by nobody yet."""
    assert entry.asked is not None
    call = entry.asked.call
    replies = call.operation.replies
    if replies is None or call.extent.given > 1:
        return None
    try:
        response = replies.said(entry.body, call.stream)
    except ValueError:
        return None
    if response is None:
        return None
    # A client that did not ask for the usage of a stream was not sent it.
    response = replace(response, usage=entry.usage or response.usage)
    recording = Recording([list(reply_events(response))])
    return recording if _is_finished(recording) else None


def read_now(entry: Entry) -> None:
    """Read what others, who do not know the request, may want to know of a reply."""
    recording = None if entry.recording is not None else _said_in(entry)
    entry.asked = None
    if recording is None:
        return
    try:
        entry.recording = _encode(recording.choices)
    except (UnicodeEncodeError, TypeError):
        return  # half a character
    entry.draws = any(_draws(event) for event in recording.choices[0])


def _is_finished(recording: Recording) -> bool:
    """Whether every choice says something, and comes to the end that it was to come to."""
    for events in recording.choices:
        last = events[-1] if events else None
        if not isinstance(last, StreamComplete) or last.stop_reason not in _FINISHED:
            return False
        if not any(isinstance(event, StreamProgress) for event in events):
            return False
    return True


def _draws(event: StreamEvent) -> bool:
    return isinstance(event, StreamProgress) and isinstance(event.delta, ImageDelta)


def same_bytes(entry: Entry, call: Call) -> Reply:
    """The bytes that are kept."""
    usage = entry.usage
    streamed = call.stream
    return Reply(
        _nothing() if streamed else entry.body,
        entry.body if streamed else b"",
        dropped=entry.dropped,
        adapted=entry.adapted,
        read_usage=lambda: usage,
    )


async def _nothing() -> AsyncGenerator[bytes, None]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece
