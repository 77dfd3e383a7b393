"""Ollama's API as a way in: its calls, and what is looked at before one of them goes anywhere."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import Asked, Dialect, Operation, stream_headers
from llama_compat.dialects.ollama.call import parse_chat, parse_generate, parse_raw_generate
from llama_compat.dialects.ollama.embeddings import (
    parse_embed_request,
    parse_embeddings_request,
)
from llama_compat.dialects.ollama.errors import NAME, render_error, render_stream_error
from llama_compat.dialects.ollama.lines import chat_said, generate_said, now, withheld
from llama_compat.dialects.ollama.models import other_names
from llama_compat.dialects.ollama.options import options_asked, parse_max_tokens
from llama_compat.dialects.ollama.replies import REPLIES
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.extent import Extent, Prompt
from llama_compat.text.durations import seconds_of
from llama_compat.wire.json_fields import JSONFields, encode_json, from_raw

OLLAMA = Dialect(
    name=NAME,
    render_error=render_error,
    render_stream_error=render_stream_error,
    stream_headers=stream_headers("application/x-ndjson"),
    # What JSON may begin with: clients take an empty line for an object.
    keep_alive=b" ",
)

# --------------------------------------------------------------------------------------------------
# The look
# --------------------------------------------------------------------------------------------------


def _look(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    read = Prompt(fields, "tools", "system", "messages", "prompt", "suffix", "images")
    return _asked(fields, Extent(read, max_tokens=_max_tokens(fields)), _stream(fields))


def _look_at_generate(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    asked = _look(fields, path)
    # Raw mode continues the prompt; all else chats.
    is_raw = "raw" in fields and from_raw(fields["raw"]) is True
    return replace(asked, operation=RAW_GENERATE) if is_raw else asked


def _look_at_embedding(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    return _asked(fields, Extent(Prompt(fields, "input", "prompt"), choices=0))


def _asked(fields: JSONFields, extent: Extent, stream: bool = False) -> Asked:
    model = _model(fields)
    return Asked(model, stream, extent, other_names=tuple(other_names(model)))


def _model(fields: JSONFields) -> str:
    model = from_raw(fields["model"]) if "model" in fields else None
    if model is None or model == "":
        raise missing_parameter("model")
    if not isinstance(model, str):
        raise invalid_parameter("model", "'model' must be a string.", "invalid_type")
    return model


def _stream(fields: JSONFields) -> bool:
    stream = from_raw(fields["stream"]) if "stream" in fields else None
    if stream is not None and not isinstance(stream, bool):
        raise invalid_parameter("stream", "'stream' must be a boolean.", "invalid_type")
    return stream is not False


def _max_tokens(fields: JSONFields) -> int | None:
    options = from_raw(fields["options"]) if "options" in fields else None
    # What holds no number is for whoever answers to refuse.
    return parse_max_tokens(options) if isinstance(options, dict) else None


# --------------------------------------------------------------------------------------------------
# The parameters
# --------------------------------------------------------------------------------------------------

_ALWAYS_HONOURED = frozenset(
    {
        "images",
        "input",
        "keep_alive",
        "messages",
        "model",
        "options",
        "prompt",
        "raw",
        "shift",
        "stream",
        "system",
        "truncate",
    }
)
"""Members that every request has or may have, and those that allow Ollama to shorten what does not
fit: here it is an error in any case."""

_PARAMETERS = {"format": "response_format", "think": "reasoning_effort"}
"""OpenAI's names."""


def _asks_for_something(name: str, value: Any, body: Mapping[str, Any]) -> bool:
    # False, 0 and what is empty ask for what happens anyway, `think` included: a model whose
    # provider knows of no thinking does not think.
    if name in _ALWAYS_HONOURED or not value:
        return False
    return name != "top_logprobs" or bool(body.get("logprobs"))


def _parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        **_embedding_parameters(body),
        **options_asked(body.get("options")),
    }


def _raw_parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    # What only a chat has is nothing that a provider could honour for a prompt as it is.
    only_chats = {name: name for name in (*_PARAMETERS, "images") if body.get(name)}
    return {**_parameters(body), **only_chats}


def _embedding_parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        name: _PARAMETERS.get(name, name)
        for name, value in body.items()
        if _asks_for_something(name, value, body)
    }


# --------------------------------------------------------------------------------------------------
# Requests for nothing
# --------------------------------------------------------------------------------------------------

_NOTHING = frozenset({b"null", b'""', b"[]", b'[""]'})

_NO_TIME = re.compile(r"[0.]+[a-zµ]*")


def _nothing(
    prompt: str, said: Callable[[Mapping[str, Raw], str], Mapping[str, Any]]
) -> Callable[[Mapping[str, Raw], str], bytes | None]:
    """The reply to a request that asks for nothing but that a model be loaded or, by a `keep_alive`
    of no time, unloaded; None for all others. Where models do not share memory it changes nothing.

    Args:
        prompt: the member that says what to do.
        said: what is said to nothing.
    """

    def render(fields: Mapping[str, Raw], model: str) -> bytes | None:
        return encode_json(said(fields, model)) if _is_nothing(fields.get(prompt)) else None

    return render


def _nothing_generated(
    said: Callable[[str], Mapping[str, Any]],
) -> Callable[[Mapping[str, Raw], str], Mapping[str, Any]]:
    return lambda fields, model: {
        "model": model,
        "created_at": now(),
        **said(""),
        "done": True,
        "done_reason": "unload" if _unloads(fields.get("keep_alive")) else "load",
    }


def _keep_alive(fields: Mapping[str, Raw]) -> float | None:
    """What `keep_alive` says: seconds, or a time as Go writes it, `-1` or anything below 0 for ever
    (https://docs.ollama.com/faq, read 2026-11-23).

    Raises:
        APIError: 400; it says something else.
    """
    raw = fields.get("keep_alive")
    value = None if raw is None else from_raw(raw)
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            text = value.removeprefix("-")
            seconds = 0.0 if text == "0" else seconds_of(text)
            return seconds if text == value or not seconds else math.inf
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("expected a number of seconds or a time such as 10m")
    except ValueError as error:
        raise invalid_parameter("keep_alive", f"'keep_alive': {error}.") from None
    return math.inf if value < 0 else float(value)


def _is_nothing(raw: Raw | None) -> bool:
    if raw is None:
        return True
    begin = bytes(memoryview(raw)[:32])
    return len(begin) < 32 and b"".join(begin.split()) in _NOTHING


def _unloads(raw: Raw | None) -> bool:
    value = None if raw is None else from_raw(raw)
    if isinstance(value, str):
        return _NO_TIME.fullmatch(value) is not None
    return value is not None and not value


# --------------------------------------------------------------------------------------------------
# The calls
# --------------------------------------------------------------------------------------------------

_OPTIONS = frozenset({"options"})

CHAT = Operation(
    dialect=OLLAMA,
    name="ollama_chat",
    kind="chat",
    look=_look,
    parameters=_parameters,
    stop_members=_OPTIONS,
    parse=parse_chat,
    replies=REPLIES,
    nothing=_nothing("messages", _nothing_generated(chat_said)),
    keep_alive=_keep_alive,
    withheld=withheld(chat_said),
)
GENERATE = Operation(
    dialect=OLLAMA,
    name="ollama_generate",
    kind="chat",
    look=_look_at_generate,
    parameters=_parameters,
    stop_members=_OPTIONS,
    parse=parse_generate,
    replies=REPLIES,
    nothing=_nothing("prompt", _nothing_generated(generate_said)),
    keep_alive=_keep_alive,
    withheld=withheld(generate_said),
)
RAW_GENERATE = Operation(
    dialect=OLLAMA,
    name="ollama_generate",
    kind="completion",
    look=_look_at_generate,
    parameters=_raw_parameters,
    stop_members=_OPTIONS,
    parse=parse_raw_generate,
    replies=REPLIES,
    nothing=_nothing("prompt", _nothing_generated(generate_said)),
    keep_alive=_keep_alive,
    withheld=withheld(generate_said),
)
EMBED = Operation(
    dialect=OLLAMA,
    name="ollama_embed",
    kind="embedding",
    look=_look_at_embedding,
    parameters=_embedding_parameters,
    parse=parse_embed_request,
    nothing=_nothing("input", lambda fields, model: {"model": model, "embeddings": []}),
    keep_alive=_keep_alive,
)
EMBEDDINGS = Operation(
    dialect=OLLAMA,
    name="ollama_embeddings",
    kind="embedding",
    look=_look_at_embedding,
    parameters=_embedding_parameters,
    parse=parse_embeddings_request,
    nothing=_nothing("prompt", lambda fields, model: {"embedding": []}),
    keep_alive=_keep_alive,
)
