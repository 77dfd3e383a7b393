"""A vendor's OpenAI replies on their way to the client: checked, mended, otherwise as they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from msgspec import Raw

from llama_compat import sse
from llama_compat.errors import APIError, upstream_error
from llama_compat.json_fields import JSONFields, encode_fields, parse_fields
from llama_compat.mending import (
    ReplyKind,
    StreamMender,
    chunks_of,
    mend_completion,
    mend_embeddings,
)
from llama_compat.steady_chunks import SteadyChunks
from providers.remote.http import UpstreamResponse
from providers.remote.upstream_errors import error_in_answer, error_in_stream, plain_text

_NULL = Raw(b"null")

_NO_ERROR = (None, _NULL, Raw(b'""'))
"""Some vendors have an `error` in every reply."""

_DONE = b"[DONE]"
_ERROR = b"error"
_ERROR_OBJECT = Raw(b'"error"')
_LIST_OF_ERRORS = b"[{"
"""How Gemini begins one."""

_CHUNK_MEMBERS = frozenset({"choices", "usage", "object"})


class Relay:
    """Relays the replies to one provider's requests.

    Args:
        provider: its id, for messages.
        secrets: what no message may repeat.
    """

    def __init__(self, provider: str, secrets: Sequence[str]) -> None:
        self._provider = provider
        self._secrets = secrets

    def completion(self, body: bytes, kind: ReplyKind, model: Raw) -> bytes:
        """A whole chat or text completion, naming `model` (JSON).

        Raises:
            APIError: 502, it is none.
        """
        return encode_fields(self._completion(body, kind, model))

    def embeddings(self, body: bytes, model: Raw) -> bytes:
        """The embeddings of a request, naming `model` (JSON).

        Raises:
            APIError: 502, there are none.
        """
        fields = self._object(body, "data")
        try:
            mend_embeddings(fields, model)
        except ValueError as error:
            raise self._nonsense(error) from None
        return encode_fields(fields)

    async def stream(
        self, response: UpstreamResponse, kind: ReplyKind, model: Raw, mender: StreamMender
    ) -> AsyncGenerator[bytes, None]:
        """The events of a streamed reply as they come, `[DONE]` left out.

        What has arrived together is given together. Comments before the first event are left out,
        for the client's headers wait for that event.

        Raises (from the generator):
            APIError: the stream is broken, or the vendor says in it what went wrong.
        """
        chunk = await response.next_chunk()
        if chunk.lstrip()[:1] in (b"{", b"[", b"<"):
            # No event stream begins so. It may be an error, or a reply that ignores `stream`.
            yield self._whole_as_events(chunk + await response.read(), kind, model, mender)
            return
        decoder = sse.Decoder()
        steady = SteadyChunks()
        begun = False
        while True:
            parts: list[bytes] = []
            try:
                events = self._decode(decoder, chunk)
                said_done = self._relay(events, mender, steady, parts, begun=begun)
            except APIError:
                if parts:
                    yield b"".join(parts)
                raise
            if parts:
                begun = True
                yield b"".join(parts)
            if said_done or not chunk:
                break
            chunk = await self._next_chunk(response, mender)
        if not mender.finished and not (said_done and mender.started):
            raise self._ended_early(begun=begun)
        if left := mender.end():
            yield _events(left)
        await response.drain()

    def _whole_as_events(
        self, body: bytes, kind: ReplyKind, model: Raw, mender: StreamMender
    ) -> bytes:
        completion = self._completion(body, kind, model)
        try:
            chunks = [mender.mend(chunk) for chunk in chunks_of(completion, kind)]
        except ValueError as error:
            raise self._nonsense(error) from None
        return _events([*filter(None, chunks), *mender.end()])

    async def _next_chunk(self, response: UpstreamResponse, mender: StreamMender) -> bytes:
        try:
            return await response.next_chunk()
        except APIError as error:
            if mender.finished and error.status == 502:
                return b""  # all was said before the connection broke
            raise

    def _decode(self, decoder: sse.Decoder, chunk: bytes) -> list[sse.Event]:
        if not chunk:
            last = decoder.flush()
            return [last] if last is not None else []
        try:
            return decoder.feed(chunk)
        except sse.EventTooLargeError as error:
            raise upstream_error(self._provider, f"{error}.") from None

    def _relay(
        self,
        events: list[sse.Event],
        mender: StreamMender,
        steady: SteadyChunks,
        parts: list[bytes],
        *,
        begun: bool,
    ) -> bool:
        """Put what the client is to see of `events` into `parts`; whether `[DONE]` was said."""
        for event in events:
            data = event.data
            if data is None:
                if event.comment is not None and (begun or parts):
                    parts.append(sse.encode_comment(event.comment))
            elif event.name != _ERROR and (mended := steady.mend(data)) is not None:
                parts.append(mended)
            elif data.lstrip().startswith(_DONE):
                return True
            else:
                mended = self._mend(data, event.name, mender, begun=begun or bool(parts))
                if mended:
                    parts.append(mended)
                    steady.learn(data, mended)
        return False

    def _mend(self, data: bytes, name: bytes, mender: StreamMender, *, begun: bool) -> bytes:
        """The event that the client gets for an event's data, if it gets one."""
        if b"\n" in data:
            data = data.replace(b"\n", b" ")  # JSON has line breaks only where it may have blanks
        fields = self._event_fields(data, name)
        if _CHUNK_MEMBERS.isdisjoint(fields):
            # No chunk but a ping or the like, over which clients would stumble.
            return sse.encode_comment(b" " + data) if begun else b""
        try:
            chunk = mender.mend(fields)
        except ValueError as error:
            raise self._nonsense(error) from None
        return b"" if chunk is None else sse.encode_data(encode_fields(chunk))

    def _event_fields(self, data: bytes, name: bytes) -> JSONFields:
        try:
            fields = parse_fields(data)
        except ValueError as error:
            if name == _ERROR or data.startswith(_LIST_OF_ERRORS):
                raise error_in_stream(self._provider, data, self._secrets) from None
            raise self._nonsense(error) from None
        if name == _ERROR or _is_error(fields):
            raise error_in_stream(self._provider, data, self._secrets)
        return fields

    def _completion(self, body: bytes, kind: ReplyKind, model: Raw) -> JSONFields:
        fields = self._object(body, "choices")
        try:
            mend_completion(fields, kind, model)
        except ValueError as error:
            raise self._nonsense(error) from None
        return fields

    def _object(self, body: bytes, required: str) -> JSONFields:
        """The members of a whole reply, which has `required`."""
        try:
            fields = parse_fields(body)
        except ValueError as error:
            raise self._no_json(body, error) from None
        if fields.get("error") not in _NO_ERROR:
            raise error_in_answer(self._provider, body, self._secrets)
        if required not in fields:
            raise upstream_error(self._provider, f"answered with JSON that has no '{required}'.")
        return fields

    def _no_json(self, body: bytes, error: ValueError) -> APIError:
        text, is_html = plain_text(body)
        if not text:
            what = "answered with an empty body."
        elif is_html:
            what = f"answered with a web page instead of JSON: {text}. Check `base_url`."
        elif text.startswith(("data:", "event:", ":")):
            what = "answered with a stream although none was asked for."
        elif not text.startswith(("{", "[")):
            what = f"answered with text instead of JSON: {text}"
        else:
            return self._nonsense(error)
        return upstream_error(self._provider, what)

    def _nonsense(self, error: ValueError) -> APIError:
        return upstream_error(self._provider, f"sent what makes no sense: {error}.")

    def _ended_early(self, *, begun: bool) -> APIError:
        what = "before the reply was complete" if begun else "without a single event"
        return upstream_error(
            self._provider, f"the stream ended {what}.", code="upstream_stream_ended"
        )


def _is_error(fields: JSONFields) -> bool:
    """Whether an event's members are an error's: OpenAI's shape, or those of vLLM and FastAPI."""
    if fields.get("error") not in _NO_ERROR:
        return True
    return "choices" not in fields and (fields.get("object") == _ERROR_OBJECT or "detail" in fields)


def _events(chunks: list[JSONFields]) -> bytes:
    return b"".join(sse.encode_data(encode_fields(chunk)) for chunk in chunks)


async def with_keepalives(
    events: AsyncGenerator[bytes, None], seconds: float
) -> AsyncGenerator[bytes, None]:
    """`events`, with a comment every so many seconds until the first of them."""
    first = asyncio.ensure_future(anext(events))
    try:
        while not (await asyncio.wait((first,), timeout=seconds))[0]:
            yield sse.encode_comment(b" keepalive")
        yield first.result()
        async for event in events:
            yield event
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await events.aclose()
