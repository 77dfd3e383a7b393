"""A vendor's chat or text stream on its way to the client: bytes in, mended events out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from llama_compat.dialects.openai.repair import ReplyKind, StreamMender, chunks_of
from llama_compat.dialects.openai.repair.steady_chunks import SteadyChunks
from llama_compat.dialects.openai.usage import read_usage
from llama_compat.types import Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, encode_fields, parse_fields
from providers.remote.openai.relays.replies import completion_fields, is_error_chunk
from providers.remote.relaying.server_sent import ServerSentStream, meant_events
from providers.remote.upstream.vendor_errors import error_in_stream, makes_no_sense

_ERROR = b"error"
_LIST_OF_ERRORS = b"[{"
"""How Gemini begins one."""

_CHUNK_MEMBERS = frozenset({"choices", "usage", "object"})


class EventStream(ServerSentStream):
    """One stream of chunks; it ends with `[DONE]`.

    Comments before the first event are left out, for the client's headers wait for that event.

    Args:
        provider: its id, for messages.
        mender: mends the chunks.
        kind: `CHAT` or `TEXT`.
        model: the model id that the client asked for, in JSON.
    """

    def __init__(self, provider: str, mender: StreamMender, kind: ReplyKind, model: Raw) -> None:
        super().__init__(provider)
        self._mender = mender
        self._kind = kind
        self._model = model
        self._steady = SteadyChunks()

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has come."""
        return self._mender.finished or (self.ended and self._mender.started)

    @property
    def usage(self) -> Usage | None:
        """What the vendor counted last, if it counted."""
        return read_usage(self._mender.last_usage)

    def end(self) -> bytes:
        """What the client is still to be told when the vendor's stream is over."""
        return _encode(self._mender.end())

    def whole(self, body: bytes) -> bytes:
        """A whole reply, which ignores that a stream was asked for, as the events of one.

        Raises:
            APIError: 502, it is none.
        """
        fields = completion_fields(self._provider, body, self._kind, self._model)
        try:
            chunks = [self._mender.mend(chunk) for chunk in chunks_of(fields, self._kind)]
            self.spoken = True
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        return _encode([chunk for chunk in chunks if chunk is not None])

    def quick(self, chunk: bytes, position: int, out: list[bytes]) -> int:
        """Mend what differs from an earlier chunk in its text alone."""
        if not self.spoken:
            return position
        mended, position = self._steady.mend(chunk, position)
        if mended:
            out.append(mended)
        return position

    def relay_event(self, event: sse.Event, data: bytes) -> bytes:
        """What the client gets for an event with this data; empty for one that it does not get."""
        if event.is_done:
            self.ended = True
            return b""
        if b"\n" in data:
            meant = meant_events(event)
            if len(meant) > 1:
                return b"".join(
                    self.relay_event(each, each.data or b"") for each in meant if not self.ended
                )
            data = data.replace(b"\n", b" ")  # JSON has line breaks only where it may have blanks
        fields = self._fields(data, event.name)
        if fields is None:
            self.ended = True
            return b""
        if _CHUNK_MEMBERS.isdisjoint(fields):
            # No chunk but a ping or the like, over which clients would stumble.
            return sse.encode_comment(b" " + data) if self.begun else b""
        try:
            chunk = self._mender.mend(fields)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        self.spoken = self._mender.spoken
        if chunk is None:
            return b""
        mended = sse.encode_data(encode_fields(chunk))
        self._steady.learn(data, mended)
        return mended

    def _fields(self, data: bytes, name: bytes) -> JSONFields | None:
        """The members of an event's object; None for nonsense once all has been said."""
        try:
            fields = parse_fields(data)
        except ValueError as error:
            if name == _ERROR or data.startswith(_LIST_OF_ERRORS):
                raise error_in_stream(self._provider, data) from None
            if self._mender.finished:
                return None
            raise makes_no_sense(self._provider, error) from None
        if name == _ERROR or is_error_chunk(fields):
            raise error_in_stream(self._provider, data)
        return fields


def _encode(chunks: Sequence[JSONFields]) -> bytes:
    return b"".join(sse.encode_data(encode_fields(chunk)) for chunk in chunks)
