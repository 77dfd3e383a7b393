"""Ollama's clients in front of Ollama: the call is passed on, and what comes back is passed back,
but for the model's name, which is the public one on this side and Ollama's on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Raw

from llama_compat.dialects.ollama.errors import NAME, render_stream_error
from llama_compat.dialects.ollama.replies import COUNTS, parse_usage
from llama_compat.errors import upstream_error
from llama_compat.exchange import Call, Reply, Target
from llama_compat.types import Usage
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    is_empty,
    parse_fields,
    parse_object,
    to_raw,
)
from llama_compat.wire.json_lines import NEWLINE, ends_of_lines
from providers.remote.relaying.answers import NO_LINES
from providers.remote.relaying.held import HeldBytes
from providers.remote.relaying.native import speaking, whole_reply
from providers.remote.relaying.streams import RelayedStream, stream_reply
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import Below, Upstream
from providers.remote.upstream.vendor_errors import (
    error_in_stream,
    is_error_event,
    makes_no_sense,
    plain_text,
)

PATHS: Mapping[str, str] = {
    "ollama_chat": "/api/chat",
    "ollama_generate": "/api/generate",
    "ollama_embed": "/api/embed",
    "ollama_embeddings": "/api/embeddings",
}
"""Where each call is, by the name of its operation."""

_REQUIRED: Mapping[str, Sequence[str]] = {
    "ollama_chat": ("message", "done"),
    "ollama_generate": ("response", "done"),
    "ollama_embed": ("embeddings",),
    "ollama_embeddings": ("embedding",),
}
"""What the whole reply to each call has, or a line of a stream, one of them at least."""

_TRUE = Raw(b"true")
_NULL = Raw(b"null")


async def relay(provider: str, upstream: Upstream | Below, call: Call, target: Target) -> Reply:
    """Pass a call on to Ollama, and its reply back.

    Raises:
        APIError: whatever went wrong with Ollama.
    """
    fields = {**call.fields, "model": to_raw(target.model)}
    if target.context_length is not None and call.operation.kind != "embedding":
        fields["options"] = _with_context(fields.get("options"), target.context_length)
    body, path = encode_fields(fields), PATHS[call.operation.name]
    exchange = speaking(NAME, upstream.post(path, body, request_id=call.request_id))
    model, required = to_raw(call.model), _REQUIRED[call.operation.name]
    if not call.stream:
        return await whole_reply(exchange, partial(_mend, provider, model, required))
    return await stream_reply(
        provider,
        exchange,
        OllamaLines(provider, model, required),
        no_stream_begins=NO_LINES,
        render_error=lambda error: render_stream_error(error, call.request_id),
    )


def _with_context(options: Raw | None, context_length: int) -> Raw:
    """The options with the context that the template gives the model, unless the client says one.

    Otherwise Ollama would load the model anew whenever it is asked by another client's API.
    """
    try:
        given = {} if options is None or options == _NULL else parse_object(options)
    except ValueError:
        return options or _NULL  # what is malformed is Ollama's to refuse
    return to_raw({"num_ctx": context_length, **given})


def _mend(
    provider: str, model: Raw, required: Sequence[str], body: bytes
) -> tuple[bytes, Usage | None]:
    fields = reply_fields(provider, body, required)
    return _encode(fields, model), _usage(fields)


def _encode(fields: JSONFields, model: Raw) -> bytes:
    if "model" in fields:
        fields["model"] = model
    return encode_fields(fields)


def _usage(fields: JSONFields) -> Usage | None:
    return parse_usage(*(from_raw(fields.get(name, _NULL)) for name in COUNTS))


def _says_something(fields: JSONFields) -> bool:
    try:
        said = {**fields, **parse_object(fields.get("message", Raw(b"{}")))}
    except ValueError:
        return True  # what is not known here is the client's to read
    return any(
        not is_empty(said.get(name)) for name in ("content", "response", "thinking", "tool_calls")
    )


class OllamaLines(RelayedStream):
    """A stream of lines, which ends with the one that has `done`.

    Args:
        provider: its id, for messages.
        model: the model id that the client asked for, in JSON.
        required: what a line has, one of them at least, that is not an error.
    """

    def __init__(self, provider: str, model: Raw, required: Sequence[str]) -> None:
        super().__init__(provider)
        self._model = model
        self._required = required
        self._held = HeldBytes(provider, "a line")

    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """See `RelayedStream`."""
        for end in ends_of_lines(chunk, NEWLINE):
            self._held.hold(end)
            self._take_line(out)
        self._held.hold(chunk[chunk.rfind(NEWLINE) + 1 :])
        if not chunk:
            self._take_line(out)

    def whole(self, body: bytes) -> bytes:
        """What is no stream is no reply either.

        Raises:
            APIError: 502.
        """
        text = plain_text(body).text
        raise upstream_error(self._provider, f"sent what is no stream of lines: {text}")

    def _take_line(self, out: list[bytes]) -> None:
        line = self._held.take().strip()
        if not line or self.ended:
            return
        try:
            fields = parse_fields(line)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        if is_error_event(fields, self._required):
            raise error_in_stream(self._provider, line)
        if fields.get("done") == _TRUE:
            self.ended = True
            self._usage = _usage(fields)
        self.begun = True
        if not self.spoken:
            self.spoken = self.ended or _says_something(fields)
        out.append(_encode(fields, self._model) + b"\n")
