"""What holds for the replies of any model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import openai
from openai.types import CompletionUsage

from tests.integration.conformance import Refused

NOT_ABOUT_PARAMETERS = (401, 403, 408, 409, 429)
"""Errors that say nothing of what a server supports."""

NOT_IMPLEMENTED = 501

OUR_WORDS = ("unsupported_parameter", "unsupported_capability")
"""Codes that say alone that something is not supported."""


def check_usage(usage: CompletionUsage | None) -> CompletionUsage:
    """The usage, which has to be there and to add up."""
    assert usage is not None
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens >= 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return usage


def tokens_of(usage: CompletionUsage | None) -> tuple[int, int]:
    """Tokens of prompt and completion; how many were cached differs from one time to the next."""
    checked = check_usage(usage)
    return checked.prompt_tokens, checked.completion_tokens


@contextmanager
def honoured_or_refused(*names: str) -> Iterator[None]:
    """The test of what a server may refuse, by one of these names."""
    try:
        yield
    except openai.APIStatusError as error:
        if not is_refusal(error, names):
            raise
        raise Refused(error.message.removeprefix(f"Error code: {error.status_code} - ")) from None


def is_refusal(error: openai.APIStatusError, names: tuple[str, ...]) -> bool:
    """Whether an error says that one of `names` is not supported, and not something else."""
    status = error.status_code
    if status in NOT_ABOUT_PARAMETERS or (status >= 500 and status != NOT_IMPLEMENTED):
        return False
    if error.code in OUR_WORDS and error.param in (None, *names):
        return True
    return error.param in names or any(name in error.message for name in names)
