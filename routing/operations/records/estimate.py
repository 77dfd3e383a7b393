"""How many tokens there were, about, where no vendor says.

A token is four bytes of text. That is within a fifth or so for English, too few for other scripts
and for code; what comes of it is marked as an estimate wherever it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Raw, structs

from llama_compat.types import Usage
from routing.operations.records.sample import Sample

BYTES_PER_TOKEN = 4

IMAGE_TOKENS = 256
"""What an image inside a request counts for, whatever its size."""

_PROMPTS = (
    "messages",
    "prompt",
    "input",
    "instructions",
    "system",
    "tools",
    "contents",
    "systemInstruction",
    "content",
    "requests",
)
"""Members of requests that a model reads, in any client API."""

_BINARY = re.compile(rb'"(?:data:[^"]*|[A-Za-z0-9+/=]{1024,})"')
"""Base64 in JSON: images, sound and files."""

_TEXT = re.compile(
    rb'"(?:content|text|thinking|reasoning|reasoning_content|delta|arguments|partial_json|response'
    rb'|refusal)"\s*:\s*"((?:[^"\\]|\\.)*)'
)
"""What a model says, in the replies and events of any client API."""


def prompt_tokens(fields: Mapping[str, Raw]) -> int:
    """About how many tokens the prompt of a request has, given its members."""
    size = images = 0
    for name in _PROMPTS:
        if name in fields:
            text, found = _BINARY.subn(b"", bytes(fields[name]))
            size += len(text)
            images += found
    return -(-size // BYTES_PER_TOKEN) + images * IMAGE_TOKENS


def completion_tokens(sample: Sample) -> int:
    """About how many tokens were sent, by the text in what the sample has of it."""
    head = sample.head
    if not head:
        return 0
    text = sum(map(len, _TEXT.findall(head)))
    return -(-text * sample.size // (len(head) * BYTES_PER_TOKEN))


def settled(
    counted: Usage | None, fields: Mapping[str, Raw], sample: Sample, *, complete: bool
) -> tuple[Usage, bool]:
    """The usage of a request that a provider has begun to answer, and whether it is estimated.

    Args:
        counted: what the vendor said; of a stream that was cut, what it had said until then.
        fields: the request's members.
        sample: of what was sent.
        complete: whether it was all.
    """
    counted = sane(counted or Usage())
    if complete and (counted.prompt_tokens or counted.completion_tokens):
        return counted, False
    return (
        Usage(
            counted.prompt_tokens or prompt_tokens(fields),
            max(counted.completion_tokens, completion_tokens(sample)),
            counted.cached_tokens,
            counted.reasoning_tokens,
            counted.cache_write_tokens,
        ),
        True,
    )


MAX_COUNT = 2**48
"""What a vendor says of tokens beyond that is nonsense, which no sum could hold."""


def sane(usage: Usage) -> Usage:
    """`usage` with nothing in it but numbers that there can be of tokens."""
    prompt, completion, cached, reasoning, written = counts = structs.astuple(usage)
    if (
        (type(prompt) is type(completion) is int)
        and (cached is None or (type(cached) is int and 0 <= cached <= MAX_COUNT))
        and (reasoning is None or (type(reasoning) is int and 0 <= reasoning <= MAX_COUNT))
        and (written is None or (type(written) is int and 0 <= written <= MAX_COUNT))
        and 0 <= prompt <= MAX_COUNT
        and 0 <= completion <= MAX_COUNT
    ):
        return usage
    prompt, completion, *details = map(_count, counts)
    return Usage(prompt or 0, completion or 0, *details)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None
