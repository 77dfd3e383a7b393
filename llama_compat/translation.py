"""One call in any client API, answered from a provider's vocabulary.

The request is parsed and held against what the provider can honour (`fitting.honoured`); every
prompt and every choice becomes a stream of events of its own, all of them run at the same time,
and what comes is rendered as one reply or one stream of the client's API.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import structs

from llama_compat.dialects.base import (
    EmbeddingTranslation,
    Labels,
    RerankTranslation,
    StreamRenderer,
    Translation,
)
from llama_compat.dialects.stop_lists import StopBound
from llama_compat.errors import (
    image_in_reply,
    told_by_name,
    upstream_error,
)
from llama_compat.events import Collector, add_usage, says_something
from llama_compat.exchange import (
    JSON_HEADERS,
    Call,
    Recording,
    Reply,
    Target,
    until_content,
)
from llama_compat.fan_out import Events, interleave
from llama_compat.fitting.choices import choices_of
from llama_compat.fitting.cut import cut_at
from llama_compat.fitting.fit import Fitted
from llama_compat.fitting.forced_reply import reply_by_call
from llama_compat.fitting.honoured import (
    GenerationRequest,
    VocabularyProvider,
    honoured,
    parsed_to_count,
)
from llama_compat.hosted.loop import looped
from llama_compat.hosted.vocabulary import WEB_SEARCH, HostedCall, HostedCallDelta
from llama_compat.off_loop import off_loop
from llama_compat.reasoning.recollection import TurnPlace
from llama_compat.tools.members import with_fitting_members, with_own_members
from llama_compat.tools.names import with_fitting_names, with_own_names
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    ImageDelta,
    RerankRequest,
    RerankResponse,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    ToolCallDelta,
    Units,
    Usage,
)

Asked = TypeVar("Asked", ChatCompletionRequest, CompletionRequest)


async def answer_generation(
    provider: VocabularyProvider,
    generate: Callable[[Asked], Events],
    call: Call,
    target: Target,
) -> Reply:
    """Answer a chat or a completion from `generate`, the provider's own.

    Raises:
        APIError: 400 for what the provider can't honour, or what it raised itself.
    """
    parsed, fitted = await off_loop(call.size, honoured, provider, call, target)
    translation = cast(Translation, parsed)
    requests = choices_of(provider, translation, call, target, fitted)
    recollection = call.recollection
    if recollection is not None:
        requests = recollection.restored_all(requests)
    guard = call.guard
    if guard is not None:
        from llama_compat.guardrails.given import requests_seen

        requests = await guard.off_loop(call.size, requests_seen, requests, guard)

    sees = target.fit is None or target.fit.facts.reads("image")
    ask = partial(_named, provider, generate, fitted=fitted)
    turns = _Turns(ask, call, fitted, bound=provider.stop_bound(target.model), sees=sees)
    streams = [turns.reply(request) for request in requests]
    if not call.operation.shows_images:
        streams = [_without_images(provider.id, stream) for stream in streams]
    recording: Recording | None = None
    if call.recorded:
        kept: list[list[StreamEvent]] = [[] for _ in streams]
        streams = [_recorded(*each) for each in zip(streams, kept, strict=True)]
        recording = Recording(kept, provider.pays_each_choice)
    reply = await _rendered(translation, call, streams, provider.pays_each_choice, fitted)
    reply.recording = recording
    return reply


class _Turns:
    """What the model says to the requests of one call, looked through and kept as the call wants.

    Args:
        generate: asks the model once.
        call: that.
        fitted: what it comes to at its model.
        bound: which stop strings that takes; the others are looked for here.
        sees: whether it takes images.
    """

    def __init__(
        self,
        generate: Callable[[Any], Events],
        call: Call,
        fitted: Fitted,
        *,
        bound: StopBound,
        sees: bool,
    ) -> None:
        self._generate = generate
        self._call = call
        self._fitted = fitted
        self._bound = bound
        self._sees = sees

    def reply(self, request: GenerationRequest) -> Events:
        """The whole reply to one request, in which the server's tools are run."""
        toolbox = self._call.toolbox
        if (
            toolbox is not None
            and isinstance(request, ChatCompletionRequest)
            and (request.hosted or request.approved)
        ):
            screen = None if self._call.guard is None else self._screen
            return looped(self._later, request, toolbox, screen, sees=self._sees)
        return self._turn(request)

    def _turn(self, request: GenerationRequest) -> Events:
        """What the model says when it is asked once."""
        call, guard = self._call, self._call.guard
        told, untold = self._bound.split(request.sampling.stop)
        if untold:
            request = structs.replace(
                request, sampling=structs.replace(request.sampling, stop=told)
            )
        if self._fitted.reply_tool and isinstance(request, ChatCompletionRequest):
            stream = reply_by_call(request, self._generate)
        else:
            stream = self._generate(request)
        if untold:
            stream = cut_at(stream, untold, call.extent.prompt, streams=request.stream)
        if getattr(request, "parallel_tool_calls", None) is False:
            stream = _first_call_only(stream)
        if call.recollection is not None and isinstance(request, ChatCompletionRequest):
            stream = call.recollection.kept(stream, TurnPlace.after(request.messages))
        if guard is not None and guard.changes_replies:
            from llama_compat.guardrails.replies import guarded

            stream = guarded(stream, guard, streams=call.stream)
        return stream

    async def _later(self, request: ChatCompletionRequest) -> Events:
        """The same, of a conversation that has come to have results of tools."""
        asked: GenerationRequest = request
        guard = self._call.guard
        if guard is not None:
            from llama_compat.guardrails.given import requests_seen
            from llama_compat.guardrails.guard import Blocked

            try:
                (asked,) = await guard.off_loop(self._call.size, requests_seen, [request], guard)
            except Blocked:
                yield StreamComplete(StopReason.content_filter)
                return
        async with aclosing(self._turn(asked)) as events:
            async for event in events:
                yield event

    async def _screen(self, ended: HostedCall) -> HostedCall | None:
        assert self._call.guard is not None
        from llama_compat.guardrails.given import screened

        return await screened(ended, self._call.guard)


def _named(
    provider: VocabularyProvider,
    generate: Callable[[Asked], Events],
    request: GenerationRequest,
    fitted: Fitted,
) -> Events:
    """What `generate` gives for `request`, whose tools, and what they are given, its vendor may
    have to know by other names."""
    if not isinstance(request, ChatCompletionRequest):
        return generate(cast(Any, request))
    form, members = provider.tool_names, provider.member_names
    named = request if form is None else with_fitting_names(request, form)
    told = named if members is None else with_fitting_members(named, members)
    stream = generate(cast(Any, told))
    if members is not None and told is not named:
        _tell(fitted, _MEMBER_NAMES)
        stream = with_own_members(stream, named, members)
    if form is not None and named is not request:
        _tell(fitted, _TOOL_NAMES)
        stream = with_own_names(stream, request, form)
    return stream


def _tell(fitted: Fitted, name: str) -> None:
    if name not in fitted.adapted:
        fitted.adapted.append(name)


_TOOL_NAMES = "tools.name"
"""What `adapted` calls names of tools that their vendor knows by others."""

_MEMBER_NAMES = "tools.parameters.properties"
"""The same of what they are given."""


async def replayed(translation: Translation, call: Call, recording: Recording) -> Reply:
    """Answer a chat or a completion with what was said before in reply to the same.

    Args:
        translation: what the call comes to; it has as many choices as the recording.
        call: the same.
        recording: what was said.
    """
    streams = [_again(events) for events in recording.choices]
    return await _rendered(translation, call, streams, recording.pays_each_choice, Fitted())


def _adapted_tools(call: Call) -> Sequence[str]:
    """What the model was told in another way of the tools that the server runs."""
    return () if call.toolbox is None else call.toolbox.adapted


async def _rendered(
    translation: Translation,
    call: Call,
    streams: Sequence[Events],
    pays_each_choice: bool,
    fitted: Fitted,
) -> Reply:
    """`streams`, one for each of the request's choices, in the client's language."""
    generation = _Generation(
        streams,
        translation.choices_per_prompt,
        pays_each_choice=pays_each_choice,
        vendor_searches="vendor_search" in fitted.changes,
    )
    labels = Labels.of(call)
    if call.stream:
        renderer = translation.stream_renderer(labels)
        body = generation.rendered(renderer, labels.model)
        return Reply(
            body,
            first=await until_content(body, lambda: generation.spoken),
            dropped=tuple(fitted.dropped) + generation.dropped,
            adapted=(*fitted.adapted, *generation.adapted, *_adapted_tools(call)),
            read_usage=lambda: generation.usage,
            render_error=renderer.fail,
            translation=translation,
        )
    collectors = await generation.collected()
    is_chat = isinstance(translation.requests[0], ChatCompletionRequest)
    responses = [each.chat_completion() if is_chat else each.completion() for each in collectors]
    assert generation.usage is not None
    return Reply(
        translation.render_reply(responses, generation.usage, labels),
        headers=JSON_HEADERS,
        dropped=tuple(fitted.dropped) + generation.dropped,
        adapted=(*fitted.adapted, *generation.adapted, *_adapted_tools(call)),
        read_usage=lambda: generation.usage,
        translation=translation,
    )


async def answer_embedding(
    provider: VocabularyProvider,
    embed: Callable[[EmbeddingRequest], Any],
    call: Call,
    target: Target,
) -> Reply:
    """Answer a request for embeddings from `embed`, the provider's own.

    Raises:
        APIError: 400 for what the provider can't honour, 502 for other than one vector a text, or
            what the provider raised itself.
    """
    parsed, fitted = await off_loop(call.size, honoured, provider, call, target)
    translation = cast(EmbeddingTranslation, parsed)
    request = structs.replace(translation.request, request_id=call.request_id)
    response: EmbeddingResponse = await embed(request)
    texts, vectors = len(request.inputs), len(response.vectors)
    if texts != vectors:
        raise upstream_error(provider.id, f"gave {vectors} vectors for {texts} texts.")
    return Reply(
        translation.render_reply(response, Labels.of(call)),
        headers=JSON_HEADERS,
        dropped=tuple(fitted.dropped),
        read_usage=lambda: Usage(prompt_tokens=response.prompt_tokens),
    )


async def answer_rerank(
    provider: VocabularyProvider,
    rerank: Callable[[RerankRequest], Any],
    call: Call,
    target: Target,
) -> Reply:
    """Answer a request to rank documents from `rerank`, the provider's own.

    Raises:
        APIError: 400 for what the provider can't honour, or what it raised itself.
    """
    parsed, fitted = await off_loop(call.size, honoured, provider, call, target)
    translation = cast(RerankTranslation, parsed)
    request = structs.replace(translation.request, request_id=call.request_id)
    response: RerankResponse = await rerank(request)
    return Reply(
        translation.render_reply(response, Labels.of(call)),
        headers=JSON_HEADERS,
        dropped=tuple(fitted.dropped),
        read_usage=lambda: response.usage,
    )


async def answer_token_count(
    provider: VocabularyProvider,
    count_tokens: Callable[[ChatCompletionRequest], Any],
    call: Call,
    target: Target,
) -> Reply:
    """Answer a request to count a conversation's tokens from `count_tokens`, the provider's own.

    Raises:
        APIError: what the provider raised.
    """
    translation, request = await off_loop(call.size, parsed_to_count, provider, call, target)
    if call.guard is not None:
        from llama_compat.guardrails.given import requests_seen

        (guarded,) = await call.guard.off_loop(call.size, requests_seen, [request], call.guard)
        request = cast(ChatCompletionRequest, guarded)
    if provider.tool_names is not None:
        request = with_fitting_names(request, provider.tool_names)
    if provider.member_names is not None:
        request = with_fitting_members(request, provider.member_names)
    tokens: int = await count_tokens(request)
    return Reply(translation.render_reply(tokens), headers=JSON_HEADERS)


class _Generation:
    """The streams of one request while they run.

    Attributes:
        usage: what all of it cost, once every choice is complete; until then what the vendor has
            searched for, which is paid for however the streams end.
        spoken: whether any of them has said something, or come to its end.
        dropped, adapted: what of the request the model was not given, and what in another way, as
            far as the provider has said.
    """

    def __init__(
        self,
        streams: Sequence[Events],
        choices_per_prompt: int,
        *,
        pays_each_choice: bool,
        vendor_searches: bool,
    ) -> None:
        self._streams = streams
        self._choices_per_prompt = choices_per_prompt
        self._pays_each_choice = pays_each_choice
        self._vendor_searches = vendor_searches
        self.usage: Usage | None = None
        self.spoken = False
        self.dropped: tuple[str, ...] = ()
        self.adapted: tuple[str, ...] = ()

    async def collected(self) -> list[Collector]:
        """What each stream says."""
        collectors = [Collector() for _ in self._streams]
        async with aclosing(interleave(self._streams)) as events:
            async for choice, event in events:
                collectors[choice].add(event)
                if isinstance(event, StreamStart):
                    self._note(event)
        self._add_up([each.usage for each in collectors])
        return collectors

    async def rendered(self, renderer: StreamRenderer, model: str) -> AsyncGenerator[bytes, None]:
        """The streams as one, in the client's language.

        Args:
            renderer: writes it.
            model: the public id, of which is said what goes wrong.
        """
        completed: dict[int, StreamComplete] = {}
        searches = 0
        with told_by_name(model):
            async with aclosing(interleave(self._streams)) as events:
                async for choice, event in events:
                    if isinstance(event, StreamComplete):
                        completed[choice] = event
                    elif self._vendor_searches and _has_searched(event):
                        searches += 1
                        self.usage = Usage(units=Units(searches=searches))
                    if not self.spoken:
                        self.spoken = says_something(event)
                        if isinstance(event, StreamStart):
                            self._note(event)
                    if rendered := renderer.render(choice, event):
                        yield rendered
        usage = self._add_up([completed[choice].usage for choice in sorted(completed)])
        if rendered := renderer.finish(usage):
            yield rendered

    def _note(self, event: StreamStart) -> None:
        if event.dropped or event.adapted:  # by all choices alike
            self.dropped, self.adapted = event.dropped, event.adapted

    def _add_up(self, usages: Sequence[Usage]) -> Usage:
        self.usage = add_usage(
            usages, self._choices_per_prompt, pays_each_choice=self._pays_each_choice
        )
        return self.usage


def _has_searched(event: StreamEvent) -> bool:
    if not (isinstance(event, StreamProgress) and isinstance(event.delta, HostedCallDelta)):
        return False
    return event.delta.call.kind == WEB_SEARCH and event.delta.call.status == "completed"


async def _without_images(provider: str, events: Events) -> Events:
    """`events`, of which none may be an image.

    Raises (from the generator):
        APIError: 400, one is: the client's API has no place for it.
    """
    async with aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, StreamProgress) and isinstance(event.delta, ImageDelta):
                raise image_in_reply(provider)
            yield event


async def _recorded(events: Events, kept: list[StreamEvent]) -> Events:
    """`events`, which are in `kept` as well once they have come."""
    async with aclosing(events) as stream:
        async for event in stream:
            kept.append(event)
            yield event


async def _again(events: Sequence[StreamEvent]) -> Events:
    for event in events:
        yield event


async def _first_call_only(events: Events) -> Events:
    """`events` without the tool calls after the first.

    Not every vendor can be told to make no more than one; a model that still wants the others asks
    again when it has seen what the first gave.
    """
    async with aclosing(events) as stream:
        async for event in stream:
            delta = event.delta if isinstance(event, StreamProgress) else None
            if not isinstance(delta, ToolCallDelta) or delta.index == 0:
                yield event
