"""What of a request decides where it may go: what it is about, and who it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from llama_compat.errors import APIError
from llama_compat.exchange import Call
from llama_compat.prefixes.chain import Chain
from llama_compat.wire.json_fields import from_raw
from routing.asgi import RawHeaders
from routing.policy.abilities import NOTHING
from routing.policy.targets import LiveTarget, header_text

PIN_HEADER = b"x-llama-compat-target"
"""Of a request: the only target that it may go to."""

_MESSAGES = ("messages", "input", "contents", "prompt")
"""Where the dialects have the conversation."""

_OF_ONE_TOKENIZER = ("logit_bias", "stop_token_ids", "allowed_token_ids")
_MAY_BE_OF_ONE_MODEL = frozenset((*_OF_ONE_TOKENIZER, "prompt"))
_NOTHING = (Raw(b"null"), Raw(b"{}"), Raw(b"[]"))


Key = str | Chain
"""What requests have in common that belong together: a text, or the chain of a prompt."""


class Wanted(Struct, frozen=True):
    """What one request wants of its target.

    Attributes:
        stream: whether the client wants a stream.
        key: what it has in common with those that belong to it: a text, or the chain of its
            prompt; None for nothing.
        max_tokens: how many tokens may be generated, where the request says so.
        of_one_model: what in it means something else to another model; empty for nothing.
        pinned: the id of the only target that it may go to; None for any.
        unable: the ids of targets that would refuse it, and what each of them can't do.
    """

    stream: bool = False
    key: Key | None = None
    max_tokens: int | None = None
    of_one_model: str = ""
    pinned: str | None = None
    unable: Mapping[str, str] = NOTHING


def header(headers: RawHeaders, name: bytes) -> str | None:
    """The value of a request's header, by its name in lower case; of one that came twice the
    last."""
    found: bytes | None = None
    for each, value in headers:
        if each == name:
            found = value
    return None if found is None else found.decode("latin-1")


def pinned_target(
    headers: RawHeaders, targets: Sequence[LiveTarget], model: str, *, allowed: bool
) -> str | None:
    """The target that the client has named, if it has.

    Raises:
        APIError: 400, it may not, or there is none such.
    """
    named = header(headers, PIN_HEADER)
    if named is None:
        return None
    if not allowed:
        raise APIError(
            400,
            f"The model '{model}' lets nobody choose a target. Leave the header"
            f" '{PIN_HEADER.decode()}' out, or set `routing: {{pin: true}}` for it in the"
            " template.",
            code="target_not_allowed",
        )
    for target in targets:
        if named in (target.id, header_text(target.id)):
            return target.id
    raise APIError(
        400,
        f"The model '{model}' has no target '{named[:200]}'. Its targets are"
        f" {', '.join(each.id for each in targets)}.",
        code="target_not_found",
    )


def of_one_model(call: Call) -> str:
    """What in `call` means something else to another model, so that it can't fall back to one."""
    if call.operation.kind in ("embedding", "token_count"):
        return "embeddings" if call.operation.kind == "embedding" else "token counts"
    fields = call.fields
    if _MAY_BE_OF_ONE_MODEL.isdisjoint(fields):
        return ""
    for name in _OF_ONE_TOKENIZER:
        if name in fields and fields[name] not in _NOTHING:
            return name
    if "prompt" in fields:
        prompt = bytes(fields["prompt"])[:64]
        if prompt[:1] == b"[" and prompt.lstrip(b"[ \t\r\n")[:1].isdigit():
            return "a prompt of token ids"
    return ""


def same_model(one: str, other: str) -> bool:
    """Whether two providers' names are of the same model: whoever it is from, in any case."""
    return _own_name(one) == _own_name(other)


def _own_name(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()


KeyReader = Callable[[Mapping[str, Raw], RawHeaders], str | None]
"""Reads of a request's members and headers what it has in common with others; None for nothing."""


def sticky_key(
    readers: Iterable[KeyReader], fields: Mapping[str, Raw], headers: RawHeaders
) -> str | None:
    """What the request has in common with those that belong to it: what the first of `readers`
    finds."""
    for read in readers:
        value = read(fields, headers)
        if value:
            return value
    return None


def reader_of(source: str) -> KeyReader:
    """Reads one of the template's `sticky_on`."""
    if source.startswith("header:"):
        name = source.removeprefix("header:").lower().encode()
        return lambda fields, headers: header(headers, name)
    if source == "first_message":
        return lambda fields, headers: _first_message(fields)
    if source == "user":
        return lambda fields, headers: _user(fields)
    return lambda fields, headers: _text(fields.get(source))


def _text(raw: Raw | None) -> str | None:
    value = None if raw is None else from_raw(raw)
    return value if isinstance(value, str) else None


def _user(fields: Mapping[str, Raw]) -> str | None:
    """OpenAI's `user` or `safety_identifier`, or Anthropic's `metadata.user_id`."""
    user = _text(fields.get("user")) or _text(fields.get("safety_identifier"))
    if user is None and "metadata" in fields:
        metadata = from_raw(fields["metadata"])
        inner = metadata.get("user_id") if isinstance(metadata, dict) else None
        user = inner if isinstance(inner, str) else None
    return user


class _Speaker(msgspec.Struct):
    role: str = "user"


_items = msgspec.json.Decoder(list[Raw])
_speaker = msgspec.json.Decoder(_Speaker)


def _first_message(fields: Mapping[str, Raw]) -> str | None:
    """The first thing that the user said, in the bytes that the client sent: it stays the same as
    the conversation goes on, which what the system says does too, but for everybody."""
    raw = next((fields[name] for name in _MESSAGES if name in fields), None)
    if raw is None:
        return None
    said = bytes(raw)
    if not said.startswith(b"["):
        return said.decode("utf-8", "replace")
    try:
        for item in map(bytes, _items.decode(said)):
            if not item.startswith(b"{") or _speaker.decode(item).role == "user":
                return item.decode("utf-8", "replace")
    except msgspec.DecodeError:
        return None  # what is malformed is for the parser to refuse
    return None
