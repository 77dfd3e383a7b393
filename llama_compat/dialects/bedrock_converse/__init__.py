"""Amazon Bedrock's Converse (https://docs.aws.amazon.com/bedrock/latest/APIReference/).

What is exact about it is AWS's own model of the service, as botocore 1.44.5 has it (2026-11-23). A
stream is the same as objects `{EVENT: MEMBERS}`; how those are framed is not this dialect's.

What the two vocabularies don't share:

- An image's `detail` has no place here and is left out.
- How hard to think, and `top_k`, are told in the words of each maker's models (`families`). What
  nobody has documented for a model is not guessed.
- Only Claude's thoughts are sealed, with the seal that Anthropic's own API knows too. Those that
  are redacted are bytes here, which nobody says are the same elsewhere: their seal is Bedrock's.
- No word forbids to call tools, and where calls are in the conversation, tools have to be offered.
  Claude is told by its own word for it, and offered those that are named there, without any
  parameters, if the request has none; all others are told in text what was called (`told_calls`).
- `json_object` has no form: see `llama_compat.fitting.forced_reply`.
"""

from llama_compat.dialects.bedrock_converse.families import (
    ModelFamily,
    family_of,
    takes_thoughts,
)
from llama_compat.dialects.bedrock_converse.models import parse_models, parse_profiles
from llama_compat.dialects.bedrock_converse.replies import (
    StreamParser,
    parse_reply,
    parse_token_count,
)
from llama_compat.dialects.bedrock_converse.requests import (
    RENDERED_PARAMETERS,
    Extras,
    render_count_request,
    render_request,
    stop_bound,
    unsupported_values,
)

__all__ = [
    "RENDERED_PARAMETERS",
    "Extras",
    "ModelFamily",
    "StreamParser",
    "family_of",
    "parse_models",
    "parse_profiles",
    "parse_reply",
    "parse_token_count",
    "render_count_request",
    "render_request",
    "stop_bound",
    "takes_thoughts",
    "unsupported_values",
]
