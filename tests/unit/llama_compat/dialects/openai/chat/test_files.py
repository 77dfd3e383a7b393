"""Files that chats and responses name: where they stand, and what comes to stand there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from llama_compat.dialects.base import WireFiles
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import COMPACT, INPUT_TOKENS, RESPONSES
from llama_compat.errors import APIError

PNG = b"\x89PNG\r\n\x1a\n and more"
PDF = "data:application/pdf;base64,JVBERi0xLjc="


def wire(operation: Any) -> WireFiles:
    assert operation.files is not None
    return operation.files  # type: ignore[no-any-return]


def test_all_calls_that_take_a_conversation_take_files() -> None:
    assert wire(RESPONSES) is wire(COMPACT) is wire(INPUT_TOKENS)
    assert (wire(CHAT).member, wire(RESPONSES).member) == ("messages", "input")


def chat_part(**members: Any) -> dict[str, Any]:
    return {"type": "file", "file": members}


def test_they_are_found_wherever_a_part_may_stand() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, chat_part(file_id="a")]},
        {"role": "tool", "tool_call_id": "1", "content": [chat_part(file_id="b")]},
    ]
    assert [(each.id, each.path) for each in wire(CHAT).named(messages)] == [
        ("a", "messages[0].content[1].file"),
        ("b", "messages[1].content[0].file"),
    ]
    items = [
        {"role": "user", "content": [{"type": "input_file", "file_id": "a"}]},
        {"role": "user", "content": [{"type": "input_image", "file_id": "b"}]},
        {"type": "function_call_output", "output": [{"type": "input_file", "file_id": "c"}]},
    ]
    assert [(each.id, each.path) for each in wire(RESPONSES).named(items)] == [
        ("a", "input[0].content[0]"),
        ("b", "input[1].content[0]"),
        ("c", "input[2].output[0]"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        "x",
        [None, "x", {"content": "a"}, {"content": 5}],
        [{"content": [None, "x", {"type": "file"}, {"type": "input_file"}]}],
        [{"content": [chat_part(file_id=5), {"type": "input_file", "file_id": None}]}],
        [{"content": [{"type": "file", "file": "a"}, {"type": "input_image", "file_id": []}]}],
        [{"content": [{"type": "text", "file_id": "a", "file": {"file_id": "a"}}]}],
    ],
)
def test_what_is_malformed_or_something_else_names_none(value: Any) -> None:
    before = copy.deepcopy(value)
    assert list(wire(CHAT).named(value)) == []
    assert list(wire(RESPONSES).named(value)) == []
    assert value == before


@pytest.mark.parametrize(
    ("own", "media_type", "data", "expected"),
    [
        ({}, "application/pdf", b"%PDF-1.7", {"filename": "a.pdf", "file_data": PDF}),
        (
            {"filename": "b.pdf"},
            "application/octet-stream",
            b"%PDF-1.7",
            {"filename": "b.pdf", "file_data": PDF},
        ),
        ({}, "text/markdown", "# Grüße".encode(), "a.pdf\n# Grüße"),
    ],
)
def test_what_is_in_a_file_takes_the_place_of_its_name(
    own: dict[str, Any], media_type: str, data: bytes, expected: Any
) -> None:
    is_text = isinstance(expected, str)
    part = chat_part(file_id="f", **own)
    (named,) = wire(CHAT).named([{"role": "user", "content": [part]}])
    named.put("a.pdf", media_type, data)
    assert part == ({"type": "text", "text": expected} if is_text else chat_part(**expected))
    item = {"type": "input_file", "file_id": "f", **own}
    (named,) = wire(RESPONSES).named([{"role": "user", "content": [item]}])
    named.put("a.pdf", media_type, data)
    text = {"type": "input_text", "text": expected}
    assert item == (text if is_text else {"type": "input_file", **expected})


def test_an_image_takes_the_place_of_its_name() -> None:
    part = {"type": "input_image", "file_id": "f", "detail": "low"}
    (named,) = wire(RESPONSES).named([{"role": "user", "content": [part]}])
    named.put("a", "application/octet-stream", PNG)
    url = part.pop("image_url")
    assert url.startswith("data:image/png;base64,")
    assert part == {"type": "input_image", "detail": "low"}


@pytest.mark.parametrize(
    ("part", "media_type", "data"),
    [
        ({"type": "input_image", "file_id": "f"}, "application/zip", b"PK"),
        ({"type": "input_file", "file_id": "f"}, "text/plain", b"\xff\xfe"),
        ({"type": "input_file", "file_id": "f"}, "application/pdf", b""),
    ],
)
def test_a_file_that_can_not_be_there_is_refused(
    part: dict[str, Any], media_type: str, data: bytes
) -> None:
    (named,) = wire(RESPONSES).named([{"role": "user", "content": [part]}])
    with pytest.raises(APIError) as caught:
        named.put("a", media_type, data)
    assert (caught.value.status, caught.value.param) == (400, "input[0].content[0]")
