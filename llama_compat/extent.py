"""What a request may come to, read once by its dialect: prompts, replies, and how long they may be.

Limits reserve by it, the number of choices is checked by it, and targets are chosen by it. Nobody
else reads a request's members for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from llama_compat.types import Units, Usage

BYTES_PER_TOKEN = 4
"""About, where nobody has counted. That is within a fifth or so for English, too few for other
scripts and for code."""


def about_tokens(size: int) -> int:
    """How many tokens so many bytes of text are, about; a part of one is one."""
    return -(-size // BYTES_PER_TOKEN)


IMAGE_TOKENS = 256
"""What an image inside a request counts for, whatever its size."""

MAX_TOKENS = 2**48
"""No request comes to more, whatever it says: no sum of many such has to be inexact."""

BASE64_CHARACTERS = 1024
"""A word of so many is none."""

_BINARY = re.compile(rb'"(?:data:[^"]*|[A-Za-z0-9+/=]{%d,})"' % BASE64_CHARACTERS)
"""Base64 in JSON: images, sound and files."""

_TOKEN_IDS = re.compile(rb"\[[\[\s]*\d")
"""How a prompt begins that is one or more lists of token ids."""


NO_FIELDS: Mapping[str, Raw] = {}


class Prompt:
    """What a model reads of a request. Its tokens are estimated when somebody asks for them first.

    Args:
        fields: the request's members.
        names: of those that a model reads, if they are there, in the order in which it reads them.
    """

    __slots__ = ("_fields", "_tokens", "names")

    def __init__(self, fields: Mapping[str, Raw] = NO_FIELDS, *names: str) -> None:
        self._fields = fields
        self.names = names
        self._tokens: int | None = None

    @property
    def tokens(self) -> int:
        """About how many tokens it has; of token ids, how many they are."""
        if self._tokens is None:
            self._tokens = min(_tokens(self._fields, self.names), MAX_TOKENS)
        return self._tokens

    def estimate(self) -> None:
        """Estimate its tokens now: of a large prompt that takes a while."""
        self._tokens = self.tokens


def _tokens(fields: Mapping[str, Raw], names: Sequence[str]) -> int:
    size = counted = 0
    for name in names:
        if name not in fields:
            continue
        data = bytes(fields[name])
        if data[:2] != b"[{" and _TOKEN_IDS.match(data):
            counted += data.count(b",") + 1
        elif len(data) < BASE64_CHARACTERS and b'"data:' not in data:
            size += len(data)
        else:
            text, images = _BINARY.subn(b"", data)
            size += len(text)
            counted += images * IMAGE_TOKENS
    return about_tokens(size) + counted


class Extent(Struct, frozen=True):
    """What a request may come to.

    Attributes:
        prompt: what is read; of a request that costs nothing there is nothing in it.
        prompts: how many it holds, each of which is answered.
        choices: how many replies each prompt is given; 0 where nothing is generated.
        best_of: of how many replies to each prompt these are chosen, if that is more.
        max_tokens: how many tokens may be generated for each reply at most, by the largest limit
            that the request names; None where it names none.
        units: what it comes to besides tokens, as far as the request tells.
    """

    prompt: Prompt = Prompt()
    prompts: int = 1
    choices: int = 1
    best_of: int = 1
    max_tokens: int | None = None
    units: Units | None = None

    @property
    def given(self) -> int:
        """How many replies the client is given."""
        return self.prompts * self.choices

    @property
    def made(self) -> int:
        """How many replies are made, those that are not given too."""
        return self.prompts * max(self.choices, self.best_of) if self.choices else 0

    def usage(self, guess: int) -> Usage:
        """What it comes to if every reply is as long as it may be.

        Args:
            guess: the tokens of a reply whose request names no limit.

        Returns:
            Counts from 0 to `MAX_TOKENS`, whatever the request says.
        """
        each = guess if self.max_tokens is None else self.max_tokens
        completion = max(0, min(self.made * each, MAX_TOKENS))
        return Usage(self.prompt.tokens, completion, units=self.units)


NOTHING = Extent(choices=0)
"""Of a request that generates nothing, and costs nothing for what it reads."""


def largest(*limits: Any) -> int | None:
    """The largest of the limits that a request names; None where it names none.

    A number may be written in any way that a vendor takes (`40`, `40.0`, and Google's `"40"`);
    what is no number of tokens is no limit.
    """
    return max((each for each in map(_tokens_named, limits) if each is not None), default=None)


def _tokens_named(value: Any) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if not (text.isascii() and text.isdigit()):
            return None
        return int(text) if len(text) < _MANY_DIGITS else MAX_TOKENS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return min(math.ceil(value), MAX_TOKENS) if value < MAX_TOKENS else MAX_TOKENS


_MANY_DIGITS = len(str(MAX_TOKENS)) + 1
