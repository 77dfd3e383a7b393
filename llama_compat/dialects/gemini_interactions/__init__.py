"""Google's Interactions API (https://ai.google.dev/api/interactions-api), both ways.

`input`, `generation`, `call` and `streams` are for clients, `requests` and `replies` for vendors;
what is the same for both stands in one module. The wire is that of revision 2026-05-20, read on
2026-11-22 in Google's documentation and in the types of google-genai 3.4.0.

What the two vocabularies don't share:

- A conversation is a list of *steps*. Thoughts are steps of their own, and the only ones with a
  seal: a seal that another API has on a tool call stands in a thought beside the call.
- An image's `detail` has no place here and is left out.
- A reply that the provider withheld is `incomplete`, and says `content_blocked` in its `errors`.
- Thoughts of models that seal nothing are not sent to vendors, as with generateContent.
"""

from llama_compat.dialects.gemini_interactions.replies import StreamParser, parse_reply
from llama_compat.dialects.gemini_interactions.requests import (
    RENDERED_PARAMETERS,
    always_thinks,
    render_request,
)

REVISION = "2026-05-20"
"""The revision of the wire, as the header `Api-Revision` names it."""

__all__ = [
    "RENDERED_PARAMETERS",
    "REVISION",
    "StreamParser",
    "always_thinks",
    "parse_reply",
    "render_request",
]
