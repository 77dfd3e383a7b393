"""Where OpenAI's models search the web, and what they can be told of it.

https://developers.openai.com/api/docs/guides/tools-web-search (2026-11-23).
"""

from __future__ import annotations

from llama_compat.dialects.openai_responses.requests import has_words_for
from llama_compat.hosted.vocabulary import WebSearchTool
from llama_compat.types import ChatCompletionRequest


def in_chats(model: str) -> bool:
    """Whether it is one of those that search in chat completions, and nowhere else."""
    return "-search" in model


def in_responses(tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
    """Whether a response can be asked for all that `request` asks of a model, and its search for
    what `tool` says: it takes no domains to leave out, does not search with the least effort, nor
    where the reply is to be some JSON object. Which models do not search is among their facts."""
    wanted = request.response_format
    return (
        not tool.blocked_domains
        and request.reasoning_effort != "minimal"
        and (wanted is None or wanted.type != "json_object")
        and has_words_for(request)
    )
