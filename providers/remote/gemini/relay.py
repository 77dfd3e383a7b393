"""Gemini's clients in front of Gemini: the call is passed on, and the reply passed back as it came.

A stream is asked for as events in any case, so that one that breaks off can be told from one that
has come to its end; whoever wants an array gets their data as its items. `modelVersion` stays what
Gemini says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.counts import members
from llama_compat.dialects.gemini.frames import Frame, in_one_line
from llama_compat.dialects.gemini.grounding import paid_searches, queries_in
from llama_compat.dialects.gemini.input.turns import signed
from llama_compat.dialects.gemini.members import spelling
from llama_compat.dialects.gemini.models import model_path
from llama_compat.dialects.gemini.operations import new_frame
from llama_compat.dialects.gemini.replies import ended_with, parse_usage
from llama_compat.dialects.gemini.seals import FAMILY
from llama_compat.errors import upstream_error
from llama_compat.exchange import Call, Reply, Target
from llama_compat.off_loop import off_loop
from llama_compat.types import Usage
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    JSONFields,
    encode_fields,
    from_raw,
    parse_fields,
    parse_object,
    parse_objects,
    to_raw,
)
from providers.remote.relaying.native import speaking, whole_reply
from providers.remote.relaying.streams import RelayedStream, stream_reply, with_searches
from providers.remote.relaying.whole_replies import reply_fields
from providers.remote.upstream.exchanges import Below, Upstream
from providers.remote.upstream.vendor_errors import (
    error_in_stream,
    is_error_event,
    makes_no_sense,
    plain_text,
)

METHODS: Mapping[str, str] = {
    "gemini_generate": "generateContent",
    "gemini_count_tokens": "countTokens",
    "gemini_embed": "embedContent",
    "gemini_batch_embed": "batchEmbedContents",
}
"""What each call is in the path, by the name of its operation."""

GENERATED = ("candidates", "promptFeedback")
REQUIRED: Mapping[str, Sequence[str]] = {
    "gemini_generate": GENERATED,
    "gemini_count_tokens": ("totalTokens",),
    "gemini_embed": ("embedding",),
    "gemini_batch_embed": ("embeddings",),
}
"""What the whole reply to each call has, one of them at least."""

_SEARCHED = b'"webSearchQueries"'

STREAM_METHOD = "streamGenerateContent?alt=sse"


async def relay(provider: str, upstream: Upstream | Below, call: Call, target: Target) -> Reply:
    """Pass a call on to Gemini, and its reply back.

    Raises:
        APIError: whatever went wrong with Gemini.
    """
    method = STREAM_METHOD if call.stream else METHODS[call.operation.name]
    model = model_path(target.model)
    fields = _naming(call.fields, model)
    contents = fields.get("contents")
    if call.operation.name == "gemini_generate" and contents is not None:
        fields["contents"] = await off_loop(call.size, signed, contents)
    body = encode_fields(fields)
    path = f"/{model}:{method}"
    exchange = speaking(FAMILY, upstream.post(path, body, request_id=call.request_id))
    if not call.stream:
        required = REQUIRED[call.operation.name]
        return await whole_reply(exchange, lambda answer: _checked(provider, answer, required))
    frame = new_frame(call.operation)
    return await stream_reply(
        provider,
        exchange,
        GeminiEvents(provider, frame, call.extent.given),
        render_error=frame.fail,
    )


def _naming(fields: Mapping[str, Raw], model: str) -> JSONFields:
    """The members of a request, with the vendor's name of the model wherever there is one."""
    named = dict(fields)
    if "model" in named:
        named["model"] = to_raw(model)
    inner = spelling(named, "generateContentRequest")
    try:
        if inner in named:
            named[inner] = to_raw(_naming(parse_object(named[inner]), model))
        if "requests" in named:
            requests = parse_objects(named["requests"])
            named["requests"] = to_raw([_naming(request, model) for request in requests])
    except ValueError:
        pass  # what is malformed is Gemini's to refuse
    return named


def _checked(provider: str, body: bytes, required: Sequence[str]) -> tuple[bytes, Usage | None]:
    fields = reply_fields(provider, body, required)
    return body, _usage(fields, fields, set(_queries(fields, body)))


def _usage(counted: JSONFields, named: JSONFields, queries: Collection[str]) -> Usage | None:
    """What was counted, and that so much was searched for.

    Args:
        counted: the response that says it; may say nothing.
        named: one that says which model it is.
        queries: what was searched for.
    """
    told = counted.get("usageMetadata")
    usage = None if told is None else parse_usage(from_raw(told))
    if not queries:
        return usage
    model = from_raw(named["modelVersion"]) if "modelVersion" in named else None
    return with_searches(usage, paid_searches(queries, model))


def _queries(fields: JSONFields, data: bytes) -> Iterator[str]:
    """What was searched for, by a response, which is `data`."""
    if _SEARCHED in data and "candidates" in fields:
        candidates = from_raw(fields["candidates"])
        for each in candidates if isinstance(candidates, list) else ():
            yield from queries_in(members(each).get("groundingMetadata"))


def _says_something(fields: JSONFields) -> bool:
    candidates: Any = from_raw(fields["candidates"]) if "candidates" in fields else []
    for candidate in candidates if isinstance(candidates, list) else ():
        content = candidate.get("content") if isinstance(candidate, dict) else None
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and any(part.values()):
                return True
    return False


class GeminiEvents(RelayedStream):
    """A stream of events, whose data are put into the frame that the client wants. Gemini has no
    event for its end: the connection ends.

    Args:
        provider: its id, for messages.
        frame: what the client gets around the responses.
        candidates: how many were asked for, each of which has to come to its end.
    """

    def __init__(self, provider: str, frame: Frame, candidates: int) -> None:
        super().__init__(provider)
        self._frame = frame
        self._unfinished = set(range(candidates))
        self._blocked = False
        self._decoder = sse.EventDecoder()
        self._counted: JSONFields = {}
        self._named: JSONFields = {}
        self._searched: set[str] = set()

    @property
    def usage(self) -> Usage | None:
        """What was counted last; each event may count, and tell of searches."""
        return _usage(self._counted, self._named, self._searched)

    @property
    def complete(self) -> bool:
        """Whether every candidate has come to its end, or the prompt was blocked."""
        return self._blocked or (self.begun and not self._unfinished)

    def push(self, chunk: bytes, out: list[bytes]) -> None:
        """See `RelayedStream`."""
        try:
            if chunk:
                # Gemini's lines end in CRLF; the decoder is quicker without.
                events = self._decoder.feed(chunk.replace(b"\r\n", b"\n"))
            else:
                last = self._decoder.flush()
                events = [] if last is None else [last]
        except sse.EventTooLargeError as error:
            raise upstream_error(self._provider, f"{error}.") from None
        for event in events:
            if event.data is not None and not event.is_done:
                out.append(self._take(event.data))

    def whole(self, body: bytes) -> bytes:
        """A whole response, or an array of them, as the responses of a stream.

        Raises:
            APIError: 502, it is neither.
        """
        try:
            responses = parse_objects(Raw(body)) if body.lstrip()[:1] == b"[" else None
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        if responses is None:
            if body.lstrip()[:1] == b"<":
                text = plain_text(body).text
                raise upstream_error(self._provider, f"sent what is no stream: {text}")
            relayed = self._take(body)
        else:
            relayed = b"".join(self._take(encode_fields(response)) for response in responses)
        if not self.complete:
            raise upstream_error(self._provider, "the reply has no finishReason.")
        return relayed

    def _take(self, data: bytes) -> bytes:
        try:
            fields = parse_fields(data)
        except ValueError as error:
            raise makes_no_sense(self._provider, error) from None
        if is_error_event(fields, GENERATED):
            raise error_in_stream(self._provider, data)
        if b"finishReason" in data and "candidates" in fields:
            self._finish(from_raw(fields["candidates"]))
        if b"blockReason" in data and "promptFeedback" in fields:
            feedback = from_raw(fields["promptFeedback"])
            self._blocked = isinstance(feedback, dict) and bool(feedback.get("blockReason"))
        if "usageMetadata" in fields:
            self._counted = fields
        if "modelVersion" in fields:
            self._named = fields
        self._searched.update(_queries(fields, data))
        self.begun = True
        if not self.spoken:
            self.spoken = self.complete or _says_something(fields)
        return self._frame.response(in_one_line(data))

    def _finish(self, candidates: Any) -> None:
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and ended_with(candidate) is not None:
                index = candidate.get("index")
                self._unfinished.discard(index if isinstance(index, int) else 0)
