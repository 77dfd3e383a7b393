"""The loop: the model is asked, the calls that are the server's are run, their results are given
back, and it is asked again, until it is done or calls a tool of the client's.

All of it is one reply: its parts are numbered through, and its usage is that of all turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

from msgspec import structs

from llama_compat.errors import APIError
from llama_compat.events import Collector, add_usage
from llama_compat.fan_out import Events
from llama_compat.hosted.as_one import AsOne
from llama_compat.hosted.parts import ReplyPart
from llama_compat.hosted.toolbox import HostedToolbox, OpenTools
from llama_compat.hosted.vocabulary import HostedCall, HostedCallDelta, Source
from llama_compat.once import Once
from llama_compat.types import (
    EMPTY_PARTS,
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Content,
    ImageContent,
    Message,
    MessagePart,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextContent,
    ToolChoice,
    ToolResponseMessage,
    UnparseableToolCall,
    Usage,
)

Generate = Callable[[ChatCompletionRequest], Events]

Screen = Callable[[HostedCall], Awaitable[HostedCall | None]]
"""What the model and the client may see of what a tool gave; None for nothing, with which the reply
ends."""


async def looped(
    generate: Generate,
    request: ChatCompletionRequest,
    toolbox: HostedToolbox,
    screen: Screen | None = None,
    *,
    sees: bool = True,
) -> Events:
    """The events of the reply to `request`, in which the server's tools are run.

    Args:
        generate: asks the model.
        request: what the client asks.
        toolbox: what is run.
        screen: looks through what tools give; None where nobody does.
        sees: whether the model takes images, as far as anybody knows.

    Raises (from the generator):
        APIError: what the toolbox or the model's provider raises.
    """
    async with toolbox.opened(request) as tools:
        loop = _Loop(generate, request, toolbox, tools, screen, sees)
        async with aclosing(loop.run()) as events:
            async for event in events:
                yield event


_UNSEEN = "[It shows an image, which you can't see.]"


class _Loop:
    """One reply.

    Args:
        generate: asks the model.
        request: what the client asks.
        toolbox: whose bounds hold.
        tools: what is run.
        screen, sees: as for `looped`.
    """

    def __init__(
        self,
        generate: Generate,
        request: ChatCompletionRequest,
        toolbox: HostedToolbox,
        tools: OpenTools,
        screen: Screen | None,
        sees: bool,
    ) -> None:
        self._generate = generate
        self._request = request
        self._toolbox = toolbox
        self._bounds = toolbox.bounds
        self._tools = tools
        self._screen = screen
        self._sees = sees
        self._is_withheld = False
        self._to_list: list[HostedCall] = []
        self._names = {each.tool_name for each in tools.definitions}
        self._messages: list[Message] = [_renamed(each, tools) for each in request.messages]
        self._usages: list[Usage] = []
        self._sources: list[Source] = []
        self._run_so_far = 0
        self._has_run = False
        self._shown = AsOne(self._names, self._sources)

    async def run(self) -> Events:
        """The events."""
        for listed in self._tools.listed:
            self._to_list.append(await self._screened(listed, listed))
        waiting = [] if self._is_withheld else self._approved()
        if waiting:
            yield StreamStart()
            self._shown.has_started = True
            for event in self._listed():
                yield event
            async with aclosing(self._ran(waiting)) as events:
                async for event in events:
                    yield event
        if self._is_withheld:
            yield StreamComplete(StopReason.content_filter)
            return
        choice = self._request.tool_choice
        for turn in range(1, self._bounds.turns + 1):
            is_last = turn == self._bounds.turns or self._left == 0
            asked, collector = self._asked(ToolChoice("none") if is_last else choice), Collector()
            part = ReplyPart("turn")
            self._toolbox.parts.append(part)
            async with aclosing(self._said(asked, collector, part)) as events:
                async for event in events:
                    yield event
            said = collector.chat_completion()
            part.end(usage=said.usage)
            self._usages.append(said.usage)
            message = said.completion_message
            own = [call for call in message.tool_calls if call.tool_name in self._names]
            cut = message.stop_reason in (StopReason.out_of_tokens, StopReason.content_filter)
            if not own or is_last or cut:
                yield self._complete_as(said)
                return
            parts = tuple(part for part in message.parts if part not in EMPTY_PARTS)
            self._messages.append(structs.replace(message, parts=parts))
            waits = False
            async with aclosing(self._ran(own)) as events:
                async for event in events:
                    waits = waits or _waits(event)
                    yield event
            reason = self._reason_to_end(waits=waits)
            if reason is not None:
                yield self._complete(reason, said.service_tier)
                return
            if choice is not None and choice.mode == "required":
                choice = None  # It has called one, and would never come to its end.

    # The model ------------------------------------------------------------------------------------

    async def _said(
        self, asked: ChatCompletionRequest, collector: Collector, part: ReplyPart
    ) -> Events:
        """The events of what the model says to `asked`, which is what `collector` has then; `part`
        is ended where it fails."""
        try:
            async with aclosing(self._generate(asked)) as events:
                async for event in events:
                    collector.add(event)
                    if not isinstance(event, StreamStart):
                        for each in self._listed():
                            yield each
                    for each in self._shown.of(event, sum(self._completed)):
                        yield each
        except APIError as error:
            part.end(error.error_class.value)
            error.is_last = self._has_run
            raise
        for each in self._shown.ended():
            yield each

    def _asked(self, choice: ToolChoice | None) -> ChatCompletionRequest:
        request = self._request
        tools = (*request.tools, *self._tools.definitions)
        if choice is not None and choice.tool_name not in (None, *(t.tool_name for t in tools)):
            choice = None
        sampling, most = request.sampling, request.sampling.max_tokens
        if most is not None and self._usages:
            sampling = structs.replace(sampling, max_tokens=max(1, most - sum(self._completed)))
        return structs.replace(
            request,
            messages=tuple(self._messages),
            tools=tools,
            tool_choice=choice if tools else None,
            sampling=sampling,
            hosted=(),
            approved=(),
            prepared=Once(),
            mark=None,
        )

    @property
    def _completed(self) -> list[int]:
        return [usage.completion_tokens for usage in self._usages]

    @property
    def _left(self) -> int | None:
        """How many calls may still be run, where the request says so."""
        most = self._request.max_hosted_calls
        return None if most is None else max(0, most - self._run_so_far)

    def _may_go_on(self) -> bool:
        usage = self._usage()
        most, tokens = self._request.sampling.max_tokens, self._bounds.tokens
        if most is not None and usage.completion_tokens >= most:
            return False
        if tokens is not None and usage.prompt_tokens + usage.completion_tokens >= tokens:
            return False
        return self._toolbox.affords(usage)

    def _usage(self) -> Usage:
        return add_usage(self._usages, 1) if len(self._usages) > 1 else self._usages[0]

    def _reason_to_end(self, *, waits: bool) -> StopReason | None:
        """Why the model is not asked again after its calls; None where it is.

        Args:
            waits: whether one of them is for the client to approve.
        """
        if self._is_withheld:
            return StopReason.content_filter
        if self._shown.has_called:
            return StopReason.end_of_message
        if waits:
            return StopReason.end_of_turn
        return None if self._may_go_on() else StopReason.out_of_tokens

    def _complete_as(self, said: ChatCompletionResponse) -> StreamComplete:
        """The end of a reply that ends with what the model `said` last."""
        message = said.completion_message
        if message.stop_reason is StopReason.end_of_message and not self._shown.has_called:
            return self._complete(StopReason.end_of_turn, said.service_tier)
        reason = message.stop_reason or StopReason.end_of_turn
        return self._complete(reason, said.service_tier, message.stop_string)

    def _complete(
        self, reason: StopReason, tier: str | None, stop_string: str | None = None
    ) -> StreamComplete:
        return StreamComplete(reason, self._usage(), stop_string, tier)

    # The tools ------------------------------------------------------------------------------------

    def _listed(self) -> Iterator[StreamEvent]:
        """What is shown of where the tools come from, once the model has begun to answer: before
        that, another target could."""
        if self._shown.has_listed:
            return
        self._shown.has_listed = True
        for each in self._to_list:
            yield self._shown.news(each, self._shown.new_part())

    def _approved(self) -> list[AnyToolCall]:
        """The calls that wait for nothing but to be run."""
        wanted = set(self._request.approved)
        if not wanted:
            return []
        calls = [
            call
            for message in self._messages
            if isinstance(message, CompletionMessage)
            for call in message.tool_calls
            if call.call_id in wanted
        ]
        answered = {
            each.call_id for each in self._messages if isinstance(each, ToolResponseMessage)
        }
        calls = [call for call in calls if call.call_id not in answered]
        there = [
            call for call in calls if call.server_tool and self._tools.name_of(*call.server_tool)
        ]
        gone = [call for call in calls if call not in there]
        none = HostedCall("", "mcp", "", status="failed", output="There is no such tool any more.")
        self._answer(gone, {call.call_id: none for call in gone})
        return there

    async def _ran(self, calls: Sequence[AnyToolCall]) -> Events:
        """The events of `calls`, run side by side; what they gave is among the messages then."""
        bounds, tasks = self._bounds, {}
        is_first = True
        approved = set(self._request.approved)
        results: dict[str, HostedCall] = {}
        gate = asyncio.Semaphore(bounds.parallel)

        async def run(call: AnyToolCall, shown: HostedCall) -> HostedCall:
            async with gate:
                part = ReplyPart("tool", call.tool_name, shown.kind)
                self._toolbox.parts.append(part)
                ended = await self._bounded(call, shown)
                part.end((ended.error or "failed") if ended.status == "failed" else "")
                return ended

        try:
            for call in calls:
                shown = structs.replace(self._tools.begun(call), beside=not is_first)
                is_first = False
                if shown.kind == "mcp_approval_request" and call.call_id not in approved:
                    yield self._shown.news(shown, self._shown.new_part())
                    continue
                if self._left == 0:
                    results[call.call_id] = structs.replace(
                        shown, status="failed", output="No more tools may be called. Answer now."
                    )
                    continue
                if shown.kind == "mcp_approval_request":
                    shown = structs.replace(
                        shown, kind="mcp", status="in_progress", approval_id=call.call_id
                    )
                part = self._shown.new_part()
                yield self._shown.news(shown, part)
                self._run_so_far += 1
                self._has_run = True
                tasks[asyncio.create_task(run(call, shown))] = (call, part, shown.beside)
            running = set(tasks)
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    call, part, beside = tasks[task]
                    results[call.call_id] = task.result()
                    ended = structs.replace(task.result(), beside=beside)
                    if call.call_id in approved:
                        ended = structs.replace(ended, approval_id=call.call_id)
                    yield self._shown.news(ended, part)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._answer([call for call in calls if call.call_id in results], results)

    def _answer(self, calls: Sequence[AnyToolCall], results: Mapping[str, HostedCall]) -> None:
        """Put what `calls` gave behind the messages that made them."""
        for call in calls:
            ended = results[call.call_id]
            self._sources += ended.sources
            content: Content = ended.output
            if ended.images and not self._sees:
                content = f"{ended.output}\n{_UNSEEN}".strip()
            elif ended.images:
                content = (TextContent(ended.output), *map(ImageContent, ended.images))
            answer = ToolResponseMessage(call.call_id, content, ended.status == "failed")
            place = next(
                index
                for index, message in enumerate(self._messages)
                if isinstance(message, CompletionMessage) and call in message.tool_calls
            )
            while place + 1 < len(self._messages) and isinstance(
                self._messages[place + 1], ToolResponseMessage
            ):
                place += 1
            self._messages.insert(place + 1, answer)

    async def _bounded(self, call: AnyToolCall, shown: HostedCall) -> HostedCall:
        if isinstance(call, UnparseableToolCall):
            return _failed(shown, "invalid_tool_input", "The arguments are not a JSON object.")
        try:
            async with asyncio.timeout(self._bounds.seconds):
                ended = await self._tools.run(call)
        except TimeoutError:
            return _failed(
                shown, "unavailable", f"It took longer than {self._bounds.seconds:g} seconds."
            )
        ended = structs.replace(ended, output=_cut(ended.output, self._bounds.result_bytes))
        return await self._screened(ended, shown)

    async def _screened(self, ended: HostedCall, shown: HostedCall) -> HostedCall:
        """What may be seen of what a tool gave, or of what a server has."""
        if self._screen is None:
            return ended
        seen = await self._screen(ended)
        if seen is not None:
            return seen
        self._is_withheld = True
        return _failed(shown, "unavailable", "A guardrail has withheld what it gave.")


def _renamed(message: Message, tools: OpenTools) -> Message:
    """`message` with the calls of servers' tools under the names that these have now."""
    if not isinstance(message, CompletionMessage):
        return message
    parts = [_renamed_call(each, tools) for each in message.parts]
    return structs.replace(message, parts=tuple(parts)) if parts != [*message.parts] else message


def _renamed_call(part: MessagePart, tools: OpenTools) -> MessagePart:
    if not isinstance(part, AnyToolCall) or part.server_tool is None:
        return part
    name = tools.name_of(*part.server_tool)
    return part if name is None else structs.replace(part, tool_name=name)


def _waits(event: StreamEvent) -> bool:
    if not isinstance(event, StreamProgress) or not isinstance(event.delta, HostedCallDelta):
        return False
    return event.delta.call.kind == "mcp_approval_request"


def _failed(shown: HostedCall, error: str, why: str) -> HostedCall:
    return structs.replace(shown, status="failed", error=error, output=why)


def _cut(output: str, size: int) -> str:
    encoded = output.encode("utf-8", "replace")
    if len(encoded) <= size:
        return output
    return encoded[:size].decode("utf-8", "ignore") + "\n[The rest is cut off.]"
