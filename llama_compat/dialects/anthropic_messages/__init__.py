"""Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages).

What the two vocabularies don't share:

- An image's `detail` has no place here and is left out.
- A thinking block can only be sent back with its signature, for which OpenAI's messages have no
  place. So only reasoning that Anthropic's models sealed themselves is sent back. With adaptive
  thinking that is all right; with a thinking budget a turn in which the model waits for a tool has
  to begin with its thinking, so without it thinking is left off for the rest of such a turn.
- Later models take a thought back only after what came before it when it was thought. So for them
  instructions stay where they are, and where a client has changed something, what is no longer
  taken is left out, which is named (`render_conversation`).
- Reasoning that others made, or nobody sealed, is a thinking block whose signature is a mark of
  ours (`seals`).
- `response_format` `json_object` is a forced call of a tool that takes any object, whose arguments
  are the reply's text.
- Schemas of replies and of strict tools are closed, and limits in them words
  (`llama_compat.tools.closed_schemas`).
"""

from llama_compat.dialects.anthropic_messages.hosted_blocks import SEARCH_NAME
from llama_compat.dialects.anthropic_messages.input.call import parse_request, parse_token_count
from llama_compat.dialects.anthropic_messages.models import (
    parse_models,
    render_model,
    render_models,
)
from llama_compat.dialects.anthropic_messages.rendering import StreamRenderer, render_reply
from llama_compat.dialects.anthropic_messages.replies import (
    StreamParser,
    parse_reply,
    parse_token_reply,
)
from llama_compat.dialects.anthropic_messages.requests import (
    ADAPTIVE_THINKING,
    RENDERED_PARAMETERS,
    SERVICE_TIERS,
    USER_ID,
    RenderedRequest,
    Thinking,
    dropping_unbound,
    no_room_to_think,
    render_conversation,
    render_request,
    render_thinking,
    thinks,
)
from llama_compat.dialects.anthropic_messages.seals import FAMILY
from llama_compat.dialects.anthropic_messages.usage import PAUSED

__all__ = [
    "ADAPTIVE_THINKING",
    "FAMILY",
    "PAUSED",
    "RENDERED_PARAMETERS",
    "SEARCH_NAME",
    "SERVICE_TIERS",
    "USER_ID",
    "RenderedRequest",
    "StreamParser",
    "StreamRenderer",
    "Thinking",
    "dropping_unbound",
    "no_room_to_think",
    "parse_models",
    "parse_reply",
    "parse_request",
    "parse_token_count",
    "parse_token_reply",
    "render_conversation",
    "render_model",
    "render_models",
    "render_reply",
    "render_request",
    "render_thinking",
    "thinks",
]
