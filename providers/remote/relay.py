"""A vendor's OpenAI replies on their way to the client: checked, mended, otherwise as they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from msgspec import Raw

from llama_compat.dialects.openai.mending import (
    ReplyKind,
    StreamMender,
    chunks_of,
    mend_completion,
    mend_embeddings,
)
from llama_compat.errors import APIError, upstream_error
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, encode_fields, parse_fields
from providers.remote.event_stream import EventStream
from providers.remote.upstream import UpstreamResponse
from providers.remote.upstream_errors import NO_ERROR, error_in_answer, makes_no_sense, plain_text


class Relay:
    """Relays the replies to one provider's requests.

    Args:
        provider: its id, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def completion(self, body: bytes, kind: ReplyKind, model: Raw) -> bytes:
        """A whole chat or text completion, naming `model` (JSON).

        Raises:
            APIError: 502, it is none.
        """
        return encode_fields(self._completion(body, kind, model))

    def embeddings(self, body: bytes, model: Raw, *, as_base64: bool) -> bytes:
        """The embeddings of a request, naming `model` (JSON), in base64 if that was asked for.

        Raises:
            APIError: 502, there are none.
        """
        fields = self._object(body, "data")
        try:
            mend_embeddings(fields, model, as_base64=as_base64)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        return encode_fields(fields)

    async def stream(
        self, response: UpstreamResponse, kind: ReplyKind, model: Raw, mender: StreamMender
    ) -> AsyncGenerator[bytes, None]:
        """The events of a streamed reply as they come, `[DONE]` left out.

        What has arrived together is given together.

        Raises (from the generator):
            APIError: the stream is broken, or the vendor says in it what went wrong.
        """
        chunk = await response.next_chunk()
        if chunk.lstrip()[:1] in (b"{", b"[", b"<"):
            # No event stream begins so. It may be an error, or a reply that ignores `stream`.
            yield self._whole_as_events(chunk + await response.read(), kind, model, mender)
            return
        stream = EventStream(self._provider, mender)
        while True:
            out: list[bytes] = []
            try:
                stream.push(chunk, out)
            finally:
                # What came before an error is the client's all the same.
                if out:
                    yield b"".join(out)
            if stream.said_done or not chunk:
                break
            chunk = await self._next_chunk(response, mender)
        if not mender.finished and not (stream.said_done and mender.started):
            raise self._ended_early(begun=stream.begun)
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
            raise makes_no_sense(self._provider, error) from None
        return _events([*filter(None, chunks), *mender.end()])

    async def _next_chunk(self, response: UpstreamResponse, mender: StreamMender) -> bytes:
        try:
            return await response.next_chunk()
        except APIError as error:
            if mender.finished and error.status == 502:
                return b""  # all was said before the connection broke
            raise

    def _completion(self, body: bytes, kind: ReplyKind, model: Raw) -> JSONFields:
        fields = self._object(body, "choices")
        try:
            mend_completion(fields, kind, model)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        return fields

    def _object(self, body: bytes, required: str) -> JSONFields:
        """The members of a whole reply, which has `required`."""
        try:
            fields = parse_fields(body)
        except ValueError as error:
            raise self._no_json(body, error) from None
        if fields.get("error") not in NO_ERROR:
            raise error_in_answer(self._provider, body)
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
            return makes_no_sense(self._provider, error)
        return upstream_error(self._provider, what)

    def _ended_early(self, *, begun: bool) -> APIError:
        what = "before the reply was complete" if begun else "without a single event"
        return upstream_error(
            self._provider, f"the stream ended {what}.", code="upstream_stream_ended"
        )


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
