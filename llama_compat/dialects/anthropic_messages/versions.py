"""Versions of Anthropic's API, and the betas that are asked for here.

Read on 2026-11-23: https://platform.claude.com/docs/en/api/versioning,
https://platform.claude.com/docs/en/api/migration-2026-10-21, and what `anthropic` 2.12.0 on PyPI
sends. A version changes what a request may say; replies are the same in both.
"""

from __future__ import annotations

import re

VERSION = "2023-06-01"
"""For clients that name none."""

WITHOUT_SAMPLING = "2026-10-21"
"""Since this one `temperature`, `top_p` and `top_k` are 400 for every model, at their defaults too,
as are a document in an assistant's message and citations in a user's. The SDKs that send it give
the key as `Authorization: Bearer`; `x-api-key` is still taken."""

THINKING_BINDING = "thinking-binding-controls-2026-08-01"
"""With this beta a request says what becomes of thoughts that are bound to what is no longer before
them, and the reply says which those were:
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def takes_sampling(version: str) -> bool:
    """Whether requests of this version may say how tokens are drawn.

    What is no date, as the versions of others that have this API, is taken for the oldest.
    """
    return not _DATE.fullmatch(version) or version < WITHOUT_SAMPLING


def key_header(version: str) -> str:
    """In which header this version's own clients give the key."""
    return "x-api-key" if takes_sampling(version) else "authorization"
