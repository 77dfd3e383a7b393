"""Ollama's own API: as a way in and as a way out, one module a matter, both directions in it.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md and `api/types.go` beside it.

A text completion goes to `/api/generate` in raw mode: the prompt reaches the model as it is,
without a chat template, which is what continuing a prompt means. Thinking is off there, because
Ollama would take part of the text away as reasoning.

Ollama shortens a conversation that does not fit, and forgets its beginning while it generates. Both
are switched off (`truncate`, `shift`): too long a prompt is an error, and a reply that fills the
context ends with `length`, as with OpenAI.
"""

from llama_compat.dialects.ollama.embeddings import parse_embeddings, render_embedding_request
from llama_compat.dialects.ollama.messages import parse_messages, render_messages
from llama_compat.dialects.ollama.models import parse_models
from llama_compat.dialects.ollama.options import THINK
from llama_compat.dialects.ollama.replies import DONE_REASONS, StreamParser
from llama_compat.dialects.ollama.requests import RENDERED_PARAMETERS, render_request

__all__ = [
    "DONE_REASONS",
    "RENDERED_PARAMETERS",
    "THINK",
    "StreamParser",
    "parse_embeddings",
    "parse_messages",
    "parse_models",
    "render_embedding_request",
    "render_messages",
    "render_request",
]
