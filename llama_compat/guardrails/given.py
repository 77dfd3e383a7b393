"""What tools gave that the server runs, on its way to the model and to the client."""

from __future__ import annotations

from msgspec import structs

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.documents import mapped
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.hosted.vocabulary import HostedCall, Source


async def screened(call: HostedCall, guard: Guard) -> HostedCall | None:
    """What may be seen of a call that has ended, or of the tools that a server has; None where a
    check wants nothing of it seen.

    Args:
        call: that.
        guard: of the request.
    """
    try:
        seen = await guard.off_loop(len(call.output), looked_through, call, guard)
        if seen.images:
            await guard.look({"tool_results": seen.images})
            images, words = guard.shown_pictures(seen.images)
            output = "\n".join((seen.output, *words)) if words else seen.output
            seen = structs.replace(seen, images=images, output=output)
        if seen.output:
            await guard.ask(Said("tool_results", (seen.output,)))
    except Blocked:
        return None
    return seen


def looked_through(call: HostedCall, guard: Guard) -> HostedCall:
    """What may be seen of a call by the checks that need not ask anybody.

    Raises:
        Blocked: nothing of it.
    """
    return structs.replace(
        call,
        output=mapped(call.output, "tool_results", guard.text),
        sources=tuple(looked_through_source(each, guard) for each in call.sources),
        tools=tuple(mapped(list(call.tools), "tool_results", guard.text)),
    )


def looked_through_source(source: Source, guard: Guard) -> Source:
    """The same of something that was found.

    Raises:
        Blocked: nothing of it.
    """
    seen = mapped(structs.asdict(source), "tool_results", guard.text)
    return structs.replace(source, **seen)
