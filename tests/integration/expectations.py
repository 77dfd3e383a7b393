"""What holds for the replies of any model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest
from openai.types import CompletionUsage


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
def honoured_or_refused(parameter: str) -> Iterator[None]:
    """The test of a parameter that a provider may refuse, by its name (and then it is skipped)."""
    try:
        yield
    except openai.BadRequestError as error:
        refused = error.code in ("unsupported_parameter", "unsupported_capability")
        if not refused or error.param not in (parameter, None):
            raise
        pytest.skip(error.message)
