"""OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat).

`content`, `requests`, `replies` and `streams` each hold both directions, one beside the other;
`call` is what a client asks and how it is answered.
"""

from llama_compat.dialects.openai.chat.call import ChatCall, parse_request
from llama_compat.dialects.openai.chat.replies import (
    parse_reply,
    render_reply,
)
from llama_compat.dialects.openai.chat.requests import (
    RENDERED_PARAMETERS,
    parse_messages,
    render_call,
    render_message,
    render_request,
    render_tool,
)
from llama_compat.dialects.openai.chat.streams import StreamParser, StreamRenderer

__all__ = [
    "RENDERED_PARAMETERS",
    "ChatCall",
    "StreamParser",
    "StreamRenderer",
    "parse_messages",
    "parse_reply",
    "parse_request",
    "render_call",
    "render_message",
    "render_reply",
    "render_request",
    "render_tool",
]
