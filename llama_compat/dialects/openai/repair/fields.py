"""What is looked at on every level of a reply: members that lack, and what goes in their place."""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from llama_compat.wire.json_fields import JSONFields, to_raw

NULL = Raw(b"null")
EMPTY_STRING = Raw(b'""')
EMPTY_LIST = Raw(b"[]")
EMPTY_OBJECT = Raw(b"{}")
_NOTHING = (None, NULL, EMPTY_STRING)


@dataclass(frozen=True, slots=True)
class ReplyKind:
    """What OpenAI calls the replies of one operation."""

    id_prefix: str
    object: Raw
    chunk_object: Raw


CHAT = ReplyKind("chatcmpl-", Raw(b'"chat.completion"'), Raw(b'"chat.completion.chunk"'))
TEXT = ReplyKind("cmpl-", Raw(b'"text_completion"'), Raw(b'"text_completion"'))


def lacks(fields: JSONFields, name: str) -> bool:
    """Whether the member `name` is not there, null or empty."""
    return fields.get(name) in _NOTHING


def begin(raw: Raw) -> bytes:
    """The first character of `raw`, which tells of what type it is."""
    return bytes(memoryview(raw)[:1])


def is_text(raw: Raw) -> bool:
    """Whether `raw` is a string."""
    return begin(raw) == b'"'


def as_text(raw: Raw) -> Raw:
    """`raw` if it is a string, else a string of its JSON."""
    return raw if is_text(raw) else to_raw(bytes(raw).decode())


def encode(value: JSONFields | list[JSONFields]) -> Raw:
    """The JSON of one level, whose members are JSON already."""
    return Raw(msgspec.json.encode(value))


def generated_id(prefix: str) -> Raw:
    """An id (JSON) in place of one that the vendor left out."""
    return Raw(f'"{prefix}{os.urandom(12).hex()}"'.encode())
