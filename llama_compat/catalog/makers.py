"""Who made a model, by what it is called, whoever serves it."""

from __future__ import annotations

import re
from functools import lru_cache

_MAKERS = (
    ("claude", "anthropic"),
    ("codestral", "mistral"),
    ("deepseek", "deepseek"),
    ("devstral", "mistral"),
    ("gemini", "gemini"),
    ("glm", "zai"),
    ("gpt", "openai"),
    ("grok", "xai"),
    ("kimi", "moonshot"),
    ("magistral", "mistral"),
    ("mimo", "xiaomi"),
    ("minimax", "minimax"),
    ("ministral", "mistral"),
    ("mistral", "mistral"),
    ("qwen", "alibaba"),
)
"""What the names of their models begin with, or have after a mark: `us.anthropic.claude-opus-5`."""

_NAME = re.compile("|".join(rf"(?:^|[./@_-])({name})" for name, _ in _MAKERS))


_CLAUDE = re.compile(r"(?:^|[./])(claude-[a-z0-9@-]+?)(?:-v\d+(?::\d\w*)*|@default)?$")
"""Anthropic's name in those of Amazon and Google: `us.anthropic.claude-opus-4-6-v1:0`."""


@lru_cache(maxsize=1024)
def makers_name(model: str) -> str:
    """What Anthropic calls its model that a cloud calls `model`; others' names are as they are."""
    found = _CLAUDE.search(model)
    return model if found is None else found[1].replace("@", "-")


@lru_cache(maxsize=1024)
def reasoning_family(model: str) -> str:
    """Whose reasoning a model's is: its maker's, or that of models of this very name.

    Args:
        model: what a provider calls it: with or without who made it, or a folder, before a slash.
    """
    name = model.rpartition("/")[2].lower()
    found = _NAME.search(name)
    return name if found is None or found.lastindex is None else _MAKERS[found.lastindex - 1][1]
