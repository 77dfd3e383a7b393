"""What is known of a conversation's turns while one target is asked to go on with it.

Where a turn's reasoning is wanted back, and its own is lost or cut, it is put back. What a model of
another family thought is left out, as nobody else's API makes anything of its seals, and some
answer them with an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from hashlib import blake2b

from msgspec import Struct, structs

from llama_compat.events import Collector
from llama_compat.fan_out import Events
from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.reasoning.turns import Calls, KeptTurn, turn_of, without_reasoning
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Message,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    StreamComplete,
    StreamProgress,
    ToolCall,
    ToolCallDelta,
    UserMessage,
    content_text,
)


class ReasoningRule(Struct, frozen=True):
    """What a target does about reasoning in turns that call tools.

    Attributes:
        family: whose reasoning its model's is.
        wanted: whether it is to come back.
        needed: whether turns without it are refused as long as the model may think.
    """

    family: str
    wanted: bool = False
    needed: bool = False


class TurnPlace:
    """How far a conversation has come, as it is gone through from its beginning: what tells one
    call from another of the same that has no id."""

    def __init__(self) -> None:
        self._asked = ""
        self._told: str | None = None
        self._users = 0
        self._calls = 0

    def user_says(self, text: str) -> None:
        """The user says something."""
        self._asked, self._told = text, None
        self._users, self._calls = self._users + 1, 0

    def model_calls(self) -> None:
        """The model has called tools in a message."""
        self._calls += 1

    def __str__(self) -> str:
        if self._told is None:
            # Each call that follows is looked for here, and what was asked may be megabytes.
            asked = self._asked.encode("utf-8", "surrogatepass")
            self._told = blake2b(asked, digest_size=16).hexdigest()
        return f"{self._users} {self._calls} {self._told}"

    @classmethod
    def after(cls, messages: Sequence[Message]) -> TurnPlace:
        """Where `messages` have come to."""
        place = cls()
        for message in messages:
            if isinstance(message, UserMessage):
                place.user_says(content_text(message.content))
            elif isinstance(message, CompletionMessage) and message.tool_calls:
                place.model_calls()
        return place


class KnownTurn(Struct, frozen=True):
    """What becomes of one turn that calls tools.

    Attributes:
        is_foreign: whether another family's model made it, whose reasoning is left out.
        lost: what its own model thought, which is put back where it is lost; None where nobody
            knows, or it is not wanted.
    """

    is_foreign: bool = False
    lost: KeptTurn | None = None


_AS_IT_IS = KnownTurn()
_FOREIGN = KnownTurn(is_foreign=True)


class Recollection(Struct, frozen=True):
    """The memory, as one request has to do with it.

    Attributes:
        memory: of all turns.
        owner: who asks.
        rule: of the target that is asked; there once one is.
        bound: whether its model takes a thought back only after what came before it then.
    """

    memory: ReasoningMemory
    owner: str
    rule: ReasoningRule = ReasoningRule("")
    bound: bool = False

    def at(self, rule: ReasoningRule, *, bound: bool) -> Recollection:
        """The same for a target with this rule."""
        return structs.replace(self, rule=rule, bound=bound)

    def recall(self, place: TurnPlace, calls: Calls, signatures: Collection[str] = ()) -> KnownTurn:
        """What becomes of the turn in which `calls` were made, to which a conversation comes.

        Args:
            place: where it has come to; it is behind the turn then.
            calls: one at least.
            signatures: what the client brings back with them, and with what was thought before.
        """
        turn = self.memory.find(self.owner, str(place), calls)
        place.model_calls()
        if turn is None:
            return _AS_IT_IS
        if turn.family != self.rule.family:
            # A call of the same name and arguments in another conversation is found where this one
            # was answered by another process, and must not take its own seal from it.
            return _FOREIGN if turn.has_signed(signatures) else _AS_IT_IS
        return KnownTurn(lost=turn) if self.rule.wanted and turn.signatures else _AS_IT_IS

    def keep(self, place: TurnPlace, message: CompletionMessage) -> None:
        """Keep what the target's model thought in `message`, if there is anything to keep."""
        turn = turn_of(message, self.rule.family, wanted=self.rule.wanted)
        self.memory.keep(self.owner, str(place), message, turn)

    def restored_all(
        self, requests: Sequence[ChatCompletionRequest | CompletionRequest]
    ) -> list[ChatCompletionRequest | CompletionRequest]:
        """The requests of one call's choices, whose messages are the same, with what their turns
        lost, and without what is another family's."""
        first = requests[0]
        messages = (
            self._restored(first.messages) if isinstance(first, ChatCompletionRequest) else None
        )
        if messages is None:
            return list(requests)
        return [structs.replace(request, messages=messages) for request in requests]

    def _restored(self, messages: Sequence[Message]) -> tuple[Message, ...] | None:
        """None where there is nothing to do."""
        restored: list[Message] = []
        place, changed = TurnPlace(), False
        for message in messages:
            if isinstance(message, UserMessage):
                place.user_says(content_text(message.content))
            elif isinstance(message, CompletionMessage) and (calls := message.tool_calls):
                found = self.recall(place, calls, _signatures(message.parts))
                if found.is_foreign:
                    message, changed = without_reasoning(message), True
                elif found.lost is not None:
                    parts = found.lost.put_into(message.parts)
                    message, changed = structs.replace(message, parts=parts), True
            restored.append(message)
        return tuple(restored) if changed else None

    async def kept(self, events: Events, place: TurnPlace) -> Events:
        """`events`, of which what was thought is kept before the client knows of the end."""
        collector = Collector()
        called, last = False, -1
        async with aclosing(events) as stream:
            async for event in stream:
                if isinstance(event, StreamProgress):
                    delta = event.delta
                    if isinstance(delta, ToolCallDelta):
                        called = True
                        if delta.tool_call is not None:
                            collector.add(event)
                    elif isinstance(delta, ReasoningDelta) or event.part != last:
                        # Of all else it only matters that it was there.
                        collector.add(event)
                    last = event.part
                elif isinstance(event, StreamComplete) and called:
                    collector.add(event)
                    self.keep(place, collector.chat_completion().completion_message)
                yield event


def _signatures(parts: Iterable[MessagePart]) -> list[str]:
    signed: list[str | None] = []
    for part in parts:
        if isinstance(part, ToolCall):
            signed.append(part.thought_signature)
        elif isinstance(part, ReasoningContent):
            signed.append(part.signature)
    return [each for each in signed if each]
