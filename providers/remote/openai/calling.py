"""Which of OpenAI's models call functions in responses alone.

Chats with functions are 400 while they think: "Function tools with reasoning_effort are not
supported for gpt-6-sol in /v1/chat/completions. To use function tools, use /v1/responses or set
reasoning_effort to 'none'", also where nobody says how hard they are to think
(onyx-dot-app/onyx#15008, can1357/oh-my-pi#11052, BerriAI/litellm#34569; 2026-11-28).
"""

from __future__ import annotations

from collections.abc import Mapping

from llama_compat.dialects.openai import chat
from llama_compat.dialects.openai_responses import requests as responses
from llama_compat.exchange import Call, Target
from llama_compat.types import ChatCompletionRequest, CompletionRequest
from llama_compat.wire.json_fields import from_raw, is_empty

_ONLY_IN_CHATS = dict.fromkeys(
    chat.RENDERED_PARAMETERS - responses.RENDERED_PARAMETERS,
    "the model calls functions in responses alone, which have no such thing",
)


def in_responses(request: ChatCompletionRequest | CompletionRequest) -> bool:
    """Whether the model is to be asked for a response, as it would call no functions in a chat."""
    if not isinstance(request, ChatCompletionRequest) or not request.tools:
        return False
    form = request.thinking
    return form is not None and form.calls_in_responses and request.reasoning_effort != "none"


def is_refused_in_chats(call: Call, target: Target) -> bool:
    """Whether `call` is a chat that the model of `target` would not be let answer."""
    fit, fields = target.fit, call.fields
    if call.operation.name != "chat" or fit is None or not fit.facts.calls_in_responses:
        return False
    if is_empty(fields.get("tools")) and is_empty(fields.get("functions")):
        return False
    effort = fields.get("reasoning_effort")
    return fit.thinks(None if effort is None else from_raw(effort))


def unsupported_values(request: ChatCompletionRequest | CompletionRequest) -> Mapping[str, str]:
    """OpenAI's names of what such a request can't say in a response: why."""
    if not in_responses(request):
        return {}
    return {**_ONLY_IN_CHATS, **responses.unsupported_values(request)}
