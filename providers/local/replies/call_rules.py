"""What a request wants of the tool calls in its reply, for engines in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_compat.errors import invalid_parameter
from llama_compat.text.reasoning import CLOSING_TAG, opens_reasoning
from llama_compat.types import ChatCompletionRequest, ToolChoice, ToolDefinition

if TYPE_CHECKING:
    from llama_compat.tools.formats import ToolFormat


@dataclass(frozen=True, slots=True)
class CallRules:
    """What a request says of the calls in its reply.

    Attributes:
        tools: those that the model may call.
        demanded: those of which it has to call one; if there are none, it need not call any.
        single: there may be one call only, which ends the reply.
    """

    tools: tuple[ToolDefinition, ...] = ()
    demanded: tuple[ToolDefinition, ...] = ()
    single: bool = False


def call_rules(request: ChatCompletionRequest) -> CallRules:
    """The rules that `tools`, `tool_choice` and `parallel_tool_calls` of `request` make.

    A demanded call is always the only one.

    Raises:
        APIError: 400; a tool is demanded that is not offered.
    """
    choice = request.tool_choice or ToolChoice()
    if choice.mode == "none":
        return CallRules()
    if choice.mode == "auto":
        return CallRules(request.tools, single=request.parallel_tool_calls is False)
    demanded = tuple(tool for tool in request.tools if choice.tool_name in (None, tool.tool_name))
    if not demanded:
        wanted = "a tool" if choice.tool_name is None else f"the tool '{choice.tool_name}'"
        raise invalid_parameter("tool_choice", f"'tool_choice' demands {wanted}; 'tools' has none.")
    return CallRules(request.tools, demanded, single=True)


def before_reply(prompt: str) -> str:
    """What has to come before a reply to `prompt` that is to be of a certain form."""
    # Where the prompt ends inside the reasoning, there is none.
    return f"\n{CLOSING_TAG}\n\n" if opens_reasoning(prompt) else ""


def call_openings(tool_format: ToolFormat, rules: CallRules, prompt: str) -> dict[str, str]:
    """For each demanded tool what a reply to `prompt` that calls it begins with, up to a `{`."""
    before = before_reply(prompt)
    return {
        tool.tool_name: before + tool_format.call_opening(tool.tool_name) for tool in rules.demanded
    }
