"""What a dialect is to the rest: the rows and shapes that every client API fills in.

A `Dialect` says how a client API tells of errors and keeps a stream alive, an `Operation` is one
call of it, and a `Translation` is one request of that call in the vocabulary, with the way back.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from msgspec import Raw, Struct

from llama_compat.dialects.rate_limits import RateLimit, openai_headers
from llama_compat.errors import APIError
from llama_compat.extent import Extent
from llama_compat.reasoning.recollection import Recollection, TurnPlace
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    CompletionResponse,
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    StreamEvent,
    ThinkingForm,
    Usage,
)
from llama_compat.wire.json_fields import JSONFields, with_items

if TYPE_CHECKING:
    from llama_compat.exchange import Call


def stream_headers(content_type: str) -> Mapping[str, str]:
    """Those of a stream that nothing on its way is to keep or to gather."""
    return {"content-type": content_type, "cache-control": "no-cache", "x-accel-buffering": "no"}


SSE_HEADERS = stream_headers("text/event-stream; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client API.

    Attributes:
        name: what it is called in logs.
        render_error: an error's body, given the error and the request's id.
        render_stream_error: an error inside a stream that has begun, and that stream's end.
        status: the HTTP status of an error.
        reply_headers: makes the headers that every answer to a request has, of its id; None for
            none.
        stream_headers: those of a stream.
        stream_end: what comes after the last event of a stream that went well.
        keep_alive: what may be sent between two events, and means nothing; empty: nothing may.
        keep_alive_seconds: after so long a silence it is sent, unless the template says otherwise.
        forwarded_headers: names of request headers, in lower case, that a vendor with the same API
            gets.
        rate_limit_headers: how it tells what is left of this server's limits.
        counts_bytes: whether places in texts are told in bytes, and not in characters.
    """

    name: str
    render_error: Callable[[APIError, str], bytes]
    render_stream_error: Callable[[APIError, str], bytes]
    status: Callable[[APIError], int] = lambda error: error.status
    reply_headers: Callable[[str], Mapping[str, str]] | None = None
    stream_headers: Mapping[str, str] = field(default_factory=lambda: SSE_HEADERS)
    stream_end: bytes = b""
    keep_alive: bytes = b""
    keep_alive_seconds: float | None = None
    forwarded_headers: frozenset[str] = frozenset()
    rate_limit_headers: Callable[[Sequence[RateLimit]], Mapping[bytes, bytes]] = openai_headers
    counts_bytes: bool = False

    def headers_of(self, request_id: str) -> Mapping[str, str]:
        """The headers that every answer to the request with this id has."""
        return {} if self.reply_headers is None else self.reply_headers(request_id)


class Asked(Struct, frozen=True):
    """What is looked at before a request goes anywhere.

    Attributes:
        model: the public id.
        stream: whether a stream is wanted.
        extent: what it may come to.
        operation: what it comes down to, where the request says more than its path.
        other_names: by which the API knows the same model as well.
        fields: the members of the request that the call has, where they are not those that came.
    """

    model: str
    stream: bool = False
    extent: Extent = Extent()
    operation: Operation | None = None
    other_names: Sequence[str] = ()
    fields: JSONFields | None = None


def _as_the_server_says(fields: Mapping[str, Raw]) -> float | None:
    """No request says how long its model stays."""
    return None


def _something(fields: Mapping[str, Raw], model: str) -> bytes | None:
    """Every request asks for something."""
    return None


class Restored(Struct, frozen=True):
    """A request that is to be relayed, with what its turns lost.

    Attributes:
        fields: its members.
        place: where its conversation has come to.
        adapted: as in `llama_compat.exchange.Reply`.
        headers: lists of words, to which those of the call's own headers come first.
    """

    fields: Mapping[str, Raw]
    place: TurnPlace
    adapted: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}


def restorer(
    member: str, restored: Callable[[Raw, TurnPlace, Recollection], Raw]
) -> Callable[[Mapping[str, Raw], Recollection], Restored]:
    """The `WireTurns.restore` of a wire whose requests have their turns as the items of `member`.

    Args:
        member: its name.
        restored: an item with what it lost, told where the conversation has come to, which it moves
            on; the item itself where there is nothing to be done.
    """

    def restore(fields: Mapping[str, Raw], recollection: Recollection) -> Restored:
        place = TurnPlace()
        listed = fields.get(member)
        if listed is None:
            return Restored(fields, place)
        told = with_items(
            listed, lambda items: [restored(item, place, recollection) for item in items]
        )
        return Restored(fields if told is listed else {**fields, member: told}, place)

    return restore


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTurns:
    """Where a wire has what models thought, for calls that are relayed in it.

    Attributes:
        restore: puts into a request what its turns lost, and leaves out what is another family's.
            What is malformed stays as it is, for the vendor to refuse.
        called: found in a reply that calls a tool.
        ended: found in a stream when all calls are there.
    """

    restore: Callable[[Mapping[str, Raw], Recollection], Restored]
    called: re.Pattern[bytes]
    ended: re.Pattern[bytes]


Said = Callable[[bytes, bool], ChatCompletionResponse | None]
"""What the model said in a reply that is whole, or in what has come of a stream (`True`), and what
it used; of several choices the first. None where that is no reply, or there are no words for it.
Raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReplies:
    """How replies are read that were relayed in a wire, once all of their bytes are there.

    Attributes:
        finished: whether a reply that is whole, or a stream (`True`), says of so many choices that
            each came to an end of its own, and was neither cut nor withheld. Raises ValueError.
        said: what the model said in it.
    """

    finished: Callable[[bytes, bool, int], bool]
    said: Said


def with_reasons(reason: re.Pattern[bytes], own: Set[bytes]) -> Callable[[bytes, bool, int], bool]:
    """`WireReplies.finished` of a wire that has one word a choice for why it ended.

    Args:
        reason: finds each.
        own: the words of what was neither cut nor withheld.
    """

    def finished(body: bytes, streamed: bool, choices: int) -> bool:
        reasons = reason.findall(body)
        return len(reasons) >= choices and own >= set(reasons)

    return finished


def _asks_alone(fields: Mapping[str, Raw]) -> bool:
    """Every request asks for a reply, and for nothing else."""
    return False


class SaidText(Struct, frozen=True):
    """One text of a stream as far as it was relayed.

    Attributes:
        event: the first that had a piece of it, without that.
        text: what it says.
    """

    event: Mapping[str, Any]
    text: str


class Withheld(Protocol):
    """Ends a stream that was relayed and of which no more may be shown."""

    def __call__(
        self,
        told: Sequence[Mapping[str, Any]],
        texts: Sequence[SaidText],
        fields: Mapping[str, Raw],
    ) -> bytes:
        """The end, but for the dialect's `stream_end`.

        Args:
            told: the events, decoded, that were no pieces of texts.
            texts: those of an API whose events have names, and a sample of all others.
            fields: the request's members.
        """
        ...


class NamedFile(Struct, frozen=True):
    """A place in a request that names a file in place of what is in it.

    Attributes:
        id: the file's.
        path: the place.
        put: puts there what is in the file, after its name and its media type. Raises APIError:
            400, such a file can't be there.
    """

    id: str
    path: str
    put: Callable[[str, str, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFiles:
    """Where the requests of a wire name files that were uploaded before.

    Attributes:
        member: of a request, all of them are in.
        named: those in its value, decoded, in which each is put to its place.
    """

    member: str
    named: Callable[[Any], Iterator[NamedFile]]


Kind = Literal[
    "chat",
    "completion",
    "embedding",
    "token_count",
    "rerank",
    "moderation",
    "image",
    "speech",
    "transcription",
]
"""What is asked of a provider, whatever the client API calls it."""

UNKNOWN = ""
"""The name, among `Operation.parameters`, of what no provider can honour."""

HOSTED_TOOLS = "hosted_tools"
"""The name there of tools that the API's own vendor runs, such as its web search."""

HOSTED_SETTING = "hosted_setting"
"""The name there of a setting of such a tool that this server, where it runs it, does not know."""

CITED_DOCUMENTS = "cited_documents"
"""The name there of the wish that a reply says where in a document it has something from."""

TOOL_GRAMMAR = "tool_grammar"
"""The name there of a grammar that a tool's input should match, of which the model is told too."""

CHECKED_ARGUMENTS = "checked_arguments"
"""The name there of the wish that calls which a model is free to make match their schemas."""

EMBEDDING_PURPOSE = "embedding_purpose"
"""The name there of what a vector is to be for, as Gemini's `taskType` says."""


def _no_parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """Nothing that is asked is a parameter."""
    return {}


def _relayed_alone(body: Mapping[str, Any], model: str) -> NoReturn:
    """There are no words for it in the vocabulary: who does not relay it refuses it."""
    raise RuntimeError("an operation that is relayed alone was to be translated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of a client API.

    Attributes:
        dialect: the API.
        name: the wire, as providers name those that they relay: `chat`, `messages`, ...
        kind: what it comes down to in the vocabulary.
        look: a cheap look at a request's members and at the path's parameters, for relays too.
            Raises APIError (400).
        parameters: the members of a decoded request that ask something of the provider, by their
            path (`text.format`), and OpenAI's name for what each asks; none unless it says so.
        usual: the paths among `parameters` that ask for what the API does anyway, which clients say
            with every request: a provider that can't honour them leaves them out, and they are
            named, but never refused.
        hints: OpenAI's names of the hints that its requests may have, by the paths where a decoded
            one has them (`llama_compat.fitting.hints`); `UNKNOWN` where OpenAI has none.
        stop_members: the members that a request's stop strings are in.
        shows_images: whether its replies have a place for what a model draws.
        say_effort: says in a decoded request how hard to think, in the form that a model takes, if
            that is not said so already; None where OpenAI's word stands at its own place. Returns
            the names of the members that it changed.
        effort: OpenAI's word for how hard a decoded request wants a model to think; goes together
            with `say_effort`.
        turns: where what models thought stands when it is relayed; None where that is left alone.
        replies: how those are read that are relayed; None where nobody reads them.
        files: where files are named that were uploaded; None where none can be.
        lasts: whether a request with these members does more than ask for a reply, so that no two
            of them are the same: it adds to a conversation that a vendor keeps, or begins what is
            asked for later.
        parse: a decoded request and the provider's name for the model, in the vocabulary. Raises
            APIError (400).
        capability: what it is, for people, where the vocabulary has no words for it: a provider
            that does not relay it does not have it.
        form: whether a request may be a form (`multipart/form-data`), whose texts are its members.
        nothing: the whole reply to a request that asks nothing of the model, given its members and
            the public model; None for all others.
        withheld: ends a stream that was relayed; None where that can't be ended but by an error.
        keep_alive: for how many seconds without a request its model is to stay in memory: 0 for
            none, infinity for ever; None where the request does not say. Raises APIError (400).
    """

    dialect: Dialect
    name: str
    kind: Kind
    look: Callable[[JSONFields, Mapping[str, str]], Asked]
    parameters: Callable[[Mapping[str, Any]], Mapping[str, str]] = _no_parameters
    parse: Callable[
        [Mapping[str, Any], str],
        Translation | EmbeddingTranslation | TokenCountTranslation | RerankTranslation,
    ] = _relayed_alone
    capability: str = ""
    form: bool = False
    nothing: Callable[[Mapping[str, Raw], str], bytes | None] = _something
    usual: Callable[[Mapping[str, Any]], Collection[str]] = lambda body: ()
    hints: Callable[[Mapping[str, Any]], Mapping[str, str]] = _no_parameters
    stop_members: frozenset[str] = frozenset()
    shows_images: bool = False
    say_effort: Callable[[dict[str, Any], str, ThinkingForm], Collection[str]] | None = None
    effort: Callable[[Mapping[str, Any]], str | None] | None = None
    turns: WireTurns | None = None
    withheld: Withheld | None = None
    replies: WireReplies | None = None
    files: WireFiles | None = None
    lasts: Callable[[Mapping[str, Raw]], bool] = _asks_alone
    keep_alive: Callable[[Mapping[str, Raw]], float | None] = _as_the_server_says


@dataclass(frozen=True, slots=True)
class Labels:
    """What a reply says of itself.

    Attributes:
        model: the public id.
        request_id: the request's.
        unique: 24 hexadecimal digits, for the ids of this reply.
        created: in seconds since 1970.
        loading: as in `llama_compat.exchange.Call`.
    """

    model: str
    request_id: str = ""
    unique: str = field(default_factory=lambda: os.urandom(12).hex())
    created: int = field(default_factory=lambda: int(time.time()))
    loading: float = 0.0

    @classmethod
    def of(cls, call: Call) -> Labels:
        """Those of the reply to `call`."""
        return cls(call.model, call.request_id, loading=call.loading)


class StreamRenderer(Protocol):
    """Renders the events of one reply's choices as the bytes of a stream, in whole events."""

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """What `event` of the choice `choice` adds, which may be nothing."""
        ...

    def finish(self, usage: Usage) -> bytes:
        """What is due when every choice is complete, but for the dialect's `stream_end`."""
        ...

    def fail(self, error: APIError) -> bytes:
        """What is due in place of the rest: the error, and the stream's end."""
        ...


class Translation(Protocol):
    """A client's request in the vocabulary, and the way back to its API."""

    @property
    def requests(self) -> Sequence[ChatCompletionRequest] | Sequence[CompletionRequest]:
        """One request a choice: all of the first prompt's, then all of the second's."""
        ...

    @property
    def choices_per_prompt(self) -> int:
        """How many of `requests` there are for each prompt."""
        ...

    def render_reply(
        self,
        responses: Sequence[Any],
        usage: Usage,
        labels: Labels,
    ) -> bytes:
        """The whole reply of the choices' `ChatCompletionResponse` or `CompletionResponse`."""
        ...

    def stream_renderer(self, labels: Labels) -> StreamRenderer:
        """A renderer for this request's stream."""
        ...


class EmbeddingTranslation(Protocol):
    """A client's request for embeddings in the vocabulary, and the way back to its API."""

    @property
    def request(self) -> EmbeddingRequest:
        """What is asked."""
        ...

    def render_reply(self, response: EmbeddingResponse, labels: Labels) -> bytes:
        """The whole reply."""
        ...


class RerankTranslation(Protocol):
    """A client's request to rank documents in the vocabulary, and the way back to its API."""

    @property
    def request(self) -> RerankRequest:
        """What is asked."""
        ...

    def render_reply(self, response: RerankResponse, labels: Labels) -> bytes:
        """The whole reply."""
        ...


class TokenCountTranslation(Protocol):
    """A client's request to count a conversation's tokens, and the way back to its API."""

    @property
    def request(self) -> ChatCompletionRequest:
        """The conversation whose tokens are counted."""
        ...

    def render_reply(self, tokens: int) -> bytes:
        """The whole reply."""
        ...


Response = ChatCompletionResponse | CompletionResponse
