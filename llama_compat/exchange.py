"""What passes between the router and a provider: one call, and the reply to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from llama_compat.extent import Extent
from llama_compat.types import StreamEvent, Usage

if TYPE_CHECKING:
    from llama_compat.dialects.base import Operation
    from llama_compat.distribution import BudgetSettings, LimitSettings
    from llama_compat.errors import APIError
    from llama_compat.fitting.fit import Fit
    from llama_compat.guardrails.guard import Guard
    from llama_compat.guardrails.settings import CheckSettings
    from llama_compat.hosted.toolbox import HostedToolbox
    from llama_compat.reasoning.recollection import Recollection
    from llama_compat.wire.forms import Form


_WILDCARD = re.compile(r"[*?\[]")


JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
"""Those of a reply that is one JSON object."""

DROPPED_HEADER = "x-llama-compat-dropped"
"""Names what was left out of a request."""

ADAPTED_HEADER = "x-llama-compat-adapted"
"""Names what was said to the model in another way."""

VENDORS_ID_HEADER = "x-upstream-request-id"
"""What the vendor calls the request."""

GUARDRAILS_HEADER = "x-llama-compat-guardrails"
"""Names the checks that have hidden something, in the request or in a whole reply."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking.

    Attributes:
        id: names a key without telling it.
        name: the same for people.
        team: whose limits and budget hold too.
        models: patterns of the models that it may ask for; with none, all.
        limits, budget: its own; None for none.
        tools: patterns of the tools that the server may run for it; None for all.
        guardrails: what is looked for in its requests and their replies, besides what is in all.
    """

    id: str
    name: str = ""
    team: str | None = None
    models: tuple[str, ...] = ()
    limits: LimitSettings | None = None
    budget: BudgetSettings | None = None
    tools: tuple[str, ...] | None = None
    guardrails: Sequence[CheckSettings] = field(default=(), hash=False)

    def may_call(self, tool: str) -> bool:
        """Whether the server may run the tool with this name for it."""
        return self.tools is None or any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def may_call_below(self, prefix: str) -> bool:
        """Whether there could be a tool whose name begins with `prefix` that it may have run."""
        return self.tools is None or any(_may_match_below(each, prefix) for each in self.tools)

    def may_use(self, model: str) -> bool:
        """Whether it may ask for the model with this public id or alias."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


def _may_match_below(pattern: str, prefix: str) -> bool:
    plain = _WILDCARD.split(pattern, maxsplit=1)[0]
    return plain.startswith(prefix) or (plain != pattern and prefix.startswith(plain))


ANYBODY = Principal("anybody")
"""Who asks a server that has no keys."""


class Call(Struct, frozen=True):
    """What a client asks. Nobody writes to it: the same call can be given to a second provider.

    Attributes:
        operation: which call of which client API it is.
        fields: the members of the request's JSON object, each value the bytes that the client sent.
        model: the model id that the client asked for; replies name it.
        stream: whether the client wants a stream.
        request_id: names the request in both directions and in every log line.
        headers: those of the client's that its dialect hands to vendors, names in lower case.
        principal: who is asking.
        counts_usage: somebody here needs the reply's usage, asked for by the client or not.
        extent: what it may come to, as its dialect has read it.
        relayed: the members that it is relayed with; None for `fields`.
        form: the form that the request is; None for JSON.
        may_be_relayed: whether a vendor may answer it that speaks the client's API itself.
        recollection: what is known of the conversation's turns that called tools; None where none
            are kept, or the call has to do with none.
        recorded: whether what is said in a reply that is translated is kept beside it.
        toolbox: the tools that the server runs for it; None where it asks for none.
        guard: has what is asked and said looked through where that is translated; None where the
            template wants nothing looked through.
        can_wait: whether nobody waits for it, so that it gives way to all others.
        loading: for how many seconds it has waited for its model to come into memory.
    """

    operation: Operation
    fields: Mapping[str, Raw]
    model: str
    stream: bool
    request_id: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    principal: Principal = ANYBODY
    counts_usage: bool = False
    extent: Extent = Extent()
    relayed: Mapping[str, Raw] | None = None
    form: Form | None = None
    may_be_relayed: bool = True
    recollection: Recollection | None = None
    recorded: bool = False
    toolbox: HostedToolbox | None = None
    guard: Guard | None = None
    can_wait: bool = False
    loading: float = 0.0

    @property
    def size(self) -> int:
        """Bytes of what is asked, about."""
        return sum(memoryview(raw).nbytes for raw in self.fields.values())


class Target(Struct, frozen=True):
    """Where one public model leads to within its provider.

    Attributes:
        model: what the provider calls it.
        context_length: tokens that it may hold, where the template says so.
        fit: what its facts make of a call; None where there is nothing to do.
        prompt_cache: whether prompts are marked for the vendor's cache, where the client has not.
        place: which of the provider's replicas is meant, by its address; empty where there is one
            place alone, or none yet.
    """

    model: str
    context_length: int | None = None
    fit: Fit | None = None
    prompt_cache: bool = False
    place: str = ""


class Recording(Struct):
    """What was said in a reply, so that it can be said again in any client's language.

    Attributes:
        choices: the events of each.
        pays_each_choice: whether a prompt was read, and paid for, once for each of its choices.
    """

    choices: Sequence[Sequence[StreamEvent]]
    pays_each_choice: bool = False


class Reply(Struct, eq=False):
    """What a provider answers a call with: a whole body, or a stream in the client's language.

    A stream has begun when it is handed over: its first content is there, in `first` with all that
    came before it, so that what failed earlier could still have its own status, or be answered by
    another provider. (And a generator that has begun runs its
    `finally` when it is closed; one that has not would not.) The router puts the dialect's
    `stream_end` after it. If it raises `APIError` the router tells the client so in the stream.
    Whoever takes a reply calls `aclose` when done with it, read to the end or not.

    Attributes:
        body: all of it, or what follows `first`, in whole events.
        headers: in lower case; the content type of a stream is the dialect's to say.
        dropped: names of parameters that were asked for and left out.
        adapted: names of those that were said in another way, or were so anyway, with what they are
            now.
        read_usage: gives the usage, once the body has come to its end.
        render_error: how this stream tells of an error, where that depends on what it has said.
        at_end: called once when the reply closes; what they return sees to the rest.
        translation: what it was rendered by; None for one that was relayed.
        recording: what was said in it, once it has come to its end, where the call wants that kept
            and it was rendered.
        loading: as in `Call`, of the call as it was answered.
        media: whether `first` and `body` are neither JSON nor events but sound, say, of which
            `headers` have the type: there is no place in it for an error, nor for an end.
        error: what a stream broke off with, as whoever read it noted.
        read_to_end: whether a stream came to its end, as whoever read it noted.
        closed: whether it was closed, which whoever has it may do more than once.
    """

    body: bytes | AsyncGenerator[bytes, None]
    first: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()
    read_usage: Callable[[], Usage | None] = lambda: None
    render_error: Callable[[APIError], bytes] | None = None
    at_end: tuple[Callable[[Reply], asyncio.Task[None] | None], ...] = ()
    translation: object | None = None
    recording: Recording | None = None
    loading: float = 0.0
    media: bool = False
    error: APIError | None = None
    read_to_end: bool = False
    closed: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all of it was there."""
        return self.read_to_end or isinstance(self.body, bytes)

    @property
    def usage(self) -> Usage | None:
        """What was counted, known when the body has ended; None if nobody counted."""
        return self.read_usage()

    def when_closed(self, tell: Callable[[Reply], asyncio.Task[None] | None]) -> None:
        """Have `tell` called, once, when the reply closes; what it returns sees to the rest."""
        self.at_end += (tell,)

    async def aclose(self) -> None:
        """Close the stream, and with it the upstream request or the engine's slot."""
        self.closed = True
        try:
            if not isinstance(self.body, bytes):
                await self.body.aclose()
        finally:
            at_end, self.at_end = self.at_end, ()
            tasks = []
            for tell in at_end:
                task = tell(self)
                if task is not None:
                    tasks.append(task)
            for task in tasks:
                await done_soon(task)


DONE_SECONDS = 0.5
"""So long the end of a reply waits for what has to be settled before a client knows of it."""


async def done_soon(task: asyncio.Task[None]) -> None:
    """Wait for `task`, which is somebody else's, but not for long: it goes on whatever happens."""
    if not task.done():
        await asyncio.wait([task], timeout=DONE_SECONDS)


async def until_content(
    body: AsyncGenerator[bytes, None], has_content: Callable[[], bool]
) -> bytes:
    """What comes of `body` until the model has said something, for `Reply.first`.

    Headers, an empty first chunk, `message_start` or `response.created` say nothing yet. A stream
    that ends before there is content is given whole.

    Args:
        body: from its beginning.
        has_content: whether there was content in what `body` has given.
    """
    pieces = [await anext(body)]
    while not has_content():
        try:
            pieces.append(await anext(body))
        except StopAsyncIteration:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
