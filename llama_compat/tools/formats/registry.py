"""The formats by name, and which one a model most probably writes."""

from __future__ import annotations

import re

from llama_compat.tools.formats.base import ToolFormat
from llama_compat.tools.formats.hermes import Hermes
from llama_compat.tools.formats.llama3 import Llama3, Llama3JSON
from llama_compat.tools.formats.mistral import Mistral
from llama_compat.tools.formats.pythonic import Pythonic
from llama_compat.tools.formats.qwen3_coder import Qwen3Coder

_ALL: tuple[ToolFormat, ...] = (
    Hermes(),
    Llama3(),
    Llama3JSON(),
    Mistral(),
    Pythonic(),
    Qwen3Coder(),
)

FORMATS: dict[str, ToolFormat] = {
    **{tool_format.name: tool_format for tool_format in _ALL},
    "qwen": Hermes(),
}
"""What `tool_format` in a template may say; `qwen` is for Qwen 2.5 and 3, which write Hermes'."""

_IN_CHAT_TEMPLATE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>",), "hermes"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<|python_tag|>",), "llama3"),
    (("func_name1(params_name1",), "pythonic"),
    (('"parameters": dictionary of argument name',), "llama3_json"),
)
"""Texts that only the chat template of such a model holds; the first row that is found counts."""

_MODEL_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"qwen[-_ ]?3(?:[-_ ]?coder|\.[5-9])", "qwen3_coder"),
    (r"hermes|qwen|qwq|smollm", "hermes"),
    (r"mistral|mixtral|ministral|magistral|devstral|codestral", "mistral"),
    (r"llama[-_]?4", "pythonic"),
    (r"llama[-_]?3[._-]?2", "llama3_json"),
    (r"llama[-_]?3", "llama3"),
)
"""Patterns of model names; the first that is found counts."""


def guess_tool_format(*, chat_template: str | None = None, model: str = "") -> str | None:
    """The name of the format in which a model writes its calls; None if nothing tells.

    Args:
        chat_template: the model's own, which knows best.
        model: its name, or the path of its folder.
    """
    for texts, name in _IN_CHAT_TEMPLATE:
        if chat_template and all(text in chat_template for text in texts):
            return name
    for pattern, name in _MODEL_FAMILIES:
        if re.search(pattern, model.lower()):
            return name
    return None
