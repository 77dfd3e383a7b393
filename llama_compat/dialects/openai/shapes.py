"""What types the members of a vendor's replies have, as far as they are read.

A reply is checked against these before it is taken apart, so that a wrong type is an error with its
place. What can be done without (usage, the word for why a choice ended) is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _Call(Struct):
    index: int | str | None = None
    id: str | int | None = None
    function: _Function | None = None


class _Text(Struct):
    text: str | None = None


class _Part(Struct):
    text: str | None = None
    thinking: str | list[_Text] | None = None


class _URL(Struct):
    url: str


class _Image(Struct):
    image_url: _URL


class _Message(Struct):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    images: list[_Image] | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Token(Struct):
    token: str
    logprob: float | None
    bytes: list[Annotated[int, Meta(ge=0, le=255)]] | None = None


class _TokenAndOthers(_Token):
    top_logprobs: list[_Token] | None = None


class _LogProbs(Struct):
    content: list[_TokenAndOthers] | None = None


class _Choice(Struct):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    logprobs: _LogProbs | None = None


class _Reply(Struct):
    choices: list[_Choice] | None = None


def check_reply(reply: Mapping[str, Any]) -> None:
    """Look at the types of a whole reply's members, or a chunk's.

    Raises:
        ValueError: one is of a wrong type; the message says which.
    """
    msgspec.convert(reply, _Reply)
