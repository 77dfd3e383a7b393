"""Files that messages name: where they stand, and what comes to stand there."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import WireFiles
from llama_compat.errors import APIError

PNG = b"\x89PNG\r\n\x1a\n and more"
ENCODED = base64.b64encode(PNG).decode()


def wire() -> WireFiles:
    assert MESSAGES.files is not None
    assert COUNT_TOKENS.files is MESSAGES.files
    return MESSAGES.files


def block(kind: str, file_id: Any = "f", **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "file", "file_id": file_id}, **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def test_they_are_found_wherever_a_block_may_stand() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block("image", "b")]}
    made = {"type": "document", "source": {"type": "content", "content": [block("image", "c")]}}
    messages = [user({"type": "text", "text": "f"}, block("document", "a")), user(result, made)]
    assert [(each.id, each.path) for each in wire().named(messages)] == [
        ("a", "messages[0].content[1].source"),
        ("b", "messages[1].content[0].content[0].source"),
        ("c", "messages[1].content[1].source.content[0].source"),
    ]


@pytest.mark.parametrize(
    "messages",
    [
        "x",
        [None, "x"],
        [user(None, "x", {"type": "image"}, {"type": "image", "source": "f"})],
        [{"role": "user", "content": "f"}],
        [user(block("image", None), block("text"), block("container_upload"), block([]))],
        [user({"type": "image", "source": {"type": "url", "url": "u", "file_id": "f"}})],
    ],
)
def test_what_is_malformed_or_something_else_names_none(messages: Any) -> None:
    before = copy.deepcopy(messages)
    assert list(wire().named(messages)) == []
    assert messages == before


@pytest.mark.parametrize(
    ("kind", "media_type", "data", "source"),
    [
        (
            "image",
            "image/webp",
            b"x",
            {"type": "base64", "media_type": "image/webp", "data": "eA=="},
        ),
        (
            "image",
            "application/octet-stream",
            PNG,
            {"type": "base64", "media_type": "image/png", "data": ENCODED},
        ),
        (
            "document",
            "text/markdown",
            "# Grüße".encode(),
            {"type": "text", "media_type": "text/plain", "data": "# Grüße"},
        ),
        (
            "document",
            "application/octet-stream",
            b"%PDF-1.7",
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
        ),
    ],
)
def test_what_is_in_a_file_takes_the_place_of_its_name(
    kind: str, media_type: str, data: bytes, source: dict[str, Any]
) -> None:
    more = {"cache_control": {"type": "ephemeral"}, "title": "T"}
    messages = [user(block(kind, **more))]
    (named,) = wire().named(messages)
    named.put("a", media_type, data)
    assert messages == [user({"type": kind, "source": source, **more})]


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_file_of_another_kind_is_refused_where_it_stands(kind: str) -> None:
    messages = [user(block(kind))]
    (named,) = wire().named(messages)
    with pytest.raises(APIError, match="'application/zip'") as caught:
        named.put("a", "application/zip", b"PK\xff\xfe")
    assert (caught.value.status, caught.value.param) == (400, "messages[0].content[0].source")
