"""What tools gave that the server runs, on its way to the model and to the client."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.documents import mapped
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.hosted.vocabulary import HostedCall


async def screened(call: HostedCall, guard: Guard) -> HostedCall | None:
    """What may be seen of a call that has ended, or of the tools that a server has; None where a
    check wants nothing of it seen.

    Args:
        call: that.
        guard: of the request.
    """
    try:
        seen = await guard.off_loop(len(call.output), _looked_through, call, guard)
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


def _looked_through(call: HostedCall, guard: Guard) -> HostedCall:
    def texts(value: Any) -> Any:
        return mapped(value, "tool_results", guard.text)

    return structs.replace(
        call,
        output=texts(call.output),
        sources=tuple(
            structs.replace(each, **texts(structs.asdict(each))) for each in call.sources
        ),
        tools=tuple(texts(list(call.tools))),
    )
