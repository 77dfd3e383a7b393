"""Conversations of APIs in which user and assistant alternate, as Anthropic's and Converse do, and
how those begin that keep instructions apart, which Google's do too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.tools.call_ids import Fit, with_call_ids
from llama_compat.types import (
    CompletionMessage,
    Content,
    DocumentContent,
    ImageContent,
    Message,
    ReadContent,
    SystemMessage,
    TextContent,
    UserMessage,
)

Block = dict[str, Any]
Blocks = list[Block]


def content_blocks(
    content: ReadContent,
    render_text: Callable[[str], Block],
    render_image: Callable[[ImageContent], Block],
    render_document: Callable[[DocumentContent], Block],
) -> Blocks:
    """The blocks of a message's content. Text that is blank is left out: both APIs refuse a
    conversation that has any (`text content blocks must contain non-whitespace text`)."""
    if isinstance(content, str):
        return [render_text(content)] if content.strip() else []
    blocks: Blocks = []
    for part in content:
        match part:
            case ImageContent():
                blocks.append(render_image(part))
            case DocumentContent():
                blocks.append(render_document(part))
            case TextContent(text):
                if text.strip():
                    blocks.append(render_text(text))
    return blocks


def empty_message(path: str, vendor: str) -> APIError:
    """400: a message says nothing, which none of them takes."""
    return invalid_parameter(path, f"'{path}' is empty, which {vendor}'s API does not take.")


def no_turn(vendor: str) -> APIError:
    """400: nobody says anything."""
    return invalid_parameter(
        "messages", f"{vendor}'s API wants at least one message that is no system message."
    )


def with_a_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """`messages`, of which the last is the user's where all are instructions.

    OpenAI's API takes instructions alone, and frameworks put all of a task there
    (pydantic/pydantic-ai#4495, elastic/kibana#246393; 2026-11-28). Others want a turn.
    """
    if not messages or not all(isinstance(each, SystemMessage) for each in messages):
        return messages
    *others, last = messages
    return (*others, UserMessage(last.content))


def called_tools(messages: Sequence[Message]) -> list[str]:
    """The names of the tools that were called, each once: both APIs want tools to be defined where
    calls of some are in the conversation."""
    names = {
        call.tool_name: None
        for message in messages
        if isinstance(message, CompletionMessage)
        for call in message.tool_calls
    }
    return list(names)


OPENING = "(The conversation begins.)"
"""What a user says who has said nothing yet: no API takes nothing."""


class AlternatingTurns:
    """The system prompt, and the turns of user and assistant: messages of one side are put
    together.

    Instructions are all put into the system prompt, or, `in_place`, those that come after a
    conversation has begun are turns of their own. There one follows the user's turn, so that what
    was sent once is never sent in another way
    (https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages, read on
    2026-11-23): one that no user's turn follows yet is in the system prompt.

    Args:
        messages: the conversation.
        vendor: whose API, for messages.
        render_text: the blocks of instructions, which are at the path.
        render_message: those of any other message.
        is_result: whether a block is what a tool has given back.
        fit_id: an id of a call in the API's form.
        in_place: as above.
        opening: the block of a user's turn that goes before one of the assistant's, where the API
            takes none first; None where it does.

    Attributes:
        system: the blocks of the system prompt.
        turns: each with its `role` and `content`.

    Raises:
        APIError: 400, what there is no form for.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        vendor: str,
        render_text: Callable[[Content, str], Blocks],
        render_message: Callable[[Message, str], Blocks],
        is_result: Callable[[Block], bool],
        fit_id: Fit,
        in_place: bool = False,
        opening: Block | None = None,
    ) -> None:
        self.system: Blocks = []
        self.turns: list[Block] = []
        self._later: Blocks = []
        for index, message in enumerate(with_call_ids(with_a_turn(messages), fit_id)):
            path = f"messages[{index}].content"
            if isinstance(message, SystemMessage):
                begun = in_place and bool(self.turns)
                instructions = self._later if begun else self.system
                instructions.extend(render_text(message.content, path))
            elif blocks := render_message(message, path):
                self._add(message, blocks)
        if not self.turns:
            raise no_turn(vendor)
        if opening is not None and self.turns[0]["role"] != "user":
            self.turns.insert(0, {"role": "user", "content": [opening]})
        self._instruct()
        self.system += self._later
        _end_in_no_space(self.turns[-1])
        for turn in self.turns:
            # The answers to tool calls have to come first in their turn.
            turn["content"].sort(key=lambda block: not is_result(block))

    def _add(self, message: Message, blocks: Blocks) -> None:
        role = "assistant" if isinstance(message, CompletionMessage) else "user"
        if role == "assistant":
            self._instruct()
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"].extend(blocks)
        else:
            self.turns.append({"role": role, "content": blocks})

    def _instruct(self) -> None:
        if self._later and self.turns and self.turns[-1]["role"] == "user":
            self.turns.append({"role": "system", "content": self._later})
            self._later = []


def _end_in_no_space(turn: Block) -> None:
    """See that what the model is to go on with does not end in white space, which Claude refuses:
    `final assistant content cannot end with trailing whitespace`."""
    last = turn["content"][-1]
    if turn["role"] == "assistant" and isinstance(last.get("text"), str):
        turn["content"][-1] = {**last, "text": last["text"].rstrip()}
