"""How many tokens there were, about, where no vendor says.

What comes of it is marked as an estimate wherever it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import structs

from llama_compat.extent import Prompt, about_tokens
from llama_compat.types import Usage
from routing.observability.sample import Sample

_TEXT = re.compile(
    rb'"(?:content|text|thinking|reasoning|reasoning_content|delta|arguments|partial_json|response'
    rb'|refusal)"\s*:\s*"((?:[^"\\]|\\.)*)'
)
"""What a model says, in the replies and events of any client API."""


def completion_tokens(sample: Sample) -> int:
    """About how many tokens were sent, by the text in what the sample has of it."""
    head = sample.head
    if not head:
        return 0
    text = sum(map(len, _TEXT.findall(head)))
    return about_tokens(-(-text * sample.size // len(head)))


def counted_or_estimated(
    counted: Usage | None, prompt: Prompt, sample: Callable[[], Sample], *, complete: bool
) -> tuple[Usage, bool]:
    """The usage of a request that a provider has begun to answer, and whether it is estimated.

    Args:
        counted: what the vendor said; of a stream that was cut, what it had said until then.
        prompt: the request's.
        sample: gives one of what was sent, where something has to be estimated.
        complete: whether it was all.
    """
    counted = sane(counted or Usage())
    if complete and (counted.prompt_tokens or counted.completion_tokens):
        return counted, counted.estimated
    return (
        Usage(
            counted.prompt_tokens or prompt.tokens,
            max(counted.completion_tokens, completion_tokens(sample())),
            counted.cached_tokens,
            counted.reasoning_tokens,
            counted.cache_write_tokens,
            counted.units,
        ),
        True,
    )


MAX_COUNT = 2**48
"""What a vendor says of tokens beyond that is nonsense, which no sum could hold."""


def sane(usage: Usage) -> Usage:
    """`usage` with nothing in it but numbers that there can be of tokens."""
    prompt, completion, cached, reasoning, written, units, estimated = structs.astuple(usage)
    if (
        (type(prompt) is type(completion) is int)
        and (cached is None or (type(cached) is int and 0 <= cached <= MAX_COUNT))
        and (reasoning is None or (type(reasoning) is int and 0 <= reasoning <= MAX_COUNT))
        and (written is None or (type(written) is int and 0 <= written <= MAX_COUNT))
        and 0 <= prompt <= MAX_COUNT
        and 0 <= completion <= MAX_COUNT
    ):
        return usage
    return Usage(
        _count(prompt) or 0,
        _count(completion) or 0,
        _count(cached),
        _count(reasoning),
        _count(written),
        units,
        estimated,
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None
