"""What calls of chats have in common by how many choices their replies have: as many as are asked
for, or one, with no way to ask for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from llama_compat.dialects.base import Labels, StreamRenderer
from llama_compat.events import reply_events
from llama_compat.types import ChatCompletionRequest, ChatCompletionResponse, Usage
from llama_compat.wire.json_fields import encode_json


class SeveralChoices(Struct, frozen=True):
    """A chat that is answered `n` times."""

    request: ChatCompletionRequest
    n: int = 1

    @property
    def requests(self) -> list[ChatCompletionRequest]:
        """One request a choice; a seed counts up so that the choices differ."""
        return [
            structs.replace(self.request, sampling=self.request.sampling.for_choice(index))
            for index in range(self.n)
        ]

    @property
    def choices_per_prompt(self) -> int:
        """All of them: there is one prompt."""
        return self.n


class SingleChoice(Struct, frozen=True):
    """A chat that is answered once: what the `Translation`s of such calls have in common."""

    request: ChatCompletionRequest

    @property
    def requests(self) -> list[ChatCompletionRequest]:
        """The one request."""
        return [self.request]

    @property
    def choices_per_prompt(self) -> int:
        """One."""
        return 1


class WholeRenderer(StreamRenderer, Protocol):
    """Renders a stream, whose last event holds the whole reply.

    Attributes:
        whole: that reply, once the stream has come to its end.
    """

    whole: dict[str, Any] | None


class StreamedChoice(SingleChoice, frozen=True):
    """One whose whole reply is where the stream of the same reply would have led."""

    def stream_renderer(self, labels: Labels) -> WholeRenderer:
        """A renderer for this request's stream."""
        raise NotImplementedError

    def render_reply(
        self, responses: Sequence[ChatCompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The whole reply."""
        renderer = self.stream_renderer(labels)
        for event in reply_events(responses[0]):
            renderer.render(0, event)
        renderer.finish(usage)
        assert renderer.whole is not None
        return encode_json(renderer.whole)
