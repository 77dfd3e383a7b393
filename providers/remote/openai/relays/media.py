"""Calls about images, sound, moderation and rerank passed on, and their replies back.

What comes back is JSON, which is looked at; events; or text and sound, which pass as they are, and
sound as it comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import NamedTuple

from msgspec import Raw

from llama_compat.dialects.openai.media.events import (
    LAST,
    audio_end,
    audio_event,
    image_events,
    named,
    text_events,
)
from llama_compat.dialects.openai.media.usage import image_usage, parse_usage, reply_usage
from llama_compat.dialects.rerank.replies import parse_rerank_usage
from llama_compat.errors import unsupported_parameter, upstream_error
from llama_compat.exchange import JSON_HEADERS, Call, Reply, until_content
from llama_compat.types import Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    parse_fields,
    to_raw,
)
from providers.remote.openai.relays.replies import is_error_chunk
from providers.remote.relaying.server_sent import ServerSentStream
from providers.remote.relaying.streams import relay_stream
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import (
    error_in_stream,
    makes_no_sense,
    no_json,
    relayed_headers,
)

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "moderations": ("results",),
    "images": ("data",),
    "image_edits": ("data",),
    "speech": ("audio", "data", "audio_data"),
    "transcriptions": ("text",),
    "translations": ("text",),
    "rerank": ("results",),
    "rerank_v2": ("results",),
    "voyage_rerank": ("data",),
}
"""Of these a whole JSON reply to each operation has at least one."""

_EVENTS = "text/event-stream"
_PAGES = ("text/", "application/xhtml")
_WEB_PAGES = ("text/html", "application/xhtml")


class MediaRequest(NamedTuple):
    """A client's request as a vendor gets it.

    Attributes:
        body, headers: what is sent; None for the headers of every request.
        dropped: the names of members that were left out.
    """

    body: bytes
    headers: Mapping[str, str] | None
    dropped: tuple[str, ...]


def media_request(
    call: Call, model: str, refused: Collection[str], provider: str, *, unsupported: str | None
) -> MediaRequest:
    """The client's request, with the vendor's name for the model.

    Args:
        call: what to ask.
        model: what the vendor calls it.
        refused: what the template says that the vendor does not take.
        provider: the provider's id, for messages.
        unsupported: what to do with those: `drop`, or else the request is refused.

    Raises:
        APIError: 400 `unsupported_parameter`.
    """
    dropped = tuple(name for name in call.fields if name in refused)
    if dropped and unsupported != "drop":
        raise unsupported_parameter(dropped[0], provider)
    if call.form is not None:
        body = call.form.render({"model": model}, dropped)
        headers = {**call.headers, "content-type": call.form.content_type}
        return MediaRequest(body, headers, dropped)
    fields = {name: raw for name, raw in call.fields.items() if name not in dropped}
    return MediaRequest(encode_fields({**fields, "model": to_raw(model)}), None, dropped)


async def relay_media(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    """The vendor's reply to `call`, which is sent by `exchange`.

    Raises:
        APIError: whatever went wrong with the vendor.
    """
    if call.stream:
        return await _streamed(provider, call, exchange)
    answer = _Answer(call, exchange)
    body = answer.pieces()
    # The exchange is over when `body` is, which then has nothing more to give up.
    first = await anext(body, b"")
    headers = {**relayed_headers(answer.headers), "content-type": answer.type}
    if answer.is_sound:
        if not first:
            raise upstream_error(provider, "answered with an empty body.")
        return Reply(body, first, headers=headers, media=True)
    await body.aclose()
    if answer.is_text:
        _check_text(provider, answer.type, first)
        return Reply(first, headers=headers)
    operation = call.operation
    fields = reply_fields(provider, first, _REQUIRED[operation.name])
    named_model = _naming(fields, call.model)
    return Reply(
        encode_fields(fields) if named_model else first,
        headers={**headers, **JSON_HEADERS},
        read_usage=lambda: _usage(operation.kind, fields),
    )


def _usage(kind: str, fields: JSONFields) -> Usage | None:
    if kind != "rerank":
        return reply_usage(kind, fields)
    told = ("meta", "usage")
    return parse_rerank_usage({name: from_raw(fields[name]) for name in told if name in fields})


def _naming(fields: JSONFields, model: str) -> bool:
    """Have what names a model name the client's; whether it did."""
    if "model" in fields:
        fields["model"] = to_raw(model)
    return "model" in fields


def _check_text(provider: str, type: str, body: bytes) -> None:
    if type.startswith(_WEB_PAGES) or body.lstrip()[:1] == b"<":
        raise no_json(provider, body, ValueError("a web page"))


def _wants_text(fields: Mapping[str, Raw]) -> bool:
    """Whether a transcript is to be text, which it is not where nothing is said."""
    format = from_raw(fields["response_format"]) if "response_format" in fields else None
    return isinstance(format, str) and bool(format) and "json" not in format


class _Answer:
    """What a vendor answers.

    Attributes:
        headers: the vendor's, once it has answered.
        type: the media type.
    """

    def __init__(self, call: Call, exchange: UpstreamExchange) -> None:
        self._exchange = exchange
        self._speaks = call.operation.kind == "speech"
        self._writes = call.operation.kind == "transcription" and _wants_text(call.fields)
        self.headers: Mapping[str, str] = {}
        self.type = ""

    def begins(self, response: UpstreamResponse) -> None:
        """Its head is there."""
        self.headers = response.headers
        self.type = media_type(response.headers)

    @property
    def is_sound(self) -> bool:
        """Whether it is speech, which passes on as it comes."""
        return self._speaks and self._is_no_json and not self.type.startswith(_PAGES)

    @property
    def is_text(self) -> bool:
        """Whether it is no JSON, but text such as subtitles, which was asked for."""
        return self._writes and self._is_no_json and not self.type.startswith(_EVENTS)

    @property
    def _is_no_json(self) -> bool:
        return bool(self.type) and "json" not in self.type

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Sound as it comes, and anything else whole.

        Raises (from the generator):
            APIError: whatever went wrong with the vendor.
        """
        async with self._exchange as response:
            self.begins(response)
            if self.is_sound:
                async for chunk in response.chunks():
                    yield chunk
            else:
                yield await response.read()


def media_type(headers: Mapping[str, str]) -> str:
    """What a body is, by its headers, in small letters; empty where they don't say."""
    value = next((headers[name] for name in headers if name.lower() == "content-type"), "")
    if not (value.isascii() and value.isprintable()):
        return ""
    type, semicolon, parameters = value.strip().partition(";")
    return type.lower() + semicolon + parameters


# Streams ------------------------------------------------------------------------------------------


async def _streamed(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    stream = MediaEvents(provider, call.operation.name, call.model, call.extent.given)
    headers: dict[str, str] = {}

    async def events() -> AsyncGenerator[bytes, None]:
        answer = _Answer(call, exchange)
        async with exchange as response:
            answer.begins(response)
            headers.update(relayed_headers(response.headers))
            if answer.is_sound:
                async for chunk in response.chunks():
                    stream.spoken = True
                    yield audio_event(chunk)
                if not stream.spoken:
                    raise upstream_error(provider, "answered with an empty body.")
                yield audio_end()
            elif answer.is_text:
                body = await response.read()
                _check_text(provider, answer.type, body)
                yield stream.whole_text(body)
            else:
                async with aclosing(relay_stream(provider, response, stream)) as pieces:
                    async for piece in pieces:
                        yield piece

    body = events()
    first = await until_content(body, lambda: stream.spoken)
    return Reply(body, first, headers=headers, read_usage=lambda: stream.usage)


class MediaEvents(ServerSentStream):
    """The events of one of these streams. They pass as they are, but for a model that they name.

    Args:
        provider: its id, for messages.
        operation: what was asked.
        model: the model id that the client asked for.
        wanted: how many images.
    """

    def __init__(self, provider: str, operation: str, model: str, wanted: int) -> None:
        super().__init__(provider)
        self._operation = operation
        self._model = to_raw(model)
        self._wanted = wanted
        self._last_events = 0

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has come."""
        if self.ended:
            return self.spoken
        return self._last_events >= (self._wanted if self._operation in _DRAWN else 1)

    def quick(self, chunk: bytes, position: int, out: list[bytes]) -> int:
        """Nothing: each event is looked at."""
        return position

    def relay_event(self, event: sse.Event, data: bytes) -> bytes:
        """What the client gets for an event with this data."""
        if event.is_done:
            self.ended = True
            return sse.DONE
        data = data.replace(b"\n", b" ")  # JSON has line breaks only where it may have blanks
        try:
            fields = parse_fields(data)
        except ValueError as error:
            if event.name == b"error":
                raise error_in_stream(self._provider, data) from None
            raise makes_no_sense(self._provider, error) from None
        if event.name == b"error" or ("type" not in fields and is_error_chunk(fields)):
            raise error_in_stream(self._provider, data)
        if fields.get("type") == Raw(b'"error"'):
            raise error_in_stream(self._provider, data)
        self.spoken = True
        self._look_for_end(fields)
        return named(event.name, encode_fields(fields) if self._names(fields) else data)

    def _names(self, fields: JSONFields) -> bool:
        if "model" in fields:
            fields["model"] = self._model
        return "model" in fields

    def _look_for_end(self, fields: JSONFields) -> None:
        if from_raw(fields.get("type", Raw(b"null"))) == LAST[self._operation]:
            self._last_events += 1
        usage = from_raw(fields["usage"]) if "usage" in fields else None
        if usage is None and self._operation not in _DRAWN:
            return
        if self._operation in _DRAWN:
            self._usage = image_usage(usage, self._last_events) or self._usage
        else:
            self._usage = parse_usage(usage)

    def whole(self, body: bytes) -> bytes:
        """A whole reply, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        required = _REQUIRED[self._operation]
        fields = reply_fields(self._provider, body, required)
        self._usage = reply_usage("image" if self._operation in _DRAWN else "transcription", fields)
        reply = {name: from_raw(raw) for name, raw in fields.items()}
        try:
            if self._operation in _DRAWN:
                events = b"".join(image_events(self._operation, reply))
            else:
                events = b"".join(text_events(reply))
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        self.begun = self.spoken = self.ended = True
        return events

    def whole_text(self, body: bytes) -> bytes:
        """The same of a reply that is text."""
        self.begun = self.spoken = self.ended = True
        return b"".join(text_events({"text": body.decode(errors="replace")}))


_DRAWN = frozenset({"images", "image_edits"})
