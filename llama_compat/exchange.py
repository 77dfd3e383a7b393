"""One OpenAI call as it passes between the router and a provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from msgspec import Raw


@dataclass(slots=True)
class OpenAIRequest:
    """A call that the router has checked and found a provider for.

    Attributes:
        model: the model id that the client asked for; replies name it.
        provider_model: the same model as the provider calls it.
        fields: the members of the request's JSON object, each value the bytes that the client sent.
        stream: whether the client wants a stream.
        request_id: names the request in both directions and in every log line.
        context_length: tokens that the model can hold, where the template says so.
        dropped: names of parameters left out because the template sets `unsupported: drop`; the
            router reports them in the header `x-llama-compat-dropped`.
    """

    model: str
    provider_model: str
    fields: dict[str, Raw]
    stream: bool
    request_id: str
    context_length: int | None = None
    dropped: list[str] = field(default_factory=list)


@dataclass(slots=True)
class OpenAIReply:
    """What a provider answers with: a whole body, or a stream of whole server-sent events.

    A stream has begun when it is handed over: its first event is there, in `first`, so that what
    failed earlier could still have its own status. (And a generator that has begun runs its
    `finally` when it is closed; one that has not would not.) It gives no `[DONE]`; the router ends
    every stream with one. If it raises `APIError` the router tells the client so in the stream.
    Whoever takes a reply calls `aclose` when done with it, read to the end or not.

    `headers` are in lower case; the content type of a stream is the router's to say.
    """

    body: bytes | AsyncGenerator[bytes, None]
    first: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def aclose(self) -> None:
        """Close the stream, and with it the upstream request or the engine's slot."""
        if not isinstance(self.body, bytes):
            await self.body.aclose()
