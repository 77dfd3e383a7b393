"""Gemini's generateContent and batchEmbedContents (https://ai.google.dev/api/generate-content).

What the two vocabularies don't share:

- A message's `name`, an image's `detail` and a tool's `strict` have no place here and are left out.
- Gemini 3 and later seal their reasoning into a call's `thoughtSignature` and want it back with the
  call, for as long as the model's turn lasts. OpenAI's clients get it where Google's own OpenAI
  endpoint puts it, in the call's `extra_content`. Clients that don't send it back are as good as a
  history from another model, for which the API documents a signature that passes.
- Thoughts are shown where `reasoning_effort` is set, and never sent back.
"""

from llama_compat.dialects.gemini.embeddings import parse_embeddings, render_embedding_request
from llama_compat.dialects.gemini.models import model_path, parse_models
from llama_compat.dialects.gemini.replies import StreamParser, parse_reply
from llama_compat.dialects.gemini.requests import render_request
from llama_compat.dialects.gemini.schema import render_schema

__all__ = [
    "StreamParser",
    "model_path",
    "parse_embeddings",
    "parse_models",
    "parse_reply",
    "render_embedding_request",
    "render_request",
    "render_schema",
]
