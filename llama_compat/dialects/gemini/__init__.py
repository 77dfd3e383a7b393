"""Gemini's API (https://ai.google.dev/api/generate-content), as a way in and as a way out.

`input` and `responses` are for clients, `requests` and `replies` for vendors; what is the same for
both stands in one module.

What the two vocabularies don't share:

- An image's `detail` has no place here and is left out by name.
- Gemini 3 and later seal their reasoning into a call's `thoughtSignature` and want it back with the
  call, for as long as the model's turn lasts. OpenAI's clients get it where Google's own OpenAI
  endpoint puts it, in the call's `extra_content`. Clients that don't send it back are as good as a
  history from another model, for which the API documents a signature that passes.
- Thoughts are shown where `reasoning_effort` is set, and sent back only where they are sealed.
"""

from llama_compat.dialects.gemini.embeddings import parse_embeddings, render_embedding_request
from llama_compat.dialects.gemini.input.contents import parse_file, parse_inline
from llama_compat.dialects.gemini.models import (
    model_path,
    parse_models,
    parse_publisher_models,
    searches,
)
from llama_compat.dialects.gemini.replies import StreamParser, parse_reply, parse_token_count
from llama_compat.dialects.gemini.requests import (
    RENDERED_PARAMETERS,
    TIERS,
    always_thinks,
    render_count_request,
    render_request,
    render_vertex_count_request,
)
from llama_compat.dialects.gemini.schema import render_schema
from llama_compat.dialects.gemini.seals import FAMILY, parse_seal, render_seal

__all__ = [
    "FAMILY",
    "RENDERED_PARAMETERS",
    "TIERS",
    "StreamParser",
    "always_thinks",
    "model_path",
    "parse_embeddings",
    "parse_file",
    "parse_inline",
    "parse_models",
    "parse_publisher_models",
    "parse_reply",
    "parse_seal",
    "parse_token_count",
    "render_count_request",
    "render_embedding_request",
    "render_request",
    "render_schema",
    "render_seal",
    "render_vertex_count_request",
    "searches",
]
