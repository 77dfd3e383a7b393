"""What vendors get wrong in OpenAI's replies, put right: in a whole reply, or chunk by chunk.

A reply is taken apart one level at a time, and a level is written anew only if something on it (or
below) was wrong. All other values keep the bytes that the vendor sent.

What is right is in https://platform.openai.com/docs/api-reference/chat-streaming; what is asked of
tool calls is what OpenAI's own SDKs need to put their fragments together.
"""

from llama_compat.dialects.openai.repair.fields import CHAT, TEXT, ReplyKind
from llama_compat.dialects.openai.repair.replies import chunks_of, mend_completion, mend_embeddings
from llama_compat.dialects.openai.repair.streams import StreamMender

__all__ = [
    "CHAT",
    "TEXT",
    "ReplyKind",
    "StreamMender",
    "chunks_of",
    "mend_completion",
    "mend_embeddings",
]
