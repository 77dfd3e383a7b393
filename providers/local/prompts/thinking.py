"""How hard a model is to think, told to it by the variables that its chat template reads.

Templates have no common word for it: Qwen 3, SmolLM 3, GLM 4.5 and Hunyuan read `enable_thinking`,
Granite 3.2 and DeepSeek 3.1 `thinking`, both true or false, and gpt-oss reads `reasoning_effort`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llama_compat.text.reasoning import OPENING_TAG

SWITCHES = ("enable_thinking", "thinking")
"""The variables that turn it on and off."""

EFFORT = "reasoning_effort"
EFFORTS = ("low", "medium", "high")
"""The variable that says how hard, and what it may be."""

_TAG = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@lru_cache(64)
def names_in(template: str) -> frozenset[str]:
    """The names that stand in the tags of a chat template, attributes and texts aside."""
    tags = " ".join(_TAG.findall(template))
    return frozenset(_NAME.findall(_TEXT.sub("''", tags)))


def can_be_told(template: str) -> bool:
    """Whether anything in a chat template turns thinking on and off, or says how hard."""
    return not names_in(template).isdisjoint({*SWITCHES, EFFORT})


def variables_for(effort: str | None, template: str) -> dict[str, Any]:
    """What a chat template is given so that the model thinks as hard as `effort` says; nothing
    where nobody says, or the template can't be told."""
    names = names_in(template)
    if effort is None or untold(effort, template) is not None:
        return {}
    found: dict[str, Any] = {name: effort != "none" for name in SWITCHES if name in names}
    if EFFORT in names and effort in EFFORTS:
        found[EFFORT] = effort
    return found


def untold(effort: str, template: str) -> str | None:
    """Why a model can't be told to think as hard as `effort` says; None where it can, or does so
    anyway."""
    names = names_in(template)
    if not names.isdisjoint(SWITCHES):
        return None
    if EFFORT in names:
        known = ", ".join(map(repr, EFFORTS))
        return None if effort in EFFORTS else f"the model's chat template knows {known}"
    if effort != "none":
        return "nothing in the model's chat template says how hard to think"
    if always_thinks(template):
        return "the model always thinks; nothing in its chat template turns that off"
    return None


def always_thinks(template: str) -> bool:
    """Whether each reply begins inside the reasoning, as with DeepSeek's R1 and Qwen's QwQ."""
    if can_be_told(template):
        return False
    return OPENING_TAG in template.rpartition("add_generation_prompt")[2]


def unread(given: Mapping[str, Any], template: str) -> bool:
    """Whether a chat template reads none of the variables that a client has `given`."""
    return names_in(template).isdisjoint(given)
