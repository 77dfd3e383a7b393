"""What OpenAI's chat and text streams share, read as a vendor sends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from llama_compat.dialects.openai_usage import parse_usage
from llama_compat.surrogates import SurrogateJoiner
from llama_compat.types import StreamEvent, StreamStart, Usage


class ChunkParser:
    """Parses the chunks of a stream as the events of one choice.

    An object that reports an error is none; it is for whoever reads the stream to raise it.

    Args:
        choice: which choice; chunks of others are passed over.
    """

    kind: ClassVar[str]
    """What a chunk is called in messages."""

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._text = SurrogateJoiner()
        self._started = False
        self._finish_reason: str | None = None
        self._usage = Usage()

    def push(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one chunk.

        Raises:
            ValueError: it is not such a chunk.
        """
        events: list[StreamEvent] = []
        if not self._started:
            self._started = True
            events.append(StreamStart())
        try:
            if chunk.get("usage"):
                self._usage = parse_usage(chunk["usage"])
            for choice in chunk.get("choices") or ():
                if (choice.get("index") or 0) == self._choice:
                    if choice.get("finish_reason") is not None:
                        self._finish_reason = choice["finish_reason"]
                    events.extend(self._parse_choice(choice))
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"the event is not a {self.kind} chunk: {error!r}") from error
        return events

    def _parse_choice(self, choice: Mapping[str, Any]) -> Iterable[StreamEvent]:
        raise NotImplementedError
