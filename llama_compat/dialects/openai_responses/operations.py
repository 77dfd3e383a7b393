"""The Responses API as a way in: its calls, and the look at a request before it goes anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace as replace_struct

from llama_compat.dialects.base import Asked, Dialect, Operation
from llama_compat.dialects.openai.operations import required_model
from llama_compat.dialects.openai.parameters import CHECKS, Check, check_parameters
from llama_compat.dialects.openai_responses import compact
from llama_compat.dialects.openai_responses.errors import render_error, render_stream_error
from llama_compat.dialects.openai_responses.input import requests, token_count
from llama_compat.dialects.openai_responses.input.files import FILES
from llama_compat.dialects.openai_responses.output.said import REPLIES
from llama_compat.dialects.openai_responses.output.withheld import withheld
from llama_compat.extent import NOTHING, Extent, Prompt, largest
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields

RESPONSES_API = Dialect(
    name="responses",
    render_error=render_error,
    render_stream_error=render_stream_error,
    stream_end=sse.DONE,
    keep_alive=sse.encode_comment(b" keepalive"),
)

_SHARED = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "logit_bias",
    "top_logprobs",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "user",
)

RESPONSE_CHECKS: dict[str, Check] = {
    **{name: CHECKS[name] for name in _SHARED},
    "max_output_tokens": CHECKS["max_tokens"],
    "max_tool_calls": CHECKS["max_tokens"],
    "store": CHECKS["stream"],
    "background": CHECKS["stream"],
    "instructions": CHECKS["user"],
    "previous_response_id": CHECKS["user"],
    "safety_identifier": CHECKS["user"],
    "prompt_cache_key": CHECKS["user"],
}


def _look(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    checked = check_parameters(fields, RESPONSE_CHECKS)
    read = Prompt(fields, "tools", "instructions", "prompt", "input")
    return Asked(
        required_model(fields),
        checked.get("stream", False),
        Extent(read, max_tokens=largest(checked.get("max_output_tokens"))),
    )


def _look_at_whole(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    asked = _look(fields, path)
    compact.no_stream(asked.stream)
    return asked


def _look_at_count(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    return replace_struct(_look_at_whole(fields, path), extent=NOTHING)


_NO = (None, Raw(b"null"), Raw(b"false"))


def _lasts(fields: Mapping[str, Raw]) -> bool:
    return any(fields.get(name) not in _NO for name in ("background", "conversation"))


RESPONSES = Operation(
    dialect=RESPONSES_API,
    name="responses",
    kind="chat",
    look=_look,
    parameters=requests.parameters,
    hints=lambda body: requests.HINTS,
    parse=requests.parse_request,
    withheld=withheld,
    replies=REPLIES,
    lasts=_lasts,
    files=FILES,
)
COMPACT = Operation(
    dialect=RESPONSES_API,
    name="compact",
    kind="chat",
    look=_look_at_whole,
    parameters=compact.parameters,
    parse=compact.parse_compact,
    files=FILES,
)
INPUT_TOKENS = Operation(
    dialect=RESPONSES_API,
    name="input_tokens",
    kind="token_count",
    look=_look_at_count,
    parameters=token_count.parameters,
    parse=token_count.parse_count,
    files=FILES,
)
