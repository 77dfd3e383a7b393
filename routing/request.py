"""One request, from its first byte to its record: the one state that all who handle it share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType, field

from llama_compat.dialects.base import Asked, Operation
from llama_compat.dialects.rate_limits import RateLimit
from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY, VENDORS_ID_HEADER, Call, Principal, Reply, done_soon
from llama_compat.text.one_line import one_line
from llama_compat.types import Usage
from llama_compat.wire.json_fields import JSONFields
from routing.observability.request_line import RequestLine
from routing.observability.sample import Sample
from routing.policy.attempts import Attempts

if TYPE_CHECKING:
    from llama_compat.hosted.parts import ReplyPart
    from llama_compat.wire.forms import Form
    from routing.cache.readings import Reading
    from routing.cache.replies.store import MemoryHit
    from routing.layers.deferred import Deferral
    from routing.layers.keeping.recall import Recall
    from routing.models import Route
    from routing.observability.telemetry.context import Trace


class Spent(Struct):
    """What a request has used.

    Attributes:
        usage: None where nothing was generated, or nobody knows.
        estimated: whether nobody has counted it.
        cost: in billionths of a dollar; None where nobody knows, unset until somebody asks.
    """

    usage: Usage | None
    estimated: bool
    cost: int | UnsetType | None = UNSET


NO_HEADERS: Mapping[str, str] = {}
NO_VERDICTS: Mapping[tuple[str, str], int] = {}


class Request(Struct, eq=False):
    """One request as far as it has come.

    Whoever begins one ends it, once, however it ends; what has to be known or given back then is
    registered with `when_ended`.

    Attributes:
        operation: which call of which client API; what the path says until the body says more.
        request_id: its `x-request-id`.
        principal: who asks; None where the request brought no good key.
        attempts: what was tried to answer it, and the headers that it brought.
        path: where it was sent, for the log.
        sample_bytes: how much of the beginning of its answer is remembered; 0 for nothing of it.
        begun: when it came in, on the clock of `time.monotonic`, as all times here.
        body: what the client sent.
        reading: what was read of it, where that is remembered.
        model: what it asked for; empty as long as that is not known.
        other_names: by which `model` is known as well, in the client's API.
        call: what is asked, once it has been read.
        route: where that goes, once it has been looked up.
        deferral: how it is answered without being sent: as a line of a vendor's own batch; None for
            all others.
        recall: what the WebSocket that it came on knows of earlier responses.
        rate_limits: what is left of the limits that it met.
        trace: its spans, where it is traced.
        reply: what a provider answered.
        status: HTTP status; 0 while there is none.
        first_sent: when the first of the reply was sent.
        sent: of a stream or an error, as far as it was sent; None where nothing was.
        error: what the client was told of.
        outcome: what went wrong, for the log; empty if nothing did.
        complete: whether the client got all of the reply.
        cancelled: whether it left, or the server stopped, before that.
        goes_on: whether it ends later than its answer, in the background.
        is_handed_on: whether another process goes on with it, whose record it is then.
        cached: whether its reply is one that others had asked for, so that it costs nothing.
        hit: where that is in the memory of this process, as the same bytes.
        stays: called when its client has left, says whether others wait for the same, so that it is
            not given up; what it is given is called when none of them does any more. None where
            nobody can.
        ended: when it had ended.
        verdicts: how often each guardrail came to each verdict, by both.
        parts: what its reply is made of, where the server ran tools for it.
        spent: what it used and cost, as far as somebody needed to know; the same from then on.
    """

    operation: Operation
    request_id: str
    principal: Principal | None = None
    attempts: Attempts = field(default_factory=Attempts)
    path: str = ""
    sample_bytes: int = 0
    begun: float = field(default_factory=time.monotonic)
    body: bytes = b""
    reading: Reading | None = None
    model: str = ""
    other_names: Sequence[str] = ()
    call: Call | None = None
    route: Route | None = None
    deferral: Deferral | None = None
    recall: Recall | None = None
    rate_limits: Sequence[RateLimit] = ()
    trace: Trace | None = None
    reply: Reply | None = None
    status: int = 0
    first_sent: float = 0.0
    sent: Sample | None = None
    error: APIError | None = None
    outcome: str = ""
    complete: bool = False
    cancelled: bool = False
    goes_on: bool = False
    is_handed_on: bool = False
    cached: bool = False
    hit: MemoryHit | None = None
    stays: Callable[[Callable[[], None]], bool] | None = None
    ended: float = 0.0
    verdicts: Mapping[tuple[str, str], int] = NO_VERDICTS
    parts: Sequence[ReplyPart] = ()
    spent: Spent | None = None
    _free: Callable[[Request], asyncio.Task[None] | None] | None = None
    _at_end: list[Callable[[Request], None]] = field(default_factory=list)

    def asks(
        self,
        fields: JSONFields,
        asked: Asked,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        counts_usage: bool = False,
        form: Form | None = None,
    ) -> None:
        """Its body has been read.

        Args:
            fields: the members of its JSON object.
            asked: what its dialect has seen in them.
            headers: those for a vendor that speaks the same API.
            counts_usage: whether somebody here needs the reply's usage.
            form: the form that it is; None for JSON.
        """
        if asked.operation is not None:
            self.operation = asked.operation
        self.model, self.other_names = asked.model, asked.other_names
        self.call = Call(
            operation=self.operation,
            fields=fields if asked.fields is None else asked.fields,
            model=asked.model,
            stream=asked.stream,
            request_id=self.request_id,
            headers=headers,
            principal=self.principal or ANYBODY,
            counts_usage=counts_usage,
            extent=asked.extent,
            form=form,
        )

    def is_wanted(self, desert: Callable[[], None]) -> bool:
        """Whether others wait for it, now that its client has left; when none of them does any
        more, `desert` is called."""
        return self.stays is not None and self.stays(desert)

    # What was sent --------------------------------------------------------------------------------

    def sampled(self) -> Sample:
        """Where whoever sends the answer, if it is not one whole reply, notes what is sent."""
        if self.sent is None:
            self.sent = Sample(self.sample_bytes)
        return self.sent

    @property
    def told_verdicts(self) -> str:
        """`NAME:VERDICT` of each guardrail that came to one, a blank between two."""
        # A thread may be looking through a text, and find something.
        return " ".join(sorted(map(":".join, list(self.verdicts))))

    @property
    def sample(self) -> Sample:
        """Of what was sent."""
        if self.sent is not None:
            return self.sent
        whole = Sample(self.sample_bytes)
        if self.reply is not None and isinstance(self.reply.body, bytes):
            whole.add(self.reply.body)
        return whole

    @property
    def tail(self) -> bytes:
        """How what was sent ended."""
        if self.sent is not None:
            return self.sent.tail
        reply = self.reply
        return reply.body if reply is not None and isinstance(reply.body, bytes) else b""

    # Its end --------------------------------------------------------------------------------------

    def when_ended(self, tell: Callable[[Request], None]) -> None:
        """Have `tell` called once, when it has ended; who comes last is told first."""
        self._at_end.append(tell)

    def meets(self, limits: Sequence[RateLimit]) -> None:
        """It was held against limits of which so much is left."""
        self.rate_limits = limits

    def reserves(self, free: Callable[[Request], asyncio.Task[None] | None]) -> None:
        """Something is reserved for it; `free` gives that back, and returns what sees to it if that
        takes a while."""
        self._free = free

    @property
    def holds_something(self) -> bool:
        """Whether something is reserved for it that is not given back yet."""
        return self._free is not None

    async def settle(self) -> None:
        """Give back what is reserved for it, unless it goes on.

        Its client knows of its end when it gets the last of the answer, and may then ask for as
        much again: whoever sends that settles first.
        """
        if not self.goes_on and (task := self._freed()) is not None:
            await done_soon(task)

    def _freed(self) -> asyncio.Task[None] | None:
        free, self._free = self._free, None
        return None if free is None else free(self)

    def failed(self, error: APIError) -> None:
        """It ends in `error`, which has come to where it is answered."""
        error.let_go()
        self.error, self.outcome = error, error.message
        vendors_id = error.headers.get(VENDORS_ID_HEADER)
        if vendors_id is not None:
            self.outcome += f" (the vendor's request {vendors_id})"

    def left(self, why: str = "") -> None:
        """Nobody waits for it any more: the client is gone, which is `why`, or the server stops."""
        self.cancelled, self.outcome = True, why

    def was_read(self, reply: Reply) -> None:
        """Nobody is sent its reply, which was read here as far as it goes."""
        self.reply, self.status, self.complete = reply, reply.status, reply.is_complete
        if reply.error is not None:
            self.failed(reply.error)
        self.cancelled = not (reply.is_complete or reply.error)

    async def went_on(self, later: Request) -> None:
        """What went on after its answer has ended, as `later` says."""
        self.attempts, self.reply, self.error = later.attempts, later.reply, later.error
        self.verdicts, self.parts, self.cached = later.verdicts, later.parts, later.cached
        self.cancelled = later.reply is None and later.error is None
        self.sent, self.goes_on = None, False
        try:
            await self.settle()
        finally:
            self.end()

    def hand_on(self) -> None:
        """Another process goes on with what went on after its answer: it ends here as if nothing
        had come of it."""
        self.reply, self.goes_on, self.is_handed_on = None, False, True
        self.end()

    def end(self) -> None:
        """It has ended, as well as could be."""
        self.ended = time.monotonic()
        self._freed()
        at_end, self._at_end = self._at_end, []
        for tell in reversed(at_end):
            tell(self)

    # What is known of it then ---------------------------------------------------------------------

    def line(self, *, with_usage: bool = False) -> RequestLine:
        """What the log says of it, with the tokens that it cost if they are known."""
        usage = self.attempts.usage if with_usage else None
        return RequestLine(
            self.request_id,
            self.path,
            one_line(self.model) if self.model else "-",
            self.status,
            (time.monotonic() - self.begun) * 1000,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.completion_tokens,
            one_line(self.attempts.in_words()) if len(self.attempts.made) > 1 else "",
            one_line(self.outcome) if self.outcome else "",
        )


Handler = Callable[[Request], Awaitable[Reply]]
"""Answers a request whose `call` is there: a chain of layers, or what it ends in."""
