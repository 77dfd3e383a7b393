"""What is asked and said is looked through, by the checks of the template, the model and the key.

What is translated is looked through as parts of the vocabulary (`llama_compat.translation`). What
is relayed is looked through here: the texts of its JSON, and of a stream those that its events
bring piece by piece. Translated is what a check is asked about as a whole, several replies in one
stream, and a stream into which something is put back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import Labels, Translation
from llama_compat.errors import APIError, blocked, nested_too_deeply, unsupported_whoever_answers
from llama_compat.exchange import GUARDRAILS_HEADER, JSON_HEADERS, Call, Reply
from llama_compat.fitting.honoured import decoded
from llama_compat.guardrails.asked.drawn import may_show, seen
from llama_compat.guardrails.asked.pictures import pictures_in, pictures_of
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.documents import said_in
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.relayed.pictures import seen_along
from llama_compat.guardrails.relayed.places import moved_with
from llama_compat.guardrails.relayed.stream import GuardedStream
from llama_compat.guardrails.settings import CheckSettings, Place
from llama_compat.off_loop import off_loop
from llama_compat.text.changes import Traces
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    CompletionResponse,
    StopReason,
    Usage,
)
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import from_raw, to_raw
from routing.layers.asking import Asking
from routing.models import Route
from routing.request import Handler, Request

if TYPE_CHECKING:
    from llama_compat.wire.forms import Form

_SPOKEN = frozenset({"chat", "completion", "rerank", "transcription", "image"})
"""Kinds of calls in whose replies there is text."""


_OFFERS = frozenset({"tools", "functions"})
"""What a model is offered, which nobody says."""


_TOLD = (
    "instructions",
    "system",
    "systemInstruction",
    "system_instruction",
    "generateContentRequest",
    "contents",
    "messages",
    "input",
    "prediction",
)
"""What a vendor is told besides what its model reads for a reply: to count it, or as a guess of
what will be said."""


class Guardrails:
    """Which checks count for which request.

    Args:
        always: those of the template.
        by_model: those of models, by their ids. Those of a key are known of who asks with it.

    Attributes:
        asking: asks the checks that are asked about whole texts.
    """

    def __init__(
        self,
        always: Sequence[CheckSettings],
        by_model: Mapping[str, Sequence[CheckSettings]],
    ) -> None:
        self._always = always
        self._by_model = by_model
        self._known: dict[tuple[str, str], tuple[Sequence[CheckSettings], Checks | None]] = {}
        self.asking = Asking()

    def of(self, call: Call, route: Route) -> Checks | None:
        """The checks that `call` has to pass; None for none."""
        model = route.name if route.name in self._by_model else ""
        of_key = call.principal.guardrails
        who = model, call.principal.id if of_key else ""
        known = self._known.get(who)
        if known is None or known[0] != of_key:  # those of a stored key may change
            settings = (*self._always, *self._by_model.get(model, ()), *of_key)
            known = self._known[who] = of_key, Checks(settings) if settings else None
        return known[1]

    def own(self, call: Call, route: Route) -> Sequence[CheckSettings]:
        """Those of `of` that are not the template's for all: the model's and the key's."""
        return (*self._by_model.get(route.name, ()), *call.principal.guardrails)

    def told_apart(self, call: Call, route: Route) -> str:
        """The same for calls that have to pass the same."""
        checks = self.of(call, route)
        return "" if checks is None else checks.told_apart


class GuardrailsLayer:
    """Lets through what passes the checks, changed as they want it.

    Args:
        next: answers requests.
        guardrails: which checks count.
    """

    def __init__(self, next: Handler, guardrails: Guardrails) -> None:
        self._next = next
        self._guardrails = guardrails

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: 400, it is blocked, or can't be looked through; or what the next layer raises.
        """
        call, route = request.call, request.route
        assert call is not None
        assert route is not None
        checks = self._guardrails.of(call, route)
        return self._next(request) if checks is None else self._answer(request, call, checks)

    async def _answer(self, request: Request, call: Call, checks: Checks) -> Reply:
        asking = self._guardrails.asking
        guard = Guard(checks, asking.ask, asking.fetch)
        request.verdicts = guard.verdicts
        try:
            call = await guard.off_loop(call.size, _asked, call, guard)
            is_answered = request.deferral is not None and request.deferral.is_answered
            if checks.asks_about_requests and not is_answered:
                for said in await off_loop(call.size, _said, call):
                    await guard.ask(said)
            if checks.look_at_pictures and not is_answered:
                call = await _look_at(call, guard)
        except Blocked as stop:
            raise blocked(stop.check) from None
        if checks.asks_about_replies and not call.operation.capability:
            call = replace(call, may_be_relayed=False)
        elif (
            guard.changes_replies
            and call.operation.kind in _SPOKEN
            and not _may_be_relayed(call, guard)
        ):
            if call.operation.capability:
                raise unsupported_whoever_answers(
                    "stream", "what it says has to pass guardrails, which look at it whole"
                )
            call = replace(call, may_be_relayed=False)
        request.call = replace(call, guard=guard)
        try:
            reply = await self._next(request)
        except APIError as error:
            await guard.look_through(error)
            raise
        body, was_relayed = reply.body, reply.translation is None and not reply.media
        if guard.changes_replies and was_relayed and call.operation.kind in _SPOKEN:
            try:
                if not isinstance(body, bytes):
                    await _look_along(reply, body, call, guard)
                else:
                    if checks.asks_about_replies:
                        await _ask_about(body, guard)
                    await _look_through_whole(reply, body, call, guard)
            except BaseException:
                await reply.aclose()
                raise
        if guard.hid:
            reply.headers = {**reply.headers, GUARDRAILS_HEADER: "redacted=" + ",".join(guard.hid)}
        return reply


async def _look_at(call: Call, guard: Guard) -> Call:
    """Have the pictures of a call looked at.

    Returns:
        the call, which is translated where others are sent than came.

    Raises:
        APIError: 400, one is to be hidden in a form.
        Blocked: one may not go by.
    """
    pictures = await off_loop(call.size, _pictures, call)
    if pictures is None:
        guard.unseen("input", "tool_results")
        return call
    await guard.look(pictures)
    if not guard.changes_pictures:
        return call
    if call.operation.capability:
        raise unsupported_whoever_answers("image", "a guardrail can't hide a picture of a form")
    return replace(call, may_be_relayed=False)


_NAMES_OF_PICTURES = (b"image", b"file", b"inline", b"\\u")
"""One of these is in every API's JSON that has a picture: in a name, in a media type, or because a
name is written in escapes."""


def _pictures(call: Call) -> dict[Place, list[str]] | None:
    """The URLs of the pictures that a call shows to a model, by where they stand; None where that
    can't be told."""
    if call.form is not None:
        return {"input": pictures_in(call.form)}
    if call.relayed is not None:
        own = _pictures(replace(call, relayed=None))
        more = _pictures(replace(call, relayed=None, fields=call.relayed))
        if own is None or more is None:
            return None
        return {place: [*own.get(place, ()), *more.get(place, ())] for place in (*own, *more)}
    fields = [bytes(raw) for raw in call.fields.values()]
    named = (name.encode() for name in call.fields)
    if not any(name in each for each in (*fields, *named) for name in _NAMES_OF_PICTURES):
        return {}
    if call.operation.capability:
        return None
    try:
        parsed = call.operation.parse(decoded(call), call.model)
    except APIError:
        return None
    found: dict[Place, list[str]] = {}
    requests = getattr(parsed, "requests", ()) or (getattr(parsed, "request", None),)
    for request in requests[:1]:
        if isinstance(request, ChatCompletionRequest):
            found = pictures_of(request)
    return found


def _said(call: Call) -> list[Said]:
    """What somebody says in a call that a model reads, by where it stands."""
    said: dict[Place, list[str]] = {}
    for place, text in _spoken(call):
        said.setdefault(place, []).append(text)
    return [Said(place, tuple(texts)) for place, texts in said.items()]


def _spoken(call: Call) -> Iterator[tuple[Place, str]]:
    """The same text by text; of what is relayed with more than the client sent, such as earlier
    turns, that too."""
    spoken = _spoken_in(call, call.fields)
    if call.relayed is None:
        return spoken
    return iter(dict.fromkeys((*spoken, *_spoken_in(call, call.relayed))))


def _spoken_in(call: Call, fields: Mapping[str, Raw]) -> Iterator[tuple[Place, str]]:
    for name in dict.fromkeys((*call.extent.prompt.names, *_TOLD)):
        if name in fields and name not in _OFFERS:
            yield from said_in(from_raw(fields[name]), "input", name)


def _may_be_relayed(call: Call, guard: Guard) -> bool:
    """Whether what a vendor answers in the client's own language can be looked through."""
    if "background" in call.fields and from_raw(call.fields["background"]) is True:
        return False
    if not call.stream:
        return True
    if guard.checks.is_slow_with_replies:
        return False
    if call.operation.capability:  # of which no stream has more than one text
        return not (guard.puts_back or guard.checks.asks_about_replies)
    is_one = call.operation.withheld is not None and call.extent.given == 1
    return is_one and not guard.puts_back


async def _look_along(
    reply: Reply, body: AsyncGenerator[bytes, None], call: Call, guard: Guard
) -> None:
    """Make of a stream that is relayed what the client may have of it."""
    stream = GuardedStream(
        guard,
        call.operation.withheld,
        call.fields,
        counts_bytes=call.operation.dialect.counts_bytes,
    )
    reply.body = shown = _shown(reply.first, body, stream, guard, call)
    reply.first = b""
    # A generator that has not begun would not close what it reads from.
    reply.first = await anext(shown)


async def _shown(
    first: bytes, body: AsyncGenerator[bytes, None], stream: GuardedStream, guard: Guard, call: Call
) -> AsyncGenerator[bytes, None]:
    """A stream as it may be shown: first what begins it, which may be nothing yet.

    Raises (from the generator):
        APIError: no more of it may be shown, and its API has no words for that.
    """
    async with aclosing(body) as events:
        shown = await _pushed(first, stream, guard, call)
        if shown or stream.blocked is None or call.operation.withheld is not None:
            yield shown
        if stream.blocked is not None:
            _stop(stream.blocked, call)
            return
        try:
            async for each in events:
                if shown := await _pushed(each, stream, guard, call):
                    yield shown
                if stream.blocked is not None:
                    _stop(stream.blocked, call)
                    return
        except APIError as error:
            await guard.look_through(error)
            raise
        if rest := stream.finish():
            yield rest
        if stream.blocked is not None:
            _stop(stream.blocked, call)


def _stop(stop: Blocked, call: Call) -> None:
    """A stream has come to an end of which no more may be shown.

    Raises:
        APIError: its API has no words for that.
    """
    if call.operation.withheld is None:
        raise blocked(stop.check)


async def _pushed(events: bytes, stream: GuardedStream, guard: Guard, call: Call) -> bytes:
    """What may be shown now that these events have come."""
    if not guard.checks.sees_replies or not may_show(events):
        return stream.push(events)
    shown: list[bytes] = []
    try:
        is_image = call.operation.kind == "image"
        async with aclosing(seen_along(events, guard, of_images=is_image)) as seen_events:
            async for each in seen_events:
                shown.append(stream.push(each))
                if stream.blocked is not None:
                    break
    except Blocked as stop:
        shown.append(stream.withhold(events, stop))
    return b"".join(shown)


def _asked(call: Call, guard: Guard) -> Call:
    """What goes on of a call.

    Raises:
        APIError: 400, it is nested too deeply, or is a form in which nothing can be hidden.
        Blocked: nothing does.
    """
    name = too_deep(call.fields)
    if name is not None:
        raise nested_too_deeply(name, MAX_DEPTH)
    if not guard.checks.looks_at_requests:
        return call
    spoken = frozenset(_spoken(call)) if guard.checks.is_slow else frozenset()
    fields = guard.fields(call.fields, spoken)
    relayed = None if call.relayed is None else guard.fields(call.relayed, spoken)
    form = None if call.form is None else _types_seen(call.form, guard)
    if form is not None and fields is not call.fields:
        form = _changed(form, call.fields, fields)
    return replace(call, fields=fields, relayed=relayed, form=form)


def _types_seen(form: Form, guard: Guard) -> Form:
    """A form whose parts say what they are, where that may be said: a type can have any words."""
    parts = tuple(
        each
        if each.type is None or guard.text("input", each.type, is_said=False) == each.type
        else replace(each, type=None)
        for each in form.parts
    )
    return form if parts == form.parts else replace(form, parts=parts)


def _changed(form: Form, old: Mapping[str, Raw], new: Mapping[str, Raw]) -> Form:
    """A form with what is to be in the place of texts in it, and of the names of its files.

    Raises:
        APIError: 400, a text is one of several, of which one can't be told from the others.
    """
    from llama_compat.wire.forms import parse_form

    texts: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    named = {part.name for part in form.parts if part.file is not None}
    for name, raw in new.items():
        if raw == old.get(name):
            continue
        value = from_raw(raw)
        if name in named:
            files[name] = value if isinstance(value, list) else [value]
        elif isinstance(value, str):
            texts[name] = value
        if name not in old or (name in files) == (name in texts) or _is_mixed(form, name):
            raise unsupported_whoever_answers(name, "a guardrail can't hide a part of it")
    form = form.with_file_names(files)
    return parse_form(form.render(texts), form.content_type)


def _is_mixed(form: Form, name: str) -> bool:
    """Whether a member is a text as well as a file."""
    return len({part.file is None for part in form.parts if part.name == name}) > 1


async def _ask_about(body: bytes, guard: Guard) -> None:
    """Have the checks asked about a whole reply that only a relay has.

    Raises:
        APIError: 400, it is blocked.
    """
    try:
        said = from_raw(Raw(body))
    except ValueError:
        said = body.decode(errors="replace")
    try:
        await guard.ask(Said("output", tuple(text for _, text in said_in(said, "output"))))
    except Blocked as stop:
        raise blocked(stop.check) from None


async def _look_through_whole(reply: Reply, body: bytes, call: Call, guard: Guard) -> None:
    """Make of a whole reply that was relayed what the client may have of it.

    Raises:
        APIError: it may have nothing, and its API has no reply that says so.
    """
    try:
        if guard.checks.sees_replies:
            is_image = call.operation.kind == "image"
            reply.body = body = await seen(body, guard, of_images=is_image)
        in_bytes = call.operation.dialect.counts_bytes
        await guard.off_loop(len(body), _look_through, reply, body, guard, in_bytes)
    except Blocked as stop:
        _withhold(reply, call, stop)


def _look_through(reply: Reply, body: bytes, guard: Guard, in_bytes: bool) -> None:
    """The same for its texts, of whose places it tells in bytes or in characters.

    Raises:
        Blocked: it may have nothing.
    """
    try:
        said = from_raw(Raw(body))
    except ValueError:
        # a transcription as text, or as subtitles
        reply.body = str(guard.said(body.decode(errors="replace"))).encode()
        return
    traces = Traces(in_bytes=in_bytes)
    shown = guard.said(said, traces=traces)
    if shown is not said:
        reply.body = bytes(to_raw(moved_with(said, shown, traces)))


def _withhold(reply: Reply, call: Call, stop: Blocked) -> None:
    """Make of a whole reply that was relayed the one that says that there is none.

    Raises:
        APIError: its API has none that says so.
    """
    usage = reply.usage
    reply.body = _withheld(call, usage or Usage(), stop)
    reply.headers = {**reply.headers, **JSON_HEADERS}


def _withheld(call: Call, usage: Usage, stop: Blocked) -> bytes:
    """The reply of the client's API that says that there is none.

    Raises:
        APIError: the API has none.
    """
    if call.operation.capability or call.operation.kind == "rerank":
        raise blocked(stop.check)
    try:
        translation = cast(Translation, call.operation.parse(decoded(call), call.model))
    except APIError:
        raise blocked(stop.check) from None
    reason = StopReason.content_filter
    responses = [
        ChatCompletionResponse(CompletionMessage((), reason))
        if isinstance(request, ChatCompletionRequest)
        else CompletionResponse("", reason)
        for request in translation.requests
    ]
    return translation.render_reply(responses, usage, Labels.of(call))
